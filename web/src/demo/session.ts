// The room of one window: a connection by `@rollcall/client`, whoever is watched on it, and what was heard.
//
// It holds no rule of presence: the client keeps the connection, the host decides. Here what it says is kept for the
// screen, and every change is written to the timeline with its latency.

import { connect, type Presence, type Rollcall, type StatusChoice } from "@rollcall/client";

import { takesPart, type Access } from "../api/credentials";
import { ask, Refusal, words } from "../api/request";
import type { Stats } from "../api/types";
import { AGREED, best, latency, measured, remember, type Offset } from "../stats/clock";
import { changed, mark } from "./presence-text";
import { MOST_ENTRIES, type Entry } from "./timeline";

/** The conversation of the room: everybody who tries it takes part in it. */
export const CONVERSATION = "lobby";

/** Long enough for a host that is restarted, short enough that nobody wonders why nothing moves. */
const STALE_AFTER_MS = 3_000;
const CLOCK_EVERY_MS = 30_000;
/** So many questions at the start, because the quickest of several tells the clocks apart best. */
const CLOCK_AT_FIRST = 5;

/** How the connection stands; `left` is what a person did here. */
export type Link = "connecting" | "online" | "offline" | "paused" | "closed" | "left";

/** What the room shows. */
export interface Scene {
  readonly link: Link;
  readonly presences: ReadonlyMap<string, Presence>;
  /** Of whom what is shown may be out of date, because the connection is lost. */
  readonly stale: ReadonlySet<string>;
  readonly typists: readonly string[];
  readonly entries: readonly Entry[];
  readonly offset: Offset | null;
  readonly problem: string | null;
}

const EMPTY: Scene = {
  link: "connecting",
  presences: new Map(),
  stale: new Set(),
  typists: [],
  entries: [],
  offset: null,
  problem: null,
};

/** A room that React can follow. It is entered by the first who follows, and left when it is closed. */
export class Room {
  #scene = EMPTY;
  #listeners = new Set<() => void>();
  #rollcall: Rollcall;
  #watched = new Map<string, () => void>();
  /** The version of everybody's newest event. */
  #arrived = new Map<string, number | null>();
  #offsets: Offset[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** How often somebody entered or left: what began before the last time is not gone on with. */
  #turn = 0;
  #next = 1;

  constructor(
    readonly access: Access,
    readonly name: string,
  ) {
    const who = access.kind === "token" ? { token: access.token } : { as: name };
    this.#rollcall = connect({ url: location.origin, start: false, staleAfter: STALE_AFTER_MS, ...who });
    this.#rollcall.on("status", (link) => this.#linked(link));
    this.#rollcall.on("error", (error) => this.complain(error.detail || error.title));
    this.#rollcall.on("event", (event) => {
      if (event.event === "presence") this.#arrived.set(event.user, event.version);
    });
    if (takesPart(access, CONVERSATION)) {
      this.#rollcall.watchTyping(CONVERSATION, (typists) => this.#typing(typists));
    }
  }

  /** What there is to show; the same object until something changes. */
  readonly current = (): Scene => this.#scene;

  /** Tells of every change. */
  readonly follow = (changed: () => void): (() => void) => {
    this.#listeners.add(changed);
    return () => this.#listeners.delete(changed);
  };

  /** Is here, and watches; also after {@link leave}. */
  readonly enter = (): void => {
    this.#rollcall.start();
    this.#stopClocks();
    void this.#compareClocks(CLOCK_AT_FIRST, this.#turn);
  };

  /** Is gone at once. What was shown stays until somebody enters again. */
  readonly leave = (): void => {
    this.#stopClocks();
    void this.#rollcall.close();
    this.#show({ link: "left", typists: [] });
  };

  /** Watches exactly these. */
  readonly watch = (people: readonly string[]): void => {
    for (const [user, stop] of this.#watched) {
      if (people.includes(user)) continue;
      stop();
      this.#watched.delete(user);
      this.#forget(user);
    }
    for (const user of people.filter((one) => !this.#watched.has(one))) {
      const stop = this.#rollcall.watch([user], (presence, { stale }) => this.#heard(presence, stale));
      this.#watched.set(user, stop);
    }
  };

  /** Chooses how to be seen. */
  readonly choose = async (status: StatusChoice): Promise<void> => {
    try {
      await this.#rollcall.setStatus(status);
      this.#show({ problem: null });
    } catch (failure) {
      this.complain(words(failure));
    }
  };

  /** On every keystroke. */
  readonly typing = (): void => this.#rollcall.typing(CONVERSATION);

  /** The field is empty, or left. */
  readonly stopTyping = (): void => this.#rollcall.stopTyping(CONVERSATION);

  /** Shows what went wrong; null takes it back. */
  readonly complain = (problem: string | null): void => this.#show({ problem });

  #linked(link: Link): void {
    if (this.#scene.link === "left" && link === "closed") return;
    if (link === "online" && this.#scene.link !== "online") {
      this.#write({ user: null, mark: null, text: "The connection is open.", latency_ms: null });
    }
    if (link === "offline") this.#write({ user: null, mark: null, text: "The connection is lost.", latency_ms: null });
    this.#show({ link, ...(link === "online" && { problem: null }) });
  }

  #heard(presence: Presence, stale: boolean): void {
    const { user } = presence;
    const before = this.#scene.presences.get(user);
    const text = changed(before, presence);
    const arrived_at = Date.now();
    // The event that brought it is told of in the same turn, before or after.
    if (before && text) queueMicrotask(() => this.#note(before, presence, text, arrived_at));
    const marked = new Set(this.#scene.stale);
    if (stale) marked.add(user);
    else marked.delete(user);
    this.#show({ presences: new Map(this.#scene.presences).set(user, presence), stale: marked });
  }

  /**
   * Writes down a change. What came in a snapshot happened at some time before, and who is shown again did nothing at
   * all: neither has a latency.
   */
  #note(before: Presence, presence: Presence, text: string, arrived_at: number): void {
    const { user, version } = presence;
    const live = this.#arrived.get(user) === version && before.state !== null;
    this.#arrived.delete(user);
    const latency_ms = live ? latency(version, arrived_at, best(this.#offsets) ?? AGREED) : null;
    this.#write({ user, mark: mark(presence), text, latency_ms });
  }

  #typing(typists: readonly string[]): void {
    const before = this.#scene.typists;
    const entry = (user: string, text: string) => this.#write({ user, mark: "typing", text, latency_ms: null });
    typists.filter((user) => !before.includes(user)).forEach((user) => entry(user, "is typing"));
    before.filter((user) => !typists.includes(user)).forEach((user) => entry(user, "stopped typing"));
    this.#show({ typists });
  }

  #forget(user: string): void {
    const presences = new Map(this.#scene.presences);
    presences.delete(user);
    this.#show({ presences });
  }

  #write(entry: Omit<Entry, "id" | "at">): void {
    const written = { ...entry, id: this.#next++, at: Date.now() };
    this.#show({ entries: [written, ...this.#scene.entries].slice(0, MOST_ENTRIES) });
  }

  /** Asks the host for its time, which takes the scope `admin`; without it, the clocks are taken to agree. */
  async #compareClocks(times: number, turn: number): Promise<void> {
    for (let asked = 0; asked < times; asked++) {
      const asked_at = Date.now();
      try {
        const { host } = await ask<Stats>(this.access, "GET", "/v1/stats");
        if (turn !== this.#turn) return;
        this.#offsets = remember(this.#offsets, measured(asked_at, Date.now(), host.now));
        this.#show({ offset: best(this.#offsets) });
      } catch (failure) {
        if (failure instanceof Refusal || turn !== this.#turn) return;
      }
    }
    this.#timer = setTimeout(() => void this.#compareClocks(1, turn), CLOCK_EVERY_MS);
  }

  #stopClocks(): void {
    this.#turn++;
    clearTimeout(this.#timer);
  }

  #show(change: Partial<Scene>): void {
    this.#scene = { ...this.#scene, ...change };
    for (const changed of this.#listeners) changed();
  }
}
