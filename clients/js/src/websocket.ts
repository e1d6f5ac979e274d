// The WebSocket transport. A socket changes its subscription in place: the difference between what is wanted and what
// is watched is sent one request at a time, so that a refusal is known before it could be repeated.

import { RollcallError, type Problem } from "./error.js";
import { randomId } from "./page.js";
import { Timer } from "./timer.js";
import { connectionQuery, type End, type Transport, type TransportHandlers, type TransportOptions } from "./transport.js";
import type { ServiceEvent } from "./types.js";

/** Ids per message. This many of the longest ids, with every character escaped, fit into a message of 16 KiB. */
const BATCH = 50;

const OPEN_TIMEOUT_MS = 10_000;

/** After this much silence the service is probed, and has this long to answer. */
const SILENCE_MS = 30_000;
const ANSWER_TIMEOUT_MS = 8_000;

/** Wait before a request that the service could not serve is repeated, unless the service gives a time. */
const RETRY_MS = 5_000;

/** How long the service has to close the socket after a leave message. */
const LEAVE_TIMEOUT_MS = 1_000;

/** A message of the service. */
type Received = (ServiceEvent | ({ event: "error" } & Problem) | { event: "done" } | { event: "reconnect" }) & {
  ref?: number;
  after_ms?: number;
};

type AnswerHandler = (answer: Received) => void;

export class WebSocketTransport implements Transport {
  readonly isSocket = true;
  readonly #options: TransportOptions;
  readonly #handlers: TransportHandlers;
  readonly #end: End = { wasOpen: false };
  readonly #timer = new Timer();
  readonly #retryTimer = new Timer();
  #isOver = false;
  readonly #users = new Set<string>();
  readonly #conversations = new Set<string>();
  readonly #pending = new Map<number, AnswerHandler>();
  #wantedUsers: string[] = [];
  #wantedConversations: string[] = [];
  #lastRef = 0;
  #isWatchPending = false;
  #closed: (() => void) | undefined;
  #socket: InstanceType<NonNullable<TransportOptions["WebSocket"]>> | undefined;

  constructor(options: TransportOptions, handlers: TransportHandlers) {
    this.#options = options;
    this.#handlers = handlers;
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
      if (answer.event === "error") this.#handlers.refused(new RollcallError(answer), [], [conversation]);
    });
  }

  renew(token: string): void {
    this.#send({ op: "token", token }, (answer) => {
      // Reconnect with a fresh token instead.
      if (answer.event === "error") return this.#finish(4401);
      // The service does not report which conversations the new token adds or removes, so all are watched anew.
      this.#unwatch([], [...this.#conversations]);
      this.#reconcile();
    });
  }

  probe(): void {
    // Unwatching a random id changes nothing and is answered.
    this.#send({ op: "unwatch", users: [randomId()] }, () => {});
    this.#expect(ANSWER_TIMEOUT_MS);
  }

  close(leave: boolean): Promise<void> {
    return new Promise((resolve) => {
      this.#closed = resolve;
      if (this.#isOver) return resolve();
      if (!leave || !this.#end.wasOpen) return this.#finish();
      this.#send({ op: "leave" });
      this.#expect(LEAVE_TIMEOUT_MS);
    });
  }

  #open(): void {
    const { WebSocket, access, token } = this.#options;
    if (!WebSocket) return this.#finish();
    const query = connectionQuery(this.#options, token);
    try {
      this.#socket = new WebSocket(`${access.url.replace(/^http/, "ws")}/v1/socket?${query}`);
    } catch {
      return this.#finish();
    }
    this.#expect(OPEN_TIMEOUT_MS);
    this.#socket.onopen = () => {
      if (this.#isOver) return;
      this.#end.wasOpen = true;
      this.#watchSilence();
      this.#handlers.opened();
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
    this.#retryTimer.clear();
    this.#socket?.close();
    if (this.#closed) this.#closed();
    else this.#handlers.ended(this.#end);
  }

  /** Ends the transport unless something arrives within this time. */
  #expect(ms: number): void {
    this.#timer.set(ms, () => this.#finish());
  }

  #watchSilence(): void {
    this.#timer.set(SILENCE_MS, () => this.probe());
  }

  #send(message: object, answered?: AnswerHandler): void {
    if (!this.#end.wasOpen || this.#isOver) return;
    if (answered) this.#pending.set(++this.#lastRef, answered);
    this.#socket?.send(JSON.stringify(answered ? { ...message, ref: this.#lastRef } : message));
  }

  #receive(text: string): void {
    if (this.#isOver) return;
    // Messages that arrive after a leave do not extend its timeout.
    if (!this.#closed) this.#watchSilence();
    const { ref = 0, ...message } = JSON.parse(text) as Received;
    const answered = this.#pending.get(ref);
    this.#pending.delete(ref);
    if (answered) answered(message);
    else if (message.event === "reconnect") this.#end.afterMs = message.after_ms;
    else if (message.event === "error") this.#handlers.refused(new RollcallError(message));
    else if (message.event !== "done") this.#handlers.received(message);
  }

  #reconcile(): void {
    if (!this.#end.wasOpen || this.#isOver) return;
    const { resume } = this.#options;
    const missing = (list: string[], of: Set<string>) => list.filter((one) => !of.has(one));
    const unwanted = (of: Set<string>, list: string[]) => missing([...of], new Set(list));
    const conversations = unwanted(this.#conversations, this.#wantedConversations);
    // Unwatch at once: a user who is dropped and wanted again before an answer comes needs a new snapshot.
    this.#unwatch(unwanted(this.#users, this.#wantedUsers), conversations);
    if (this.#isWatchPending) return;
    const users = missing(this.#wantedUsers, this.#users);
    const added = missing(users, resume.users);
    const addedConversations = missing(this.#wantedConversations, this.#conversations);
    // New users first: then the last batch of resumed users completes the set that the event id was made for.
    if (added.length > 0) this.#requestWatch(added.slice(0, BATCH), []);
    else if (users.length > 0) this.#requestWatch(users.slice(0, BATCH), [], resume.id);
    // Conversations go alone and without an event id, so that the answer lists everyone who types.
    else if (addedConversations.length > 0) this.#requestWatch([], addedConversations.slice(0, BATCH));
  }

  #unwatch(users: string[], conversations: string[]): void {
    for (let at = 0; at < Math.max(users.length, conversations.length); at += BATCH) {
      const batch = { users: users.slice(at, at + BATCH), conversations: conversations.slice(at, at + BATCH) };
      this.#send({ op: "unwatch", ...batch });
    }
    users.forEach((user) => this.#users.delete(user));
    conversations.forEach((conversation) => this.#conversations.delete(conversation));
  }

  /** Requests to watch these, and continues with the next batch once that is answered. */
  #requestWatch(users: string[], conversations: string[], since?: string): void {
    this.#isWatchPending = true;
    const next = () => {
      this.#isWatchPending = false;
      this.#reconcile();
    };
    this.#send({ op: "watch", users, conversations, since }, (answer) => {
      if (answer.event === "snapshot") {
        for (const user of users) {
          this.#options.resume.users.delete(user);
          this.#users.add(user);
        }
        conversations.forEach((conversation) => this.#conversations.add(conversation));
        this.#handlers.received({ ...answer, conversations });
      } else if (answer.event === "error") {
        const error = new RollcallError(answer);
        // If the connection did not remove what was refused, the request is repeated later.
        if (!this.#handlers.refused(error, users, conversations)) {
          return this.#retryTimer.set(error.retryAfterMs ?? RETRY_MS, next);
        }
      }
      next();
    });
  }
}
