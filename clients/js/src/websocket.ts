// The line by a WebSocket, which changes whom it watches as it goes: what is wanted is compared with what is watched,
// and one difference at a time is sent, so that a refusal is known before it could be repeated.

import { RollcallError, type Problem } from "./error.js";
import { randomName } from "./page.js";
import { Timer } from "./timer.js";
import type { ServiceEvent } from "./types.js";
import { query, type Ears, type End, type Opening, type Wire } from "./transport.js";

/** Ids in one message: of the longest ones, each letter escaped, so many fit into the 16 KiB that it may have. */
const BATCH = 50;

/** How long a socket may take to open. */
const OPEN_TIMEOUT_MS = 10_000;

/** After so much silence the other end is asked whether it is there, and it has so long to answer. */
const SILENCE_MS = 30_000;
const ANSWER_TIMEOUT_MS = 8_000;

/** Before what the service could not do is asked for again, if it does not say. */
const STALL_MS = 5_000;

/** How long a farewell may take. */
const FAREWELL_MS = 1_000;

/** What comes on a socket. */
type Received = (ServiceEvent | ({ event: "error" } & Problem) | { event: "done" } | { event: "reconnect" }) & {
  ref?: number;
  after_ms?: number;
};

type Answered = (answer: Received) => void;

/** Opens a socket. */
export class SocketWire implements Wire {
  readonly isSocket = true;
  readonly #opening: Opening;
  readonly #ears: Ears;
  readonly #end: End = { wasOpen: false };
  readonly #timer = new Timer();
  readonly #stall = new Timer();
  #isOver = false;
  readonly #users = new Set<string>();
  readonly #conversations = new Set<string>();
  readonly #asked = new Map<number, Answered>();
  #wantedUsers: string[] = [];
  #wantedConversations: string[] = [];
  #reference = 0;
  #isAsking = false;
  #left: (() => void) | undefined;
  #socket: InstanceType<NonNullable<Opening["WebSocket"]>> | undefined;

  constructor(opening: Opening, ears: Ears) {
    this.#opening = opening;
    this.#ears = ears;
    queueMicrotask(() => this.#isOver || this.#open());
  }

  watch(users: string[], conversations: string[]): void {
    this.#wantedUsers = users;
    this.#wantedConversations = conversations;
    this.#reconcile();
  }

  beat(): void {
    this.#send({ op: "beat", active: true });
  }

  type(conversation: string, typing: boolean): void {
    this.#send({ op: "typing", conversation, typing }, (answer) => {
      if (answer.event === "error") this.#ears.refused(new RollcallError(answer), [], [conversation]);
    });
  }

  renew(token: string): void {
    this.#send({ op: "token", token }, (answer) => {
      // A fresh one is shown at the door instead.
      if (answer.event === "error") return this.#finish(4401);
      // Where this token does not let one see who types, the service does not say so, and where it does again neither:
      // each is begun anew.
      this.#drop([], [...this.#conversations]);
      this.#reconcile();
    });
  }

  probe(): void {
    // Nobody is called so and nobody watches them: it is answered, and changes nothing.
    this.#send({ op: "unwatch", users: [randomName()] }, () => {});
    this.#expect(ANSWER_TIMEOUT_MS);
  }

  close(leave: boolean): Promise<void> {
    return new Promise((resolve) => {
      this.#left = resolve;
      if (this.#isOver) return resolve();
      if (!leave || !this.#end.wasOpen) return this.#finish();
      this.#send({ op: "leave" });
      this.#expect(FAREWELL_MS);
    });
  }

  #open(): void {
    const { WebSocket, access, token } = this.#opening;
    if (!WebSocket) return this.#finish();
    const said = query(this.#opening, token);
    try {
      this.#socket = new WebSocket(`${access.url.replace(/^http/, "ws")}/v1/socket?${said}`);
    } catch {
      return this.#finish();
    }
    this.#expect(OPEN_TIMEOUT_MS);
    this.#socket.onopen = () => {
      if (this.#isOver) return;
      this.#end.wasOpen = true;
      this.#listen();
      this.#ears.opened();
      this.#reconcile();
    };
    this.#socket.onmessage = ({ data }: { data: unknown }) => this.#receive(String(data));
    this.#socket.onerror = () => {};
    this.#socket.onclose = ({ code }: { code: number }) => this.#finish(code);
  }

  #finish(code?: number): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#end.code = code;
    this.#timer.clear();
    this.#stall.clear();
    this.#socket?.close();
    if (this.#left) this.#left();
    else this.#ears.ended(this.#end);
  }

  /** Ends it unless something comes within so long. */
  #expect(ms: number): void {
    this.#timer.set(ms, () => this.#finish());
  }

  #listen(): void {
    this.#timer.set(SILENCE_MS, () => this.probe());
  }

  #send(message: object, answered?: Answered): void {
    if (!this.#end.wasOpen || this.#isOver) return;
    if (answered) this.#asked.set(++this.#reference, answered);
    this.#socket?.send(JSON.stringify(answered ? { ...message, ref: this.#reference } : message));
  }

  #receive(text: string): void {
    if (this.#isOver) return;
    // A farewell takes no longer for what still comes.
    if (!this.#left) this.#listen();
    const { ref = 0, ...message } = JSON.parse(text) as Received;
    const answered = this.#asked.get(ref);
    this.#asked.delete(ref);
    if (answered) answered(message);
    else if (message.event === "reconnect") this.#end.afterMs = message.after_ms;
    else if (message.event === "error") this.#ears.refused(new RollcallError(message));
    else if (message.event !== "done") this.#ears.heard(message);
  }

  #reconcile(): void {
    if (!this.#end.wasOpen || this.#isOver) return;
    const { resume } = this.#opening;
    const missing = (list: string[], of: Set<string>) => list.filter((one) => !of.has(one));
    const unwanted = (of: Set<string>, list: string[]) => missing([...of], new Set(list));
    const conversations = unwanted(this.#conversations, this.#wantedConversations);
    // At once: whoever is forgotten and wanted again before an answer comes has to be told of anew.
    this.#drop(unwanted(this.#users, this.#wantedUsers), conversations);
    if (this.#isAsking) return;
    const users = missing(this.#wantedUsers, this.#users);
    const strangers = missing(users, resume.users);
    const rooms = missing(this.#wantedConversations, this.#conversations);
    // Strangers first: then the last of the others completes what the service's digest was made of.
    if (strangers.length > 0) this.#ask(strangers.slice(0, BATCH), []);
    else if (users.length > 0) this.#ask(users.slice(0, BATCH), [], resume.id);
    // Alone and whole: who is not told of does not type.
    else if (rooms.length > 0) this.#ask([], rooms.slice(0, BATCH));
  }

  #drop(users: string[], conversations: string[]): void {
    for (let at = 0; at < Math.max(users.length, conversations.length); at += BATCH) {
      const part = { users: users.slice(at, at + BATCH), conversations: conversations.slice(at, at + BATCH) };
      this.#send({ op: "unwatch", ...part });
    }
    users.forEach((user) => this.#users.delete(user));
    conversations.forEach((conversation) => this.#conversations.delete(conversation));
  }

  /** Asks to watch these, and goes on with the next when that is answered. */
  #ask(users: string[], conversations: string[], since?: string): void {
    this.#isAsking = true;
    const goOn = () => {
      this.#isAsking = false;
      this.#reconcile();
    };
    this.#send({ op: "watch", users, conversations, since }, (answer) => {
      if (answer.event === "snapshot") {
        for (const user of users) {
          this.#opening.resume.users.delete(user);
          this.#users.add(user);
        }
        conversations.forEach((conversation) => this.#conversations.add(conversation));
        this.#ears.heard({ ...answer, conversations });
      } else if (answer.event === "error") {
        const error = new RollcallError(answer);
        // What the line does not leave out is asked for again after a while.
        if (!this.#ears.refused(error, users, conversations)) {
          return this.#stall.set(error.retryAfterMs ?? STALL_MS, goOn);
        }
      }
      goOn();
    });
  }
}
