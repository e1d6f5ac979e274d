// What a program holds in its hands: who watches what is kept here, callbacks are called from here, and everything that
// needs the service is left to the tab's line or to a call.

import { Book, type Changes } from "./cache.js";
import { asError, RollcallError } from "./error.js";
import { asker, type Access, type Ask } from "./http.js";
import { retryDelay } from "./backoff.js";
import type { Told } from "./connection.js";
import { canShare, deviceName, isHidden, listen } from "./page.js";
import { askAll } from "./polling.js";
import { Tab, type Want } from "./tabs.js";
import { tokens } from "./token.js";
import { now, Timer } from "./timer.js";
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
  #isStale = false;
  #isWanting = false;
  #failures = 0;
  #activeAt = -Infinity;
  #leaving: Promise<void> | undefined;
  #unlisten = () => {};
  readonly #expiry = new Timer();
  readonly #retrying = new Timer();

  constructor(options: Options) {
    this.#options = options;
    const url = options.url.replace(/\/+$/, "");
    const call: typeof fetch = options.fetch ?? ((url, request) => fetch(url, request));
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
    // A name is one person, not a list of its letters.
    const watcher = { users: new Set(typeof users === "string" ? [users] : users), call };
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

  async setStatus({ forSeconds, ...chosen }: StatusChoice): Promise<void> {
    await this.#ask("PUT", "/v1/status", { ...chosen, for_s: forSeconds });
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
    if (now() - this.#activeAt < ACTIVE_EVERY_MS) return;
    this.#activeAt = now();
    this.#tab?.tell({ say: "active" });
  }

  on<Name extends keyof Listeners>(name: Name, listener: Listeners[Name]): () => void {
    this.#listeners[name].add(listener);
    return () => void this.#listeners[name].delete(listener);
  }

  // Being one of the tabs.

  async #join(): Promise<void> {
    if (!this.#isStarted || this.#tab) return;
    const { as, share = true, device, kind, watchOnly, WebSocket } = this.#options;
    this.#setStatus("connecting");
    try {
      // A farewell that comes late would end what has just begun.
      await this.#leaving;
      await this.#access.tokens.get();
    } catch (thrown) {
      if (!this.#isStarted) return;
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
    // Tabs that differ in these cannot be one device.
    const name = [this.#access.url, self, !!watchOnly, device];
    const group = isShared ? `rollcall:${JSON.stringify(name)}` : undefined;
    this.#failures = 0;
    this.#book.self = self;
    this.#tab = new Tab(group, setup, this.#book, (told) => this.#told(told), this.#want());
  }

  async #leave(leave: boolean): Promise<void> {
    this.#retrying.clear();
    this.#expiry.clear();
    const tab = this.#tab;
    this.#tab = undefined;
    // What happens until this tab is back is not heard of: then everybody is told of anew.
    this.#book.id = undefined;
    this.#leaving = tab?.close(leave) ?? this.#leaving;
    this.#setStatus("closed");
    await this.#leaving;
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
    this.#wantSoon();
    if (hidden) return;
    this.#activeAt = -Infinity;
    this.active();
    this.#tab?.tell({ say: "nudge" });
  }

  // Being told.

  #told(told: Told): void {
    if (told.say === "status") return this.#setStatus(told.status);
    if (told.say === "failed") return this.#emit("error", new RollcallError(told.problem));
    if (told.say !== "news") return;
    const { event } = told;
    this.#changed(this.#book.apply(event, () => this.#want()));
    if (event.event !== "kept") this.#emit("event", event);
  }

  #changed({ users, conversations }: Changes): void {
    this.#callWatchers(users);
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
    if (!presence || !this.#isStarted || !this.#watchers.has(watcher)) return;
    this.#guarded(() => watcher.call(presence, { stale: this.#isStale }));
  }

  #callReader(reader: Reader): void {
    if (this.#readers.has(reader)) this.#guarded(() => reader.call(this.#book.typists(reader.conversation)));
  }

  #setStatus(status: Status): void {
    const wasStale = this.#isStale;
    // Who has the connection may change while there is none.
    if (status === this.#status || (status === "connecting" && this.#status === "offline")) return;
    this.#status = status;
    // What was stale is so until there is a connection again, also if this page is left meanwhile.
    if (status !== "connecting" && status !== "closed") this.#isStale = status === "offline";
    this.#emit("status", status);
    if (wasStale !== this.#isStale) this.#callWatchers();
  }

  /** Calls back about all, or about those of them who are among these. */
  #callWatchers(users?: Set<string>): void {
    for (const watcher of [...this.#watchers]) {
      for (const user of watcher.users) if (!users || users.has(user)) this.#callWatcher(watcher, user);
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
