// The tabs of a browser that connect as the same person: one of them, the leader, has the line, and the others speak
// and hear through it.
//
// Who leads is whoever holds a lock of the browser's; when that tab is closed, killed or left, the browser gives the
// lock to the next one, whose book is as up to date as that of the last. Each tab also holds a lock of its own, by
// which the leader learns that it is gone, whatever became of it. Where a browser has no locks, or denies them, a tab
// leads itself.

import type { Book } from "./cache.js";
import { Line, type Setup, type Told } from "./connection.js";
import { randomName } from "./page.js";
import { Timer } from "./timer.js";

/** What one tab wants. */
export interface Want {
  users: string[];
  conversations: string[];
  hidden: boolean;
}

/** What tabs say to each other. */
export type Said =
  | { say: "lead" }
  | { say: "want"; want: Want }
  | { say: "active" }
  | { say: "nudge" }
  | { say: "type"; conversation: string; typing: boolean }
  | { say: "bye" }
  | Told;

/** One tab among those of its browser, or alone. */
export class Tab {
  readonly #setup: Setup;
  readonly #book: Book;
  readonly #told: (told: Told) => void;
  readonly #name = randomName();
  readonly #wants = new Map<string, Want>();
  readonly #ending = new AbortController();
  readonly #group: string | undefined;
  #want: Want;
  #channel: BroadcastChannel | undefined;
  #leader: string | undefined;
  #line: Line | undefined;
  #status: Told = { say: "status", status: "connecting" };
  readonly #hiding = new Timer();
  #areHidden = false;
  #release = () => {};

  /** Joins the tabs of this group; none: alone. */
  constructor(group: string | undefined, setup: Setup, book: Book, told: (told: Told) => void, want: Want) {
    this.#group = group;
    this.#setup = setup;
    this.#book = book;
    this.#told = told;
    this.#want = want;
    if (group === undefined) this.#lead();
    else this.#join(group);
  }

  /** Says it to the leader, which may be this tab; or as the leader, to everybody. */
  tell(said: Said): void {
    // Nothing is told after the end, whatever is still on its way.
    if (this.#ending.signal.aborted) return;
    if (said.say === "want") this.#want = said.want;
    if (said.say === "status") this.#status = said;
    this.#channel?.postMessage({ from: this.#name, said });
    if (this.#line) this.#hear(this.#name, said);
  }

  /** Goes; `leave`: the device is gone at once, unless another tab goes on. */
  async close(leave: boolean): Promise<void> {
    this.#hiding.clear();
    if (!this.#line) this.tell({ say: "bye" });
    this.#wants.delete(this.#name);
    const closed = this.#line?.close(leave && this.#wants.size === 0);
    this.#ending.abort();
    this.#channel?.close();
    await closed;
    // The next leader connects when this one has said goodbye.
    this.#release();
  }

  #join(group: string): void {
    const { locks } = navigator;
    const held = new Promise<void>((resolve) => (this.#release = resolve));
    const { signal } = this.#ending;
    this.#channel = new BroadcastChannel(group);
    this.#channel.onmessage = (event: MessageEvent<{ from: string; said: Said }>) =>
      this.#hear(event.data.from, event.data.said);
    const denied = () => {
      // Closed before its turn came, or a browser that has locks but not for such a page.
      if (signal.aborted || this.#line) return;
      this.#channel?.close();
      this.#channel = undefined;
      this.#lead();
    };
    // First its own, so that whoever hears of this tab finds that it lives.
    locks
      .request(`${group}:${this.#name}`, { signal }, () => {
        this.tell({ say: "want", want: this.#want });
        // Whoever opens a tab does something, also where another has the connection.
        if (!this.#want.hidden) this.tell({ say: "active" });
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

  #hear(from: string, said: Said): void {
    if (this.#line) this.#serve(from, said);
    const { to } = said as { to?: string };
    if (said.say === "lead" || to === this.#name) this.#leader = from;
    if (said.say === "lead" && !this.#line) this.tell({ say: "want", want: this.#want });
    // What a former leader still says came too late, and what another tab is told is known here.
    if (from !== this.#leader || (to ?? this.#name) !== this.#name) return;
    this.#told(said as Told);
  }

  // As the leader.

  #lead(): void {
    // Whoever takes over from another did not come just now.
    const isFirst = this.#leader === undefined && !this.#want.hidden;
    this.#leader = this.#name;
    this.#line = new Line(this.#setup, this.#book, (told) => this.tell(told), isFirst);
    this.tell({ say: "lead" });
    this.tell({ say: "want", want: this.#want });
    this.tell({ say: "status", status: "connecting" });
  }

  #serve(from: string, said: Said): void {
    if (said.say === "want") this.#takeWant(from, said.want);
    else if (said.say === "active") this.#line?.active();
    else if (said.say === "nudge") this.#line?.nudge();
    else if (said.say === "type") this.#line?.type(said.conversation, said.typing);
    else if (said.say === "bye") this.#forget(from);
  }

  #takeWant(from: string, want: Want): void {
    if (from !== this.#name && !this.#wants.has(from)) {
      for (const event of this.#book.copy()) this.tell({ say: "news", event, to: from });
      this.tell({ ...this.#status, to: from } as Told);
      this.#outlive(from);
    }
    this.#wants.set(from, want);
    this.#plan();
  }

  /** Waits for a tab's own lock, which it holds for as long as it lives. */
  #outlive(tab: string): void {
    const { signal } = this.#ending;
    navigator.locks.request(`${this.#group}:${tab}`, { signal }, () => this.#forget(tab)).catch(() => {});
  }

  #forget(tab: string): void {
    if (this.#wants.delete(tab)) this.#plan();
  }

  #plan(): void {
    const wants = [...this.#wants.values()];
    const union = (name: "users" | "conversations") => [...new Set(wants.flatMap((want) => want[name]))];
    this.#line?.want(union("users"), union("conversations"));
    const areHidden = wants.every(({ hidden }) => hidden);
    if (areHidden === this.#areHidden) return;
    this.#areHidden = areHidden;
    this.#hiding.set(areHidden ? (this.#setup.pauseAfter ?? 300_000) : 0, () => this.#line?.pause(areHidden));
  }
}
