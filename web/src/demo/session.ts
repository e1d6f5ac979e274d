// The demo session of one window: a client of `@rollcall/client`, the users it watches, and the timeline.
//
// It holds no presence rules: the client manages the connection and the host decides. The session keeps what the view
// shows, and logs every change to the timeline with its latency.

import { connect, type Presence, type Rollcall, type StatusChoice } from "@rollcall/client";

import { mayType, type Access } from "../api/credentials";
import { request, ApiError, errorText } from "../api/request";
import type { Stats } from "../api/types";
import { NO_OFFSET, best, latency, measured, remember, type Offset } from "../stats/clock";
import { changed, shownState } from "./presence-text";
import { MAX_ENTRIES, type Entry } from "./timeline";

/** The conversation that all users of the demo share. */
export const CONVERSATION = "lobby";

/** Longer than a restart of the host, short enough that the page soon shows that it is disconnected. */
const STALE_AFTER_MS = 3_000;
const CLOCK_EVERY_MS = 30_000;
/** Measurements at the start: of several, the one with the shortest round trip is the most precise. */
const FIRST_CLOCK_SAMPLES = 5;

/** The client's status; `left` after the user left the demo. */
export type ConnectionStatus = "connecting" | "online" | "offline" | "paused" | "closed" | "left";

/** What the view shows. */
export interface DemoState {
  readonly status: ConnectionStatus;
  readonly presences: ReadonlyMap<string, Presence>;
  /** Users whose presence may be out of date, because the connection is lost. */
  readonly stale: ReadonlySet<string>;
  readonly typists: readonly string[];
  readonly entries: readonly Entry[];
  readonly offset: Offset | null;
  readonly problem: string | null;
}

const EMPTY: DemoState = {
  status: "connecting",
  presences: new Map(),
  stale: new Set(),
  typists: [],
  entries: [],
  offset: null,
  problem: null,
};

/** A store for `useSyncExternalStore`. */
export class DemoSession {
  #state = EMPTY;
  #listeners = new Set<() => void>();
  #rollcall: Rollcall;
  #watched = new Map<string, () => void>();
  /** The version of each user's newest event. */
  #eventVersions = new Map<string, number | null>();
  #offsets: Offset[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Counts starts and stops, so that work begun before the last one is dropped. */
  #generation = 0;
  #next = 1;

  constructor(
    readonly access: Access,
    readonly name: string,
  ) {
    const who = access.kind === "token" ? { token: access.token } : { as: name };
    this.#rollcall = connect({ url: location.origin, start: false, staleAfter: STALE_AFTER_MS, ...who });
    this.#rollcall.on("status", (status) => this.#statusChanged(status));
    this.#rollcall.on("error", (error) => this.setProblem(error.detail || error.title));
    this.#rollcall.on("event", (event) => {
      if (event.event === "presence") this.#eventVersions.set(event.user, event.version);
    });
    if (mayType(access, CONVERSATION)) {
      this.#rollcall.watchTyping(CONVERSATION, (typists) => this.#typingChanged(typists));
    }
  }

  /** The current state; the same object until something changes. */
  readonly current = (): DemoState => this.#state;

  readonly subscribe = (changed: () => void): (() => void) => {
    this.#listeners.add(changed);
    return () => this.#listeners.delete(changed);
  };

  /** Goes online and watches; also after {@link stop}. */
  readonly start = (): void => {
    this.#rollcall.start();
    this.#stopClockSync();
    void this.#syncClock(FIRST_CLOCK_SAMPLES, this.#generation);
  };

  /** Goes offline at once. The view keeps what it shows. */
  readonly stop = (): void => {
    this.#stopClockSync();
    void this.#rollcall.close();
    this.#update({ status: "left", typists: [] });
  };

  /** Replaces the watched users. */
  readonly watch = (users: readonly string[]): void => {
    for (const [user, stop] of this.#watched) {
      if (users.includes(user)) continue;
      stop();
      this.#watched.delete(user);
      this.#forget(user);
    }
    for (const user of users.filter((one) => !this.#watched.has(one))) {
      const stop = this.#rollcall.watch([user], (presence, { stale }) => this.#received(presence, stale));
      this.#watched.set(user, stop);
    }
  };

  /** Sets the user's status. */
  readonly setStatus = async (status: StatusChoice): Promise<void> => {
    try {
      await this.#rollcall.setStatus(status);
      this.#update({ problem: null });
    } catch (failure) {
      this.setProblem(errorText(failure));
    }
  };

  /** Call it on every keystroke. */
  readonly typing = (): void => this.#rollcall.typing(CONVERSATION);

  /** Call it when the field is emptied or loses focus. */
  readonly stopTyping = (): void => this.#rollcall.stopTyping(CONVERSATION);

  /** Shows an error; null hides it. */
  readonly setProblem = (problem: string | null): void => this.#update({ problem });

  #statusChanged(status: ConnectionStatus): void {
    if (this.#state.status === "left" && status === "closed") return;
    if (status === "online" && this.#state.status !== "online") {
      this.#log({ user: null, icon: null, text: "Connected.", latency_ms: null });
    }
    if (status === "offline") this.#log({ user: null, icon: null, text: "Connection lost.", latency_ms: null });
    this.#update({ status, ...(status === "online" && { problem: null }) });
  }

  #received(presence: Presence, stale: boolean): void {
    const { user } = presence;
    const before = this.#state.presences.get(user);
    const text = changed(before, presence);
    const arrived_at = Date.now();
    // The client reports the event itself in the same task, before or after this callback.
    if (before && text) queueMicrotask(() => this.#logChange(before, presence, text, arrived_at));
    const marked = new Set(this.#state.stale);
    if (stale) marked.add(user);
    else marked.delete(user);
    this.#update({ presences: new Map(this.#state.presences).set(user, presence), stale: marked });
  }

  /** Logs a change. Changes in a snapshot are of unknown age, and a user who becomes visible did not change: neither has
   * a latency. */
  #logChange(before: Presence, presence: Presence, text: string, arrived_at: number): void {
    const { user, version } = presence;
    const live = this.#eventVersions.get(user) === version && before.state !== null;
    this.#eventVersions.delete(user);
    const latency_ms = live ? latency(version, arrived_at, best(this.#offsets) ?? NO_OFFSET) : null;
    this.#log({ user, icon: shownState(presence), text, latency_ms });
  }

  #typingChanged(typists: readonly string[]): void {
    const before = this.#state.typists;
    const entry = (user: string, text: string) => this.#log({ user, icon: "typing", text, latency_ms: null });
    typists.filter((user) => !before.includes(user)).forEach((user) => entry(user, "is typing"));
    before.filter((user) => !typists.includes(user)).forEach((user) => entry(user, "stopped typing"));
    this.#update({ typists });
  }

  #forget(user: string): void {
    const presences = new Map(this.#state.presences);
    presences.delete(user);
    this.#update({ presences });
  }

  #log(entry: Omit<Entry, "id" | "at">): void {
    const written = { ...entry, id: this.#next++, at: Date.now() };
    this.#update({ entries: [written, ...this.#state.entries].slice(0, MAX_ENTRIES) });
  }

  /** Measures the clock offset by `/v1/stats`, which needs the scope `admin`. Without it the offset stays zero. */
  async #syncClock(times: number, generation: number): Promise<void> {
    for (let asked = 0; asked < times; asked++) {
      const asked_at = Date.now();
      try {
        const { host } = await request<Stats>(this.access, "GET", "/v1/stats");
        if (generation !== this.#generation) return;
        this.#offsets = remember(this.#offsets, measured(asked_at, Date.now(), host.now));
        this.#update({ offset: best(this.#offsets) });
      } catch (failure) {
        if (failure instanceof ApiError || generation !== this.#generation) return;
      }
    }
    this.#timer = setTimeout(() => void this.#syncClock(1, generation), CLOCK_EVERY_MS);
  }

  #stopClockSync(): void {
    this.#generation++;
    clearTimeout(this.#timer);
  }

  #update(change: Partial<DemoState>): void {
    this.#state = { ...this.#state, ...change };
    for (const changed of this.#listeners) changed();
  }
}
