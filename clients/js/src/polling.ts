// Those whom one connection may not watch are asked about: at once when they are new, then every now and then.

import { jittered } from "./backoff.js";
import { asError, type RollcallError } from "./error.js";
import type { Ask } from "./http.js";
import { Timer } from "./timer.js";
import type { Presence } from "./types.js";

/** The most ids in one query. */
const QUERY_IDS = 500;

/** Whoever was asked about within this is not asked about again only because the page is shown. */
const AGAIN_MS = 5_000;

/** What an answer holds of each: a presence, or why there is none. */
type Answer = { presences: (Presence | { status: number })[] };

/** Asks about any number, in the order asked. */
export async function askAll(ask: Ask, users: string[]): Promise<Presence[]> {
  const found: Presence[] = [];
  for (let at = 0; at < users.length; at += QUERY_IDS) {
    const part = users.slice(at, at + QUERY_IDS);
    const { presences } = await ask<Answer>("POST", "/v1/presence", { users: part });
    // Whoever could not be read just now is left out.
    found.push(...presences.filter((presence): presence is Presence => "state" in presence));
  }
  return found;
}

/** Asks again and again about those of a list. */
export interface Polling {
  /** Asks about these from now on, at once about those who are new. */
  list(users: string[]): void;
  /** Whether to ask at all: not while there is no connection, and not while nobody looks. */
  turn(on: boolean): void;
  /** Asks now, unless that was done just now. */
  refresh(): void;
}

/** Whom a polling tells. */
interface Told {
  answered(presences: Presence[]): void;
  failed(error: RollcallError): void;
}

/** A polling, every so often. */
export function polling(ask: Ask, interval: number, told: Told): Polling {
  const timer = new Timer();
  let users: string[] = [];
  let isOn = false;
  let roundAt = 0;
  // One after the other: an answer must not be overtaken by a newer one.
  let asking = Promise.resolve();

  function round(): void {
    timer.clear();
    if (!isOn || users.length === 0) return;
    roundAt = Date.now();
    timer.set(jittered(interval), round);
    askAbout(users);
  }

  function askAbout(some: string[]): void {
    asking = asking.then(async () => {
      try {
        told.answered(await askAll(ask, some));
      } catch (thrown) {
        const error = asError(thrown);
        // That there is no connection is told by the status.
        if (error.status > 0) told.failed(error);
        if (error.retryAfterMs && isOn) timer.set(Math.max(error.retryAfterMs, interval), round);
      }
    });
  }

  function refresh(): void {
    if (!isOn || Date.now() - roundAt > AGAIN_MS) round();
  }

  return {
    list(wanted) {
      const listed = new Set(users);
      users = wanted;
      const fresh = users.filter((user) => !listed.has(user));
      if (fresh.length === 0) return;
      // Whoever is listed while nobody is asked is asked about with the others, however soon.
      if (isOn && listed.size > 0) return askAbout(fresh);
      roundAt = 0;
      round();
    },
    turn(on) {
      isOn = on;
      refresh();
    },
    refresh,
  };
}
