// The tabs of a browser that connect as the same user share one connection: the leader holds it, and the other tabs
// send and receive through the leader.
//
// The leader is the tab that holds a Web Lock. When that tab is closed, crashes or is left, the browser grants the lock
// to the next tab, whose cache is as current as the old leader's. Each tab also holds a lock of its own, from which the
// leader learns that the tab is gone, for whatever reason. Where locks are missing or denied, each tab is its own
// leader.

import type { PresenceCache, Subscription } from "./cache.js";
import { Connection, type ConnectionMessage, type ConnectionOptions } from "./connection.js";
import { randomId } from "./page.js";
import { Timer } from "./timer.js";

/** What one tab watches, and whether it is hidden. */
export interface TabState extends Subscription {
  hidden: boolean;
}

/** Messages between tabs. */
export type TabMessage =
  | { kind: "leader" }
  | { kind: "tab"; tab: TabState }
  | { kind: "active" }
  | { kind: "wake" }
  | { kind: "typing"; conversation: string; typing: boolean }
  | { kind: "close" }
  | ConnectionMessage;

/** One tab of a group, or a tab alone. */
export class Tab {
  readonly #options: ConnectionOptions;
  readonly #cache: PresenceCache;
  readonly #receive: (message: ConnectionMessage) => void;
  readonly #id = randomId();
  readonly #tabs = new Map<string, TabState>();
  readonly #abort = new AbortController();
  readonly #group: string | undefined;
  #state: TabState;
  #channel: BroadcastChannel | undefined;
  #leader: string | undefined;
  #connection: Connection | undefined;
  #status: ConnectionMessage = { kind: "status", status: "connecting" };
  readonly #pauseTimer = new Timer();
  #areHidden = false;
  #release = () => {};

  /** Joins this group of tabs; without a group, the tab is alone. */
  constructor(
    group: string | undefined,
    options: ConnectionOptions,
    cache: PresenceCache,
    receive: (message: ConnectionMessage) => void,
    state: TabState,
  ) {
    this.#group = group;
    this.#options = options;
    this.#cache = cache;
    this.#receive = receive;
    this.#state = state;
    if (group === undefined) this.#lead();
    else this.#join(group);
  }

  /** Sends to the leader, which may be this tab. The leader sends to all tabs. */
  send(message: TabMessage): void {
    // Callbacks that are still pending must not send after the close.
    if (this.#abort.signal.aborted) return;
    if (message.kind === "tab") this.#state = message.tab;
    if (message.kind === "status") this.#status = message;
    this.#channel?.postMessage({ from: this.#id, message });
    if (this.#connection) this.#handle(this.#id, message);
  }

  /** Closes the tab. `leave` also ends the device's presence at once, unless another tab remains. */
  async close(leave: boolean): Promise<void> {
    this.#pauseTimer.clear();
    if (!this.#connection) this.send({ kind: "close" });
    this.#tabs.delete(this.#id);
    const closed = this.#connection?.close(leave && this.#tabs.size === 0);
    this.#abort.abort();
    this.#channel?.close();
    await closed;
    // Only now may the next leader connect.
    this.#release();
  }

  #join(group: string): void {
    const { locks } = navigator;
    const held = new Promise<void>((resolve) => (this.#release = resolve));
    const { signal } = this.#abort;
    this.#channel = new BroadcastChannel(group);
    this.#channel.onmessage = (event: MessageEvent<{ from: string; message: TabMessage }>) =>
      this.#handle(event.data.from, event.data.message);
    const denied = () => {
      // Either the tab was closed first, or the browser denies locks to this page.
      if (signal.aborted || this.#connection) return;
      this.#channel?.close();
      this.#channel = undefined;
      this.#lead();
    };
    // The tab's own lock comes first, so that a leader that knows the tab finds its lock held.
    locks
      .request(`${group}:${this.#id}`, { signal }, () => {
        this.send({ kind: "tab", tab: this.#state });
        // Opening a tab is activity, even if another tab holds the connection.
        if (!this.#state.hidden) this.send({ kind: "active" });
        locks
          .request(group, { signal }, () => {
            if (!signal.aborted) this.#lead();
            return held;
          })
          .catch(denied);
        return held;
      })
      .catch(denied);
  }

  #handle(from: string, message: TabMessage): void {
    if (this.#connection) this.#serve(from, message);
    const { to } = message as { to?: string };
    if (message.kind === "leader" || to === this.#id) this.#leader = from;
    if (message.kind === "leader" && !this.#connection) this.send({ kind: "tab", tab: this.#state });
    // Ignore late messages of a former leader, and messages addressed to another tab.
    if (from !== this.#leader || (to ?? this.#id) !== this.#id) return;
    this.#receive(message as ConnectionMessage);
  }

  // As the leader.

  #lead(): void {
    // Taking over from another tab is not activity of the user.
    const isFirst = this.#leader === undefined && !this.#state.hidden;
    this.#leader = this.#id;
    this.#connection = new Connection(this.#options, this.#cache, (message) => this.send(message), isFirst);
    this.send({ kind: "leader" });
    this.send({ kind: "tab", tab: this.#state });
    this.send({ kind: "status", status: "connecting" });
  }

  #serve(from: string, message: TabMessage): void {
    if (message.kind === "tab") this.#setTab(from, message.tab);
    else if (message.kind === "active") this.#connection?.active();
    else if (message.kind === "wake") this.#connection?.wake();
    else if (message.kind === "typing") this.#connection?.type(message.conversation, message.typing);
    else if (message.kind === "close") this.#removeTab(from);
  }

  #setTab(from: string, tab: TabState): void {
    if (from !== this.#id && !this.#tabs.has(from)) {
      for (const event of this.#cache.toSnapshots()) this.send({ kind: "event", event, to: from });
      this.send({ ...this.#status, to: from } as ConnectionMessage);
      this.#awaitEnd(from);
    }
    this.#tabs.set(from, tab);
    this.#update();
  }

  /** Waits for a tab's own lock, which the tab holds until it is gone. */
  #awaitEnd(tab: string): void {
    const { signal } = this.#abort;
    navigator.locks.request(`${this.#group}:${tab}`, { signal }, () => this.#removeTab(tab)).catch(() => {});
  }

  #removeTab(tab: string): void {
    if (this.#tabs.delete(tab)) this.#update();
  }

  /** Watches what any tab watches, and pauses while all are hidden. */
  #update(): void {
    const tabs = [...this.#tabs.values()];
    const union = (name: "users" | "conversations") => [...new Set(tabs.flatMap((tab) => tab[name]))];
    this.#connection?.subscribe(union("users"), union("conversations"));
    const areHidden = tabs.every(({ hidden }) => hidden);
    if (areHidden === this.#areHidden) return;
    this.#areHidden = areHidden;
    this.#pauseTimer.set(areHidden ? (this.#options.pauseAfter ?? 300_000) : 0, () =>
      this.#connection?.setPaused(areHidden),
    );
  }
}
