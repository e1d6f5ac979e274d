// The implementation of `Rollcall`: holds the program's watchers and calls them back. Everything that needs the service
// goes through the tab's connection or a request.

import { retryDelay } from "./backoff.js";
import { PresenceCache, type Changes } from "./cache.js";
import type { ConnectionMessage } from "./connection.js";
import { asError, RollcallError } from "./error.js";
import { requestSender, type Access, type SendRequest } from "./http.js";
import { canShare, deviceId, isHidden, listenToPage } from "./page.js";
import { queryPresences } from "./polling.js";
import { Tab, type TabState } from "./tabs.js";
import { now, Timer } from "./timer.js";
import { tokenSource } from "./token.js";
import type { Context, Listeners, Options, Presence, Rollcall, Status, StatusChoice, WebSocketClass } from "./types.js";
import { typingSender, type TypingSender } from "./typing.js";

/** Activity is passed to the connection at most this often; the connection decides when to report it. */
const ACTIVE_EVERY_MS = 1_000;

/** A callback of `watch()`. */
interface Watcher {
  users: Set<string>;
  call: (presence: Presence, context: Context) => void;
}

/** A callback of `watchTyping()`. */
interface TypingWatcher {
  conversation: string;
  call: (typists: string[]) => void;
}

export class Client implements Rollcall {
  readonly #options: Options;
  readonly #access: Access;
  readonly #sendRequest: SendRequest;
  readonly #cache: PresenceCache;
  readonly #typingSender: TypingSender;
  readonly #watchers = new Set<Watcher>();
  readonly #typingWatchers = new Set<TypingWatcher>();
  readonly #listeners = { status: new Set(), error: new Set(), event: new Set() } as {
    [Name in keyof Listeners]: Set<Listeners[Name]>;
  };
  #status: Status = "closed";
  #tab: Tab | undefined;
  #isStarted = false;
  #isStale = false;
  #isUpdateQueued = false;
  #failures = 0;
  #activeAt = -Infinity;
  #closing: Promise<void> | undefined;
  #unlisten = () => {};
  readonly #expiryTimer = new Timer();
  readonly #retryTimer = new Timer();

  constructor(options: Options) {
    this.#options = options;
    const url = options.url.replace(/\/+$/, "");
    const fetchFunction: typeof fetch = options.fetch ?? ((url, init) => fetch(url, init));
    this.#access = { url, as: options.as, tokens: tokenSource(options.token), fetch: fetchFunction };
    this.#sendRequest = requestSender(this.#access);
    this.#cache = new PresenceCache(options.typingTtl ?? 5_000);
    this.#typingSender = typingSender(options.typingTtl ?? 5_000, (conversation, typing) =>
      this.#tab?.send({ kind: "typing", conversation, typing }),
    );
    if (options.start !== false) this.start();
  }

  get status(): Status {
    return this.#status;
  }

  start(): void {
    if (this.#isStarted) return;
    this.#isStarted = true;
    this.#unlisten = listenToPage({
      active: () => this.active(),
      visibilityChanged: (hidden) => this.#visibilityChanged(hidden),
      unloaded: () => this.#closeTab(false),
      restored: () => this.#openTab(),
      networkUp: () => this.#tab?.send({ kind: "wake" }),
    });
    void this.#openTab();
  }

  async close(): Promise<void> {
    if (!this.#isStarted) return;
    this.#isStarted = false;
    this.#unlisten();
    this.#typingSender.stopAll();
    await this.#closeTab(true);
  }

  watch(users: Iterable<string>, call: Watcher["call"]): () => void {
    // A string is one user, not a list of characters.
    const watcher = { users: new Set(typeof users === "string" ? [users] : users), call };
    this.#watchers.add(watcher);
    this.#queueUpdate();
    // Call back only after the caller has the returned function.
    queueMicrotask(() => {
      for (const user of watcher.users) this.#callWatcher(watcher, user);
    });
    return () => {
      if (this.#watchers.delete(watcher)) this.#queueUpdate();
    };
  }

  get(user: string): Presence | undefined {
    return this.#cache.get(user);
  }

  presence(users: Iterable<string>): Promise<Presence[]> {
    return queryPresences(this.#sendRequest, [...users]);
  }

  async setStatus({ forSeconds, ...chosen }: StatusChoice): Promise<void> {
    await this.#sendRequest("PUT", "/v1/status", { ...chosen, for_s: forSeconds });
  }

  typing(conversation: string): void {
    this.#typingSender.keystroke(conversation);
    this.active();
  }

  stopTyping(conversation: string): void {
    this.#typingSender.stop(conversation);
  }

  watchTyping(conversation: string, call: TypingWatcher["call"]): () => void {
    const watcher = { conversation, call };
    this.#typingWatchers.add(watcher);
    this.#queueUpdate();
    queueMicrotask(() => this.#callTypingWatcher(watcher));
    return () => {
      if (this.#typingWatchers.delete(watcher)) this.#queueUpdate();
    };
  }

  typists(conversation: string): string[] {
    return this.#cache.typists(conversation);
  }

  active(): void {
    if (now() - this.#activeAt < ACTIVE_EVERY_MS) return;
    this.#activeAt = now();
    this.#tab?.send({ kind: "active" });
  }

  on<Name extends keyof Listeners>(name: Name, listener: Listeners[Name]): () => void {
    this.#listeners[name].add(listener);
    return () => void this.#listeners[name].delete(listener);
  }

  // The tab.

  async #openTab(): Promise<void> {
    if (!this.#isStarted || this.#tab) return;
    const { as, share = true, device, kind, watchOnly, WebSocket } = this.#options;
    this.#setStatus("connecting");
    try {
      // A leave that arrives late would end the new presence.
      await this.#closing;
      await this.#access.tokens.get();
    } catch (thrown) {
      if (!this.#isStarted) return;
      this.#emit("error", asError(thrown));
      return this.#retryTimer.set(retryDelay(this.#failures++), () => this.#openTab());
    }
    if (!this.#isStarted || this.#tab) return;
    const self = as ?? this.#access.tokens.subject();
    const isShared = share && self !== undefined && canShare();
    const options = {
      ...this.#options,
      access: this.#access,
      sendRequest: this.#sendRequest,
      device: device ?? deviceId(isShared),
      kind: kind ?? "web",
      WebSocket: WebSocket ?? (globalThis as { WebSocket?: WebSocketClass }).WebSocket,
    };
    // Tabs that differ in one of these cannot be one device. The 2 is the version of the messages between tabs.
    const key = [this.#access.url, self, !!watchOnly, device, 2];
    const group = isShared ? `rollcall:${JSON.stringify(key)}` : undefined;
    this.#failures = 0;
    this.#cache.self = self;
    this.#tab = new Tab(group, options, this.#cache, (message) => this.#received(message), this.#tabState());
  }

  async #closeTab(leave: boolean): Promise<void> {
    this.#retryTimer.clear();
    this.#expiryTimer.clear();
    const tab = this.#tab;
    this.#tab = undefined;
    // Events until the tab is back are missed, so it cannot resume and needs a full snapshot.
    this.#cache.id = undefined;
    this.#closing = tab?.close(leave) ?? this.#closing;
    this.#setStatus("closed");
    await this.#closing;
  }

  #tabState(): TabState {
    const users = [...new Set([...this.#watchers].flatMap((watcher) => [...watcher.users]))];
    const conversations = [...new Set([...this.#typingWatchers].map(({ conversation }) => conversation))];
    return { users, conversations, hidden: isHidden() };
  }

  /** Sends the tab's state once the current task ends, so that a watch that ends in the same task causes no traffic. */
  #queueUpdate(): void {
    if (this.#isUpdateQueued) return;
    this.#isUpdateQueued = true;
    queueMicrotask(() => {
      this.#isUpdateQueued = false;
      this.#tab?.send({ kind: "tab", tab: this.#tabState() });
    });
  }

  #visibilityChanged(hidden: boolean): void {
    this.#queueUpdate();
    if (hidden) return;
    this.#activeAt = -Infinity;
    this.active();
    this.#tab?.send({ kind: "wake" });
  }

  // Callbacks.

  #received(message: ConnectionMessage): void {
    if (message.kind === "status") return this.#setStatus(message.status);
    if (message.kind === "error") return this.#emit("error", new RollcallError(message.problem));
    if (message.kind !== "event") return;
    const { event } = message;
    this.#callBack(this.#cache.apply(event, () => this.#tabState()));
    if (event.event !== "subscription") this.#emit("event", event);
  }

  #callBack({ users, conversations }: Changes): void {
    this.#callWatchers(users);
    for (const watcher of [...this.#typingWatchers]) {
      if (conversations.has(watcher.conversation)) this.#callTypingWatcher(watcher);
    }
    this.#expireTyping();
  }

  #expireTyping(): void {
    const { changes, next } = this.#cache.expire();
    if (next < Infinity) this.#expiryTimer.set(Math.ceil(next), () => this.#expireTyping());
    if (changes.conversations.size > 0) this.#callBack(changes);
  }

  #callWatcher(watcher: Watcher, user: string): void {
    const presence = this.#cache.get(user);
    if (!presence || !this.#isStarted || !this.#watchers.has(watcher)) return;
    this.#guard(() => watcher.call(presence, { stale: this.#isStale }));
  }

  #callTypingWatcher(watcher: TypingWatcher): void {
    if (this.#typingWatchers.has(watcher)) this.#guard(() => watcher.call(this.#cache.typists(watcher.conversation)));
  }

  #setStatus(status: Status): void {
    const wasStale = this.#isStale;
    // A change of leader while the connection is lost does not make it fresh.
    if (status === this.#status || (status === "connecting" && this.#status === "offline")) return;
    this.#status = status;
    // Stale data stays stale until there is a connection, even if the page is left meanwhile.
    if (status !== "connecting" && status !== "closed") this.#isStale = status === "offline";
    this.#emit("status", status);
    if (wasStale !== this.#isStale) this.#callWatchers();
  }

  /** Calls all watchers, or those of these users. */
  #callWatchers(users?: Set<string>): void {
    for (const watcher of [...this.#watchers]) {
      for (const user of watcher.users) if (!users || users.has(user)) this.#callWatcher(watcher, user);
    }
  }

  #emit<Name extends keyof Listeners>(name: Name, value: Parameters<Listeners[Name]>[0]): void {
    for (const listener of [...this.#listeners[name]]) {
      this.#guard(() => (listener as (value: unknown) => void)(value), name === "error");
    }
  }

  /** Catches what a callback throws, so that the others still run, and reports it as an error. */
  #guard(call: () => void, isError = false): void {
    try {
      call();
    } catch (thrown) {
      if (!isError) this.#emit("error", asError(thrown, "A callback failed"));
    }
  }
}
