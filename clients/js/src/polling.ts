// Polls the users that exceed what one connection may watch: new ones at once, then all at an interval.

import { jittered } from "./backoff.js";
import { asError, type RollcallError } from "./error.js";
import type { SendRequest } from "./http.js";
import { now, Timer } from "./timer.js";
import type { Presence } from "./types.js";

/** The most ids in one query. */
const QUERY_IDS = 500;

/** Showing the page again does not poll users that were polled within this time. */
const MIN_AGE_MS = 5_000;

/** Per user a presence, or the status of the failure to read it. */
type Answer = { presences: (Presence | { status: number })[] };

/** Queries any number of users, in order. Users that could not be read are left out. */
export async function queryPresences(sendRequest: SendRequest, users: string[]): Promise<Presence[]> {
  const found: Presence[] = [];
  for (let at = 0; at < users.length; at += QUERY_IDS) {
    const chunk = users.slice(at, at + QUERY_IDS);
    const { presences } = await sendRequest<Answer>("POST", "/v1/presence", { users: chunk });
    found.push(...presences.filter((presence): presence is Presence => "state" in presence));
  }
  return found;
}

/** Polls a list of users. */
export interface Poller {
  /** Polls these from now on. New ones are queried at once. */
  setUsers(users: string[]): void;
  /** Off while there is no connection, and while every page is hidden. */
  setEnabled(isOn: boolean): void;
  /** Polls now, unless it just did. */
  refresh(): void;
}

/** Handlers of a poller. */
interface PollerHandlers {
  answered(presences: Presence[]): void;
  /** A query about these was rejected. Returns whether one of them was removed, so that the rest may be queried. */
  refused(error: RollcallError, users: string[]): boolean;
}

export function poller(sendRequest: SendRequest, interval: number, handlers: PollerHandlers): Poller {
  const timer = new Timer();
  let users: string[] = [];
  let isOn = false;
  let polledAt = -Infinity;
  // Queries run one after the other, so that an older answer cannot overtake a newer one.
  let queue = Promise.resolve();

  function poll(): void {
    timer.clear();
    if (!isOn) return;
    polledAt = now();
    timer.set(jittered(interval), poll);
    query(users);
  }

  function query(some: string[]): void {
    queue = queue.then(async () => {
      try {
        for (; some.length > 0; some = some.slice(QUERY_IDS)) {
          handlers.answered(await queryPresences(sendRequest, some.slice(0, QUERY_IDS)));
        }
      } catch (thrown) {
        const error = asError(thrown);
        // A lost connection (status 0) is reported by the status.
        const isFixed = error.status > 0 && handlers.refused(error, some);
        if (isFixed) query(some.filter((user) => users.includes(user)));
        if (error.retryAfterMs && isOn) timer.set(Math.max(error.retryAfterMs, interval), poll);
      }
    });
  }

  function refresh(): void {
    if (!isOn || now() - polledAt > MIN_AGE_MS) poll();
  }

  return {
    setUsers(wanted) {
      const previous = new Set(users);
      users = wanted;
      const added = users.filter((user) => !previous.has(user));
      if (isOn) query(added);
      // Users added while polling is off are queried as soon as it is on.
      else if (added.length > 0) polledAt = -Infinity;
    },
    setEnabled(enabled) {
      isOn = enabled;
      // If the last poll was just now, the next one comes after an interval.
      timer.set(jittered(interval), poll);
      refresh();
    },
    refresh,
  };
}
