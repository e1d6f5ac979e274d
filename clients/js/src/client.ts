// What a program holds in its hands: who watches what is kept here, callbacks are called from here, and everything that
// needs the service is left to the tab's line or to a call.

import { Book, type Changes } from "./book.js";
import { asError, RollcallError } from "./error.js";
import { asker, type Access, type Ask } from "./http.js";
import { retryDelay } from "./backoff.js";
import type { Told } from "./line.js";
import { canShare, deviceName, isHidden, listen } from "./page.js";
import { askAll } from "./polling.js";
import { Tab, type Want } from "./tabs.js";
import { tokens } from "./token.js";
import { Timer } from "./timer.js";
import { typist, type Typist } from "./typing.js";
import type { Context, Listeners, Options, Presence, Rollcall, Status, StatusChoice, WebSocketClass } from "./types.js";

/** A page's signs of activity are passed on at most this often: the line decides which of them the service hears of. */
const ACTIVE_EVERY_MS = 1_000;

/** Somebody who watches people. */
interface Watcher {
  users: Set<string>;
  call: (presence: Presence, context: Context) => void;
}

/** Somebody who watches a conversation. */
interface Reader {
  conversation: string;
  call: (typists: string[]) => void;
}

/** A connection. */
export class Client implements Rollcall {
  readonly #options: Options;
  readonly #access: Access;
  readonly #ask: Ask;
  readonly #book: Book;
  readonly #typist: Typist;
  readonly #watchers = new Set<Watcher>();
  readonly #readers = new Set<Reader>();
  readonly #listeners = { status: new Set(), error: new Set(), event: new Set() } as {
    [Name in keyof Listeners]: Set<Listeners[Name]>;
  };
  #status: Status = "closed";
  #tab: Tab | undefined;
  #isStarted = false;
  #isWanting = false;
  #failures = 0;
  #activeAt = 0;
  #unlisten = () => {};
  readonly #expiry = new Timer();
  readonly #retrying = new Timer();

  constructor(options: Options) {
    this.#options = options;
    const url = options.url.replace(/\/+$/, "");
    const call = options.fetch ?? ((...request: Parameters<typeof fetch>) => fetch(...request));
    this.#access = { url, as: options.as, tokens: tokens(options.token), fetch: call };
    this.#ask = asker(this.#access);
    this.#book = new Book(options.typingTtl ?? 5_000);
    this.#typist = typist(options.typingTtl ?? 5_000, (conversation, typing) =>
      this.#tab?.tell({ say: "type", conversation, typing }),
    );
    if (options.start !== false) this.start();
  }

  get status(): Status {
    return this.#status;
  }

  start(): void {
    if (this.#isStarted) return;
    this.#isStarted = true;
    this.#unlisten = listen({
      active: () => this.active(),
      visibility: (hidden) => this.#shown(hidden),
      left: () => this.#leave(false),
      back: () => this.#join(),
      network: () => this.#tab?.tell({ say: "nudge" }),
    });
    this.#setStatus("connecting");
    void this.#join();
  }

  async close(): Promise<void> {
    if (!this.#isStarted) return;
    this.#isStarted = false;
    this.#unlisten();
    this.#typist.stopAll();
    await this.#leave(true);
  }

  watch(users: Iterable<string>, call: Watcher["call"]): () => void {
    const watcher = { users: new Set(users), call };
    this.#watchers.add(watcher);
    this.#wantSoon();
    // Not before the caller has what this answers.
    queueMicrotask(() => {
      for (const user of watcher.users) this.#callWatcher(watcher, user);
    });
    return () => {
      if (this.#watchers.delete(watcher)) this.#wantSoon();
    };
  }

  get(user: string): Presence | undefined {
    return this.#book.get(user);
  }

  presence(users: Iterable<string>): Promise<Presence[]> {
    return askAll(this.#ask, [...users]);
  }

  async setStatus({ choice, text, emoji, forSeconds }: StatusChoice): Promise<void> {
    await this.#ask("PUT", "/v1/status", { choice, text, emoji, for_s: forSeconds });
  }

  typing(conversation: string): void {
    this.#typist.stroke(conversation);
    this.active();
  }

  stopTyping(conversation: string): void {
    this.#typist.stop(conversation);
  }

  watchTyping(conversation: string, call: Reader["call"]): () => void {
    const reader = { conversation, call };
    this.#readers.add(reader);
    this.#wantSoon();
    queueMicrotask(() => this.#callReader(reader));
    return () => {
      if (this.#readers.delete(reader)) this.#wantSoon();
    };
  }

  typists(conversation: string): string[] {
    return this.#book.typists(conversation);
  }

  active(): void {
    const now = Date.now();
    if (now - this.#activeAt < ACTIVE_EVERY_MS) return;
    this.#activeAt = now;
    this.#tab?.tell({ say: "active" });
  }

  on<Name extends keyof Listeners>(name: Name, listener: Listeners[Name]): () => void {
    this.#listeners[name].add(listener);
    return () => void this.#listeners[name].delete(listener);
  }

  // Being one of the tabs.

  async #join(): Promise<void> {
    if (!this.#isStarted || this.#tab) return;
    const { as, share = true, device, kind, WebSocket } = this.#options;
    try {
      await this.#access.tokens.get();
    } catch (thrown) {
      this.#emit("error", asError(thrown));
      return this.#retrying.set(retryDelay(this.#failures++), () => this.#join());
    }
    if (!this.#isStarted || this.#tab) return;
    const self = as ?? this.#access.tokens.subject();
    const isShared = share && self !== undefined && canShare();
    const setup = {
      ...this.#options,
      access: this.#access,
      ask: this.#ask,
      device: device ?? deviceName(isShared),
      kind: kind ?? "web",
      WebSocket: WebSocket ?? (globalThis as { WebSocket?: WebSocketClass }).WebSocket,
    };
    const group = isShared ? `rollcall:${this.#access.url}:${self}` : undefined;
    this.#failures = 0;
    this.#book.self = self;
    this.#tab = new Tab(group, setup, this.#book, (told) => this.#told(told), this.#want());
  }

  async #leave(leave: boolean): Promise<void> {
    this.#retrying.clear();
    this.#expiry.clear();
    const tab = this.#tab;
    this.#tab = undefined;
    await tab?.close(leave);
    // What happens until this tab is back is not heard of: then everybody is told of anew.
    this.#book.id = undefined;
    this.#setStatus("closed");
  }

  #want(): Want {
    const users = [...new Set([...this.#watchers].flatMap((watcher) => [...watcher.users]))];
    const conversations = [...new Set([...this.#readers].map(({ conversation }) => conversation))];
    return { users, conversations, hidden: isHidden() };
  }

  /** Whatever is begun and ended in one go is no change. */
  #wantSoon(): void {
    if (this.#isWanting) return;
    this.#isWanting = true;
    queueMicrotask(() => {
      this.#isWanting = false;
      this.#tab?.tell({ say: "want", want: this.#want() });
    });
  }

  #shown(hidden: boolean): void {
    this.#tab?.tell({ say: "want", want: this.#want() });
    if (hidden) return;
    this.#activeAt = 0;
    this.active();
    this.#tab?.tell({ say: "nudge" });
  }

  // Being told.

  #told(told: Told): void {
    if (told.say === "status") return this.#setStatus(told.status);
    if (told.say === "failed") return this.#emit("error", new RollcallError(told.problem));
    if (told.say !== "news") return;
    const { event } = told;
    this.#changed(this.#book.apply(event, (user) => this.#want().users.includes(user)));
    if (event.event !== "kept") this.#emit("event", event);
  }

  #changed({ users, conversations }: Changes): void {
    for (const watcher of [...this.#watchers]) {
      for (const user of users) if (watcher.users.has(user)) this.#callWatcher(watcher, user);
    }
    for (const reader of [...this.#readers]) if (conversations.has(reader.conversation)) this.#callReader(reader);
    this.#expireLater();
  }

  #expireLater(): void {
    const { changes, next } = this.#book.expire();
    if (next < Infinity) this.#expiry.set(Math.ceil(next), () => this.#expireLater());
    if (changes.conversations.size > 0) this.#changed(changes);
  }

  #callWatcher(watcher: Watcher, user: string): void {
    const presence = this.#book.get(user);
    if (!presence || !this.#watchers.has(watcher)) return;
    this.#guarded(() => watcher.call(presence, { stale: this.#status === "offline" }));
  }

  #callReader(reader: Reader): void {
    if (this.#readers.has(reader)) this.#guarded(() => reader.call(this.#book.typists(reader.conversation)));
  }

  #setStatus(status: Status): void {
    const wasStale = this.#status === "offline";
    if (status === this.#status) return;
    this.#status = status;
    this.#emit("status", status);
    if (wasStale === (status === "offline")) return;
    for (const watcher of [...this.#watchers]) {
      for (const user of watcher.users) this.#callWatcher(watcher, user);
    }
  }

  #emit<Name extends keyof Listeners>(name: Name, said: Parameters<Listeners[Name]>[0]): void {
    for (const listener of [...this.#listeners[name]]) {
      this.#guarded(() => (listener as (said: unknown) => void)(said), name === "error");
    }
  }

  /** What a program's own code throws must not stop the others; it is told like any failure. */
  #guarded(call: () => void, isError = false): void {
    try {
      call();
    } catch (thrown) {
      if (!isError) this.#emit("error", asError(thrown, "A callback failed"));
    }
  }
}
