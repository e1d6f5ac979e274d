// The line to the service: one connection, kept up for as long as somebody wants it, by whichever transport gets
// through.
//
// Decides when to connect, by what, how long to wait before the next attempt, who is watched and who is asked about,
// and when to say that the person is active. What comes is handed on as it came; nobody is called back from here.

import { longDelay, retryDelay } from "./backoff.js";
import { isOlder, type Book, type Kept, type Watched } from "./cache.js";
import { asError, type Problem, type RollcallError } from "./error.js";
import { EventsWire } from "./sse.js";
import type { Access, Ask } from "./http.js";
import { askAll, polling, type Polling } from "./polling.js";
import { SocketWire } from "./websocket.js";
import { now, Timer } from "./timer.js";
import { claims } from "./token.js";
import type { Options, Presence, ServiceEvent, Status, WebSocketClass } from "./types.js";
import type { Ears, End, Opening, Resume, Wire } from "./transport.js";

/** The most people on one stream of events, whatever the service's limit: its address holds no more. */
const STREAM_IDS = 500;

/**
 * Whom to watch may change so often; what changes sooner is taken together. On a stream each change is another
 * stream.
 */
const EACH_MS = 200;
const EACH_STREAM_MS = 1_000;

/** A connection that lasted for so long was a good one: the next failure is the first again. */
const STABLE_MS = 10_000;

/** Sockets that never opened although calls get through, before they count as blocked; and how often one is tried. */
const SOCKET_TRIES = 2;
const BLOCKED_MS = 300_000;

/** For how long somebody who did something counts as active when the connection is made again. */
const RECENT_MS = 30_000;

/** What a line needs to know, beside the options. */
export interface Setup extends Omit<Options, "kind"> {
  access: Access;
  ask: Ask;
  device: string;
  kind: string;
  WebSocket: WebSocketClass | undefined;
}

/** What a line tells. */
export type Told =
  | { say: "news"; event: ServiceEvent | Kept; to?: string }
  | { say: "status"; status: Status; to?: string }
  | { say: "failed"; problem: Problem };

/** A line. */
export class Line {
  readonly #setup: Setup;
  readonly #book: Book;
  readonly #tell: (told: Told) => void;
  readonly #polling: Polling;
  readonly #resume: Resume = { id: undefined, users: new Set() };
  readonly #retrying = new Timer();
  readonly #staling = new Timer();
  readonly #unblocking = new Timer();
  readonly #wanting = new Timer();
  readonly #renewing = new Timer();
  /** Whom and what the service will not let us watch, as `users` and `conversations` may have the same names. */
  readonly #refused = { users: new Set<string>(), conversations: new Set<string>() };
  #wanted: Watched = { users: [], conversations: [] };
  #watched = new Set<string>();
  #limit: number;
  #activeAt: number;
  #wire: Wire | undefined;
  #isUp = false;
  #isPaused = false;
  #isClosed = false;
  #isStale = false;
  #wantedAt = -Infinity;
  #openedAt = 0;
  #failures = 0;
  /** How many sockets in a row never opened. */
  #blocked: number;
  #token: string | undefined;
  #refusedToken: string | undefined;
  #beatAfter = 0;
  #unwantedUntil = 0;

  /** Connects. `active`: because the person came. */
  constructor(setup: Setup, book: Book, tell: (told: Told) => void, active: boolean) {
    this.#setup = setup;
    this.#book = book;
    this.#tell = tell;
    this.#activeAt = active ? now() : -Infinity;
    this.#limit = setup.watchLimit ?? Infinity;
    this.#blocked = setup.transport === "events" ? Infinity : 0;
    this.#polling = polling(setup.ask, setup.pollInterval ?? 30_000, {
      answered: (presences) => this.#answered(presences),
      refused: (error, users) => this.#leaveOut(error, users),
    });
    this.#staleLater();
    void this.#connect();
  }

  /** Watches these and nobody else; the first ones by the connection, if there are more than it may watch. */
  want(users: string[], conversations: string[]): void {
    const wait = this.#wantedAt + (this.#blocked < SOCKET_TRIES ? EACH_MS : EACH_STREAM_MS) - now();
    if (wait > 0) return this.#wanting.set(wait, () => this.want(users, conversations));
    this.#wanting.clear();
    this.#wantedAt = now();
    this.#wanted = { users, conversations };
    this.#news({ event: "kept", users, conversations });
    this.#plan();
  }

  /** The person did something. */
  active(): void {
    this.#activeAt = now();
    if (!this.#isUp || this.#setup.watchOnly || now() < this.#beatAfter) return;
    this.#beatAfter = now() + (this.#setup.activityInterval ?? 30_000);
    this.#wire?.beat();
  }

  /** The person types, or stopped. */
  type(conversation: string, typing: boolean): void {
    if (!this.#refused.conversations.has(conversation)) this.#wire?.type(conversation, typing);
  }

  /** Watches nothing, but stays connected; or goes on where it was. */
  pause(isPaused: boolean): void {
    if (isPaused === this.#isPaused) return;
    if (!isPaused && this.#wire?.isSocket) this.#recall();
    this.#isPaused = isPaused;
    this.#plan();
    this.#polling.turn(this.#isUp && !isPaused);
    this.#tellStatus();
  }

  /** Now may be a good moment: the network came back, or a page was shown. */
  nudge(): void {
    if (this.#wire) this.#wire.probe?.();
    else if (now() > this.#unwantedUntil) void this.#connect();
    this.#polling.refresh();
  }

  /** Ends it; `leave`: the device is gone at once. */
  async close(leave: boolean): Promise<void> {
    this.#isClosed = true;
    this.#isUp = false;
    const timers = [this.#retrying, this.#staling, this.#unblocking, this.#renewing, this.#wanting];
    timers.forEach((timer) => timer.clear());
    this.#polling.turn(false);
    const wire = this.#wire;
    this.#wire = undefined;
    await wire?.close(leave);
  }

  // Connecting.

  async #connect(): Promise<void> {
    this.#retrying.clear();
    const { tokens } = this.#setup.access;
    try {
      const token = await tokens.get(this.#refusedToken);
      if (this.#isClosed || this.#wire) return;
      this.#take(token);
      this.#recall();
      this.#use(this.#blocked < SOCKET_TRIES ? SocketWire : EventsWire);
    } catch (thrown) {
      this.#failed(asError(thrown));
      this.#retry(retryDelay(this.#failures++));
    }
  }

  /** Opens a wire. It is the line's at once if it has none, and otherwise as soon as it is open. */
  #use(Kind: new (opening: Opening, ears: Ears) => Wire): void {
    // Who was active just now is so, whatever a host that broke down remembers.
    const active = now() - this.#activeAt < RECENT_MS;
    const opening = { token: this.#token, active, resume: this.#resume, recall: () => this.#recall() };
    const isMine = () => wire === this.#wire;
    const wire: Wire = new Kind({ ...this.#setup, ...opening }, {
      opened: () => this.#opened(wire),
      heard: (event) => isMine() && this.#heard(event),
      passed: (id) => isMine() && this.#resume.users.size === 0 && (this.#book.id = id),
      refused: (error, users, conversations) => isMine() && this.#leaveOut(error, users, conversations),
      nextBeat: (ms) => (this.#beatAfter = Math.max(this.#beatAfter, now() + ms)),
      ended: (end) => isMine() && this.#ended(end, wire.isSocket),
    });
    if (this.#wire) return;
    this.#wire = wire;
    this.#plan();
  }

  #opened(wire: Wire): void {
    if (this.#isClosed) return void wire.close(false);
    if (wire !== this.#wire) {
      void this.#wire?.close(false);
      this.#wire = wire;
      this.#recall();
      this.#plan();
    }
    this.#isUp = true;
    this.#isStale = false;
    if (wire.isSocket) {
      this.#blocked = 0;
      this.#unblocking.clear();
    }
    this.#openedAt = now();
    this.#staling.clear();
    this.#renewLater();
    this.#tellStatus();
    this.#polling.turn(!this.#isPaused);
  }

  /** Sockets may get through by now. The stream goes on until one does. */
  #trySocket(): void {
    this.#unblocking.set(BLOCKED_MS, () => this.#trySocket());
    if (this.#wire) this.#use(SocketWire);
    // Between two streams, one socket comes first.
    else this.#blocked = SOCKET_TRIES - 1;
  }

  #ended(end: End, wasSocket: boolean): void {
    this.#wire = undefined;
    if (this.#isUp) this.#staleLater();
    if (this.#isUp && now() - this.#openedAt > STABLE_MS) this.#failures = 0;
    this.#isUp = false;
    this.#polling.turn(false);
    this.#renewing.clear();
    this.#tellStatus();
    if (wasSocket && !end.wasOpen) void this.#whyNot();
    else this.#retry(this.#delay(end));
  }

  /** How long to wait after such an end. */
  #delay({ code, error, afterMs }: End): number {
    const status = error?.status;
    // That nobody answers is told by the status.
    if (error && status) this.#failed(error);
    const isTooMuch = code === 1008 || code === 4429 || status === 403 || status === 429;
    const isExpired = code === 4401 || status === 401;
    if (isExpired) this.#refusedToken = this.#token;
    const failures = this.#failures++;
    // With a fresh token at once; whose fresh one is refused too waits as for anything else.
    const wait = isTooMuch ? longDelay() : isExpired && failures === 0 ? 0 : retryDelay(failures);
    // After too much, not even a network that is back is a reason to come sooner.
    if (isTooMuch) this.#unwantedUntil = now() + wait;
    return Math.max(afterMs ?? wait, error?.retryAfterMs ?? 0);
  }

  /**
   * A socket that does not open does not say why: the network is away, the token is refused, or sockets are
   * blocked.
   */
  async #whyNot(): Promise<void> {
    const { access, ask, device, transport = "auto" } = this.#setup;
    const end: End = { wasOpen: false };
    try {
      await ask("POST", "/v1/presence", { users: [device] });
      // With a token that was refused, a socket had no chance.
      const isSame = (await access.tokens.get()) === this.#token;
      if (isSame && transport === "auto" && ++this.#blocked === SOCKET_TRIES && !this.#isClosed) {
        this.#unblocking.set(BLOCKED_MS, () => this.#trySocket());
        end.afterMs = 0;
      }
    } catch (thrown) {
      end.error = asError(thrown);
    }
    this.#retry(this.#delay(end));
  }

  #retry(ms: number): void {
    if (!this.#isClosed) this.#retrying.set(ms, () => this.#connect());
  }

  #renewLater(): void {
    const after = this.#setup.access.tokens.renewIn();
    // One timer cannot wait for longer than this, and a connection hardly lasts for so long.
    if (after < 2 ** 31) this.#renewing.set(after, () => this.#renew());
  }

  /** Goes on with a fresh token, before the old one is over. */
  async #renew(): Promise<void> {
    try {
      const token = await this.#setup.access.tokens.get(this.#token);
      if (token === undefined || !this.#isUp) return;
      this.#take(token);
      this.#wire?.renew(token);
      this.#plan();
      this.#renewLater();
    } catch (thrown) {
      this.#failed(asError(thrown));
      // A connection that is made meanwhile renews by itself.
      if (this.#isUp) this.#renewing.set(retryDelay(10), () => this.#renew());
    }
  }

  /** Uses this token from now on. If it is for other conversations, what was refused is asked for again. */
  #take(token: string | undefined): void {
    const listed = (of = "") => `${claims(of).conversations}`;
    if (listed(token) !== listed(this.#token)) this.#refused.conversations.clear();
    this.#token = token;
  }

  // Watching.

  #recall(): void {
    this.#resume.id = this.#book.id;
    this.#resume.users = this.#book.resumable();
  }

  /** Who is watched, who is asked about, and who is neither. */
  #plan(): void {
    const wire = this.#wire;
    const users = this.#wanted.users.filter((user) => !this.#refused.users.has(user));
    const most = wire && !wire.isSocket ? Math.min(this.#limit, STREAM_IDS) : this.#limit;
    const watched = users.slice(0, most);
    this.#watched = new Set(watched);
    for (const user of this.#resume.users) if (!this.#watched.has(user)) this.#resume.users.delete(user);
    this.#polling.list(users.slice(most));
    const conversations = this.#wanted.conversations.filter((one) => !this.#refused.conversations.has(one));
    // A stream that watches nothing is none, and it is the sign of life: so it goes on.
    if (this.#isPaused && wire?.isSocket) wire.watch([], []);
    else wire?.watch(watched, conversations.slice(0, most));
  }

  /** Leaves out what the service refuses. Answers whether that changed anything. */
  #leaveOut(error: RollcallError, users: string[] = [], conversations: string[] = []): boolean {
    const [, list, place] = /^(\w+)\[(\d+)\]$/.exec(error.problem.field ?? "") ?? [];
    const most = Number(/would be more than (\d+)/.exec(error.detail)?.[1]);
    const isLearnt = most < this.#limit;
    // People beyond the limit are asked about; for conversations there is no other way.
    if (!isLearnt || this.#wanted.conversations.length > most) this.#failed(error);
    const name = (list === "users" ? users : conversations)[Number(place)];
    if (isLearnt) this.#limit = most;
    else if (error.status >= 500) return false;
    else if (name !== undefined) this.#refused[list === "users" ? "users" : "conversations"].add(name);
    else if (users.length > 0 || conversations.length === 0) return false;
    else conversations.forEach((conversation) => this.#refused.conversations.add(conversation));
    this.#plan();
    return true;
  }

  #heard(event: ServiceEvent): void {
    const isWatched = ({ user }: Presence) => this.#watched.has(user);
    // Not before everybody of whom it holds has been told of again.
    if (this.#resume.users.size > 0) event = { ...event, id: undefined };
    if (event.event === "snapshot") event = { ...event, presences: event.presences.filter(isWatched) };
    if (event.event === "presence") {
      // Said before the service heard that they are watched no longer.
      if (!isWatched(event)) return;
      // A store that lost what it had told takes it back: then the newest is what is there when asked.
      if (isOlder(event, this.#book.get(event.user))) void this.#verify(event.user);
    }
    this.#news(event);
  }

  async #verify(user: string): Promise<void> {
    const presences = await askAll(this.#setup.ask, [user]).catch(() => []);
    if (this.#watched.has(user)) this.#news({ event: "snapshot", presences, typing: [], resumed: false });
  }

  /** What was answered about those whom the connection does not watch; of the others it knows better. */
  #answered(presences: Presence[]): void {
    const asked = presences.filter(({ user }) => !this.#watched.has(user));
    this.#news({ event: "snapshot", presences: asked, typing: [], resumed: true, asked: true });
  }

  // Saying how it stands.

  #news(event: ServiceEvent | Kept): void {
    this.#tell({ say: "news", event });
  }

  #failed({ problem }: RollcallError): void {
    this.#tell({ say: "failed", problem });
  }

  #staleLater(): void {
    this.#staling.set(this.#setup.staleAfter ?? 30_000, () => {
      this.#isStale = true;
      this.#tellStatus();
    });
  }

  #tellStatus(): void {
    const down = this.#isStale ? "offline" : "connecting";
    this.#tell({ say: "status", status: this.#isUp ? (this.#isPaused ? "paused" : "online") : down });
  }
}
