// The connection to the service: one transport at a time, reopened for as long as the client is started.
//
// It decides when to connect and by which transport, how long to wait before the next attempt, which users are watched
// and which are polled, and when to report activity. Received events are passed on unchanged; callbacks of the program
// are called elsewhere.

import { retryDelay, throttledDelay } from "./backoff.js";
import { isOlder, type PresenceCache, type Subscription, type SubscriptionEvent } from "./cache.js";
import { asError, type Problem, type RollcallError } from "./error.js";
import type { Access, SendRequest } from "./http.js";
import { poller, queryPresences, type Poller } from "./polling.js";
import { SseTransport } from "./sse.js";
import { now, Timer } from "./timer.js";
import { claims } from "./token.js";
import type { End, ResumePoint, Transport, TransportHandlers, TransportOptions } from "./transport.js";
import type { Options, Presence, ServiceEvent, Status, WebSocketClass } from "./types.js";
import { WebSocketTransport } from "./websocket.js";

/** The most users on one event stream, whatever the service's limit: its URL holds no more. */
const STREAM_IDS = 500;

/**
 * Least time between two changes of the subscription; changes in between are combined. Each change of a stream opens a
 * new stream, so streams change less often.
 */
const SOCKET_CHANGE_MS = 200;
const STREAM_CHANGE_MS = 1_000;

/** A connection that lasted this long resets the count of failures. */
const STABLE_MS = 10_000;

/**
 * Sockets count as blocked after this many never opened although requests succeed. Then one is tried at this interval.
 */
const SOCKET_TRIES = 2;
const BLOCKED_MS = 300_000;

/** Activity within this time before a reconnect is reported with it. */
const RECENT_MS = 30_000;

/** What a connection needs beside the options of the program. */
export interface ConnectionOptions extends Omit<Options, "kind"> {
  access: Access;
  sendRequest: SendRequest;
  device: string;
  kind: string;
  WebSocket: WebSocketClass | undefined;
}

/** What a connection reports. `to` addresses one tab. */
export type ConnectionMessage =
  | { kind: "event"; event: ServiceEvent | SubscriptionEvent; to?: string }
  | { kind: "status"; status: Status; to?: string }
  | { kind: "error"; problem: Problem };

export class Connection {
  readonly #options: ConnectionOptions;
  readonly #cache: PresenceCache;
  readonly #report: (message: ConnectionMessage) => void;
  readonly #poller: Poller;
  readonly #resume: ResumePoint = { id: undefined, users: new Set() };
  readonly #retryTimer = new Timer();
  readonly #staleTimer = new Timer();
  readonly #unblockTimer = new Timer();
  readonly #subscribeTimer = new Timer();
  readonly #renewTimer = new Timer();
  /** What the service refuses to let us watch. A user and a conversation may have the same id. */
  readonly #refused = { users: new Set<string>(), conversations: new Set<string>() };
  #wanted: Subscription = { users: [], conversations: [] };
  #watched = new Set<string>();
  #limit: number;
  #activeAt: number;
  #transport: Transport | undefined;
  #isUp = false;
  #isPaused = false;
  #isClosed = false;
  #isStale = false;
  #subscribedAt = -Infinity;
  #openedAt = 0;
  #failures = 0;
  /** How many sockets in a row never opened. */
  #blocked: number;
  #token: string | undefined;
  #refusedToken: string | undefined;
  #nextBeatAt = 0;
  #throttledUntil = 0;

  /** Connects. `active`: the user caused the connection. */
  constructor(
    options: ConnectionOptions,
    cache: PresenceCache,
    report: (message: ConnectionMessage) => void,
    active: boolean,
  ) {
    this.#options = options;
    this.#cache = cache;
    this.#report = report;
    this.#activeAt = active ? now() : -Infinity;
    this.#limit = options.watchLimit ?? Infinity;
    this.#blocked = options.transport === "events" ? Infinity : 0;
    this.#poller = poller(options.sendRequest, options.pollInterval ?? 30_000, {
      answered: (presences) => this.#polled(presences),
      refused: (error, users) => this.#exclude(error, users),
    });
    this.#startStaleTimer();
    void this.#connect();
  }

  /** Replaces the subscription. Users beyond the limit of one connection, the last ones, are polled. */
  subscribe(users: string[], conversations: string[]): void {
    const interval = this.#blocked < SOCKET_TRIES ? SOCKET_CHANGE_MS : STREAM_CHANGE_MS;
    const wait = this.#subscribedAt + interval - now();
    if (wait > 0) return this.#subscribeTimer.set(wait, () => this.subscribe(users, conversations));
    this.#subscribeTimer.clear();
    this.#subscribedAt = now();
    this.#wanted = { users, conversations };
    this.#reportEvent({ event: "subscription", users, conversations });
    this.#update();
  }

  /** The user is active. */
  active(): void {
    this.#activeAt = now();
    if (!this.#isUp || this.#options.watchOnly || now() < this.#nextBeatAt) return;
    this.#nextBeatAt = now() + (this.#options.activityInterval ?? 30_000);
    this.#transport?.beat();
  }

  /** Sends a typing update. */
  type(conversation: string, typing: boolean): void {
    if (!this.#refused.conversations.has(conversation)) this.#transport?.type(conversation, typing);
  }

  /** While paused, nothing is watched but the connection stays open. */
  setPaused(isPaused: boolean): void {
    if (isPaused === this.#isPaused) return;
    if (!isPaused && this.#transport?.isSocket) this.#updateResume();
    this.#isPaused = isPaused;
    this.#update();
    this.#poller.setEnabled(this.#isUp && !isPaused);
    this.#reportStatus();
  }

  /** Reconnects or probes at once, because the network came back or a page was shown. */
  wake(): void {
    if (this.#transport) this.#transport.probe?.();
    else if (now() > this.#throttledUntil) void this.#connect();
    this.#poller.refresh();
  }

  /** Closes the connection. `leave` also ends the device's presence at once. */
  async close(leave: boolean): Promise<void> {
    this.#isClosed = true;
    this.#isUp = false;
    const timers = [this.#retryTimer, this.#staleTimer, this.#unblockTimer, this.#renewTimer, this.#subscribeTimer];
    timers.forEach((timer) => timer.clear());
    this.#poller.setEnabled(false);
    const transport = this.#transport;
    this.#transport = undefined;
    await transport?.close(leave);
  }

  // Connecting.

  async #connect(): Promise<void> {
    this.#retryTimer.clear();
    const { tokens } = this.#options.access;
    try {
      const token = await tokens.get(this.#refusedToken);
      if (this.#isClosed || this.#transport) return;
      this.#setToken(token);
      this.#updateResume();
      this.#open(this.#blocked < SOCKET_TRIES ? WebSocketTransport : SseTransport);
    } catch (thrown) {
      this.#reportError(asError(thrown));
      this.#retry(retryDelay(this.#failures++));
    }
  }

  /** Opens a transport. It replaces the current one once it is open; without a current one, at once. */
  #open(Kind: new (options: TransportOptions, handlers: TransportHandlers) => Transport): void {
    // A host that crashed has lost recent activity, so it is reported again.
    const active = now() - this.#activeAt < RECENT_MS;
    const further = { token: this.#token, active, resume: this.#resume, updateResume: () => this.#updateResume() };
    const isCurrent = () => transport === this.#transport;
    const transport: Transport = new Kind({ ...this.#options, ...further }, {
      opened: () => this.#opened(transport),
      received: (event) => isCurrent() && this.#received(event),
      advanced: (id) => isCurrent() && this.#resume.users.size === 0 && (this.#cache.id = id),
      refused: (error, users, conversations) => isCurrent() && this.#exclude(error, users, conversations),
      nextBeat: (ms) => (this.#nextBeatAt = Math.max(this.#nextBeatAt, now() + ms)),
      ended: (end) => isCurrent() && this.#ended(end, transport.isSocket),
    });
    if (this.#transport) return;
    this.#transport = transport;
    this.#update();
  }

  #opened(transport: Transport): void {
    if (this.#isClosed) return void transport.close(false);
    if (transport !== this.#transport) {
      void this.#transport?.close(false);
      this.#transport = transport;
      this.#updateResume();
      this.#update();
    }
    this.#isUp = true;
    this.#isStale = false;
    if (transport.isSocket) {
      this.#blocked = 0;
      this.#unblockTimer.clear();
    }
    this.#openedAt = now();
    this.#staleTimer.clear();
    this.#startRenewTimer();
    this.#reportStatus();
    this.#poller.setEnabled(!this.#isPaused);
  }

  /** Tries whether sockets still are blocked. The stream stays open until a socket is. */
  #trySocket(): void {
    this.#unblockTimer.set(BLOCKED_MS, () => this.#trySocket());
    if (this.#transport) this.#open(WebSocketTransport);
    // Between two streams: make the next attempt a socket.
    else this.#blocked = SOCKET_TRIES - 1;
  }

  #ended(end: End, wasSocket: boolean): void {
    this.#transport = undefined;
    if (this.#isUp) this.#startStaleTimer();
    if (this.#isUp && now() - this.#openedAt > STABLE_MS) this.#failures = 0;
    this.#isUp = false;
    this.#poller.setEnabled(false);
    this.#renewTimer.clear();
    this.#reportStatus();
    if (wasSocket && !end.wasOpen) void this.#diagnose();
    else this.#retry(this.#delay(end));
  }

  /** How long to wait before the next attempt. */
  #delay({ code, error, afterMs }: End): number {
    const status = error?.status;
    // An error without a status means no response, which the connection's status shows.
    if (error && status) this.#reportError(error);
    const isThrottled = code === 1008 || code === 4429 || status === 403 || status === 429;
    const isExpired = code === 4401 || status === 401;
    if (isExpired) this.#refusedToken = this.#token;
    const failures = this.#failures++;
    // Retry with a fresh token at once; if that is refused too, back off.
    const wait = isThrottled ? throttledDelay() : isExpired && failures === 0 ? 0 : retryDelay(failures);
    // While throttled, not even `wake` retries sooner.
    if (isThrottled) this.#throttledUntil = now() + wait;
    return Math.max(afterMs ?? wait, error?.retryAfterMs ?? 0);
  }

  /**
   * A socket that fails to open gives no reason: the network is down, the token is refused, or sockets are blocked. A
   * plain request tells which.
   */
  async #diagnose(): Promise<void> {
    const { access, sendRequest, device, transport = "auto" } = this.#options;
    const end: End = { wasOpen: false };
    try {
      await sendRequest("POST", "/v1/presence", { users: [device] });
      // If the token was replaced, the socket failed because of the old one.
      const isSame = (await access.tokens.get()) === this.#token;
      if (isSame && transport === "auto" && ++this.#blocked === SOCKET_TRIES && !this.#isClosed) {
        this.#unblockTimer.set(BLOCKED_MS, () => this.#trySocket());
        end.afterMs = 0;
      }
    } catch (thrown) {
      end.error = asError(thrown);
    }
    this.#retry(this.#delay(end));
  }

  #retry(ms: number): void {
    if (!this.#isClosed) this.#retryTimer.set(ms, () => this.#connect());
  }

  #startRenewTimer(): void {
    const after = this.#options.access.tokens.renewIn();
    // A timeout holds 31 bits of milliseconds; a connection hardly lasts that long.
    if (after < 2 ** 31) this.#renewTimer.set(after, () => this.#renew());
  }

  /** Replaces the token before it expires. */
  async #renew(): Promise<void> {
    try {
      const token = await this.#options.access.tokens.get(this.#token);
      if (token === undefined || !this.#isUp) return;
      this.#setToken(token);
      this.#transport?.renew(token);
      this.#update();
      this.#startRenewTimer();
    } catch (thrown) {
      this.#reportError(asError(thrown));
      // If the connection was lost meanwhile, the next one starts its own timer.
      if (this.#isUp) this.#renewTimer.set(retryDelay(10), () => this.#renew());
    }
  }

  /** Uses this token from now on. If it lists other conversations, refused ones are requested again. */
  #setToken(token: string | undefined): void {
    const listed = (of = "") => `${claims(of).conversations}`;
    if (listed(token) !== listed(this.#token)) this.#refused.conversations.clear();
    this.#token = token;
  }

  // Watching.

  #updateResume(): void {
    this.#resume.id = this.#cache.id;
    this.#resume.users = this.#cache.resumable();
  }

  /** Divides the wanted users among the transport and the poller, without those that were refused. */
  #update(): void {
    const transport = this.#transport;
    const users = this.#wanted.users.filter((user) => !this.#refused.users.has(user));
    const limit = transport && !transport.isSocket ? Math.min(this.#limit, STREAM_IDS) : this.#limit;
    const watched = users.slice(0, limit);
    this.#watched = new Set(watched);
    for (const user of this.#resume.users) if (!this.#watched.has(user)) this.#resume.users.delete(user);
    this.#poller.setUsers(users.slice(limit));
    const conversations = this.#wanted.conversations.filter((one) => !this.#refused.conversations.has(one));
    // A paused stream keeps its subscription: the service rejects an empty one, and the stream is the heartbeat.
    if (this.#isPaused && transport?.isSocket) transport.watch([], []);
    else transport?.watch(watched, conversations.slice(0, limit));
  }

  /** Excludes what the service refuses from the subscription. Returns whether that changed anything. */
  #exclude(error: RollcallError, users: string[] = [], conversations: string[] = []): boolean {
    // A limit that is about a field is that of one request, not of the subscription.
    const { field, limit = Infinity } = error.problem;
    const [, list, index] = /^(\w+)\[(\d+)\]$/.exec(field ?? "") ?? [];
    const isLearnt = field === undefined && limit < this.#limit;
    // Users beyond the limit are polled. Conversations cannot be, so that is an error.
    if (!isLearnt || this.#wanted.conversations.length > limit) this.#reportError(error);
    const id = (list === "users" ? users : conversations)[Number(index)];
    if (isLearnt) this.#limit = limit;
    else if (error.status >= 500) return false;
    else if (id !== undefined) this.#refused[list === "users" ? "users" : "conversations"].add(id);
    else if (users.length > 0 || conversations.length === 0) return false;
    else conversations.forEach((conversation) => this.#refused.conversations.add(conversation));
    this.#update();
    return true;
  }

  #received(event: ServiceEvent): void {
    const isWatched = ({ user }: Presence) => this.#watched.has(user);
    // The event id counts only once every resumed user has been received.
    if (this.#resume.users.size > 0) event = { ...event, id: undefined };
    if (event.event === "snapshot") event = { ...event, presences: event.presences.filter(isWatched) };
    if (event.event === "presence") {
      // Sent before the service received the unwatch.
      if (!isWatched(event)) return;
      // An older version means that the store lost a record; a query tells what holds now.
      if (isOlder(event, this.#cache.get(event.user))) void this.#verify(event.user);
    }
    this.#reportEvent(event);
  }

  async #verify(user: string): Promise<void> {
    const presences = await queryPresences(this.#options.sendRequest, [user]).catch(() => []);
    if (this.#watched.has(user)) this.#reportEvent({ event: "snapshot", presences, typing: [], resumed: false });
  }

  /** Reports polled presences, except of users the connection watches by now: its events are newer. */
  #polled(presences: Presence[]): void {
    const polled = presences.filter(({ user }) => !this.#watched.has(user));
    this.#reportEvent({ event: "snapshot", presences: polled, typing: [], resumed: true, asked: true });
  }

  // Reporting.

  #reportEvent(event: ServiceEvent | SubscriptionEvent): void {
    this.#report({ kind: "event", event });
  }

  #reportError({ problem }: RollcallError): void {
    this.#report({ kind: "error", problem });
  }

  #startStaleTimer(): void {
    this.#staleTimer.set(this.#options.staleAfter ?? 30_000, () => {
      this.#isStale = true;
      this.#reportStatus();
    });
  }

  #reportStatus(): void {
    const down = this.#isStale ? "offline" : "connecting";
    this.#report({ kind: "status", status: this.#isUp ? (this.#isPaused ? "paused" : "online") : down });
  }
}
