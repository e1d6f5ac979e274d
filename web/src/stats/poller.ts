// Asks the host for its figures once a second while somebody looks, and keeps the last five minutes.
//
// It goes on by itself: a host that does not answer is asked again, less often, and what it said before stays. A page
// that is hidden does not ask.

import { ask, Refusal } from "../api/request";
import type { Access } from "../api/credentials";
import type { Stats } from "../api/types";
import { NONE, record, type History } from "./history";

const EVERY_MS = 1_000;
/** How often a host that is gone is asked. */
const RETRY_MS = 2_000;

/** What is known about the host's figures. */
export interface Figures {
  readonly history: History;
  /** Since when the host has not answered; null while it does. */
  readonly gone_since: number | null;
  /** Why it will not say, if it refused. */
  readonly refusal: Refusal | null;
}

/** A source of figures that React can follow. */
export class FigureSource {
  #figures: Figures = { history: NONE, gone_since: null, refusal: null };
  #listeners = new Set<() => void>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #asking = false;

  constructor(readonly access: Access) {}

  /** What is known; the same object until something changes. */
  readonly current = (): Figures => this.#figures;

  /** Asks for as long as anybody listens. */
  readonly follow = (changed: () => void): (() => void) => {
    this.#listeners.add(changed);
    if (this.#listeners.size === 1) {
      document.addEventListener("visibilitychange", this.#turn);
      this.#turn();
    }
    return () => {
      this.#listeners.delete(changed);
      if (this.#listeners.size > 0) return;
      document.removeEventListener("visibilitychange", this.#turn);
      clearTimeout(this.#timer);
    };
  };

  readonly #turn = (): void => {
    clearTimeout(this.#timer);
    if (document.hidden || this.#asking || this.#listeners.size === 0) return;
    this.#asking = true;
    const began = performance.now();
    void this.#ask().then((wait_ms) => {
      this.#asking = false;
      this.#timer = setTimeout(this.#turn, Math.max(0, wait_ms - (performance.now() - began)));
    });
  };

  /** One question; how long to wait from its beginning to the next. */
  async #ask(): Promise<number> {
    try {
      const stats = await ask<Stats>(this.access, "GET", "/v1/stats");
      this.#tell({ history: record(this.#figures.history, stats), gone_since: null, refusal: null });
      return EVERY_MS;
    } catch (failure) {
      const refusal = failure instanceof Refusal ? failure : null;
      const gone_since = refusal ? null : (this.#figures.gone_since ?? Date.now());
      this.#tell({ ...this.#figures, gone_since, refusal });
      return RETRY_MS;
    }
  }

  #tell(figures: Figures): void {
    this.#figures = figures;
    for (const changed of this.#listeners) changed();
  }
}
