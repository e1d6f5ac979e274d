// Those whom one connection may not watch are asked about: at once when they are new, then every now and then.

import { jittered } from "./backoff.js";
import { asError, type RollcallError } from "./error.js";
import type { Ask } from "./http.js";
import { now, Timer } from "./timer.js";
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
  /** It was refused to tell of these. Answers whether one was left out, so that the others may be asked about. */
  refused(error: RollcallError, users: string[]): boolean;
}

/** A polling, every so often. */
export function polling(ask: Ask, interval: number, told: Told): Polling {
  const timer = new Timer();
  let users: string[] = [];
  let isOn = false;
  let roundAt = -Infinity;
  // One after the other: an answer must not be overtaken by a newer one.
  let asking = Promise.resolve();

  function round(): void {
    timer.clear();
    if (!isOn) return;
    roundAt = now();
    timer.set(jittered(interval), round);
    askAbout(users);
  }

  function askAbout(some: string[]): void {
    asking = asking.then(async () => {
      try {
        for (; some.length > 0; some = some.slice(QUERY_IDS)) {
          told.answered(await askAll(ask, some.slice(0, QUERY_IDS)));
        }
      } catch (thrown) {
        const error = asError(thrown);
        // That there is no connection is told by the status.
        const isMended = error.status > 0 && told.refused(error, some);
        if (isMended) askAbout(some.filter((user) => users.includes(user)));
        if (error.retryAfterMs && isOn) timer.set(Math.max(error.retryAfterMs, interval), round);
      }
    });
  }

  function refresh(): void {
    if (!isOn || now() - roundAt > AGAIN_MS) round();
  }

  return {
    list(wanted) {
      const listed = new Set(users);
      users = wanted;
      const fresh = users.filter((user) => !listed.has(user));
      if (isOn) askAbout(fresh);
      // Whoever is listed while nobody is asked is asked about with the others, however soon.
      else if (fresh.length > 0) roundAt = -Infinity;
    },
    turn(on) {
      isOn = on;
      // Whoever was asked about just now has their turn later.
      timer.set(jittered(interval), round);
      refresh();
    },
    refresh,
  };
}
