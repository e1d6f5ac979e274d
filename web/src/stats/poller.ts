// Polls the host's stats once a second while the page shows them, and keeps the last five minutes.
//
// A host that does not respond is polled less often, and its last stats are kept. A hidden page does not poll.

import { request, ApiError } from "../api/request";
import type { Access } from "../api/credentials";
import type { Stats } from "../api/types";
import { NONE, record, type History } from "./history";

const INTERVAL_MS = 1_000;
/** Interval while the host does not respond. */
const RETRY_MS = 2_000;

/** The stats known so far. */
export interface StatsState {
  readonly history: History;
  /** Since when the host has not responded; null while it does. */
  readonly silent_since: number | null;
  /** The error, if the host rejected the request. */
  readonly error: ApiError | null;
}

/** A store for `useSyncExternalStore`. */
export class StatsPoller {
  #state: StatsState = { history: NONE, silent_since: null, error: null };
  #listeners = new Set<() => void>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isPending = false;

  constructor(readonly access: Access) {}

  /** The current state; the same object until something changes. */
  readonly current = (): StatsState => this.#state;

  /** Polls while there is a subscriber. */
  readonly subscribe = (changed: () => void): (() => void) => {
    this.#listeners.add(changed);
    if (this.#listeners.size === 1) {
      document.addEventListener("visibilitychange", this.#poll);
      this.#poll();
    }
    return () => {
      this.#listeners.delete(changed);
      if (this.#listeners.size > 0) return;
      document.removeEventListener("visibilitychange", this.#poll);
      clearTimeout(this.#timer);
    };
  };

  readonly #poll = (): void => {
    clearTimeout(this.#timer);
    if (document.hidden || this.#isPending || this.#listeners.size === 0) return;
    this.#isPending = true;
    const began = performance.now();
    void this.#request().then((wait_ms) => {
      this.#isPending = false;
      this.#timer = setTimeout(this.#poll, Math.max(0, wait_ms - (performance.now() - began)));
    });
  };

  /** Sends one request. Returns the time from its start to the next one. */
  async #request(): Promise<number> {
    try {
      const stats = await request<Stats>(this.access, "GET", "/v1/stats");
      this.#update({ history: record(this.#state.history, stats), silent_since: null, error: null });
      return INTERVAL_MS;
    } catch (failure) {
      const error = failure instanceof ApiError ? failure : null;
      const silent_since = error ? null : (this.#state.silent_since ?? Date.now());
      this.#update({ ...this.#state, silent_since, error });
      return RETRY_MS;
    }
  }

  #update(state: StatsState): void {
    this.#state = state;
    for (const changed of this.#listeners) changed();
  }
}
