// Fixtures: answers of `GET /v1/stats`.

import type { Histogram, Stats } from "../../src/api/types";
import { EMPTY } from "../../src/stats/histogram";

/** A histogram of these values. */
export function histogram(values: readonly number[], bounds: readonly number[] = [1, 2, 4, 8]): Histogram {
  const upTo = (bound: number | null) => values.filter((value) => bound === null || value <= bound).length;
  return {
    count: values.length,
    sum_ms: values.reduce((sum, value) => sum + value, 0),
    buckets: [...bounds, null].map((bound) => [bound, upTo(bound)]),
  };
}

/** Fields to override. */
interface Overrides {
  started?: number;
  totals?: Partial<Stats["totals"]>;
  times?: Partial<Stats["times"]>;
  online?: number;
}

/** An answer of an idle host, with overrides. */
export function answer(now: number, { started = 0, totals = {}, times = {}, online = 0 }: Overrides = {}): Stats {
  return {
    host: { version: "0.1.0", now, started, store: "memory", archive: "none", open: true },
    rules: {
      interval_ms: 30_000,
      tolerance_ms: 15_000,
      idle_after_ms: 300_000,
      grace_ms: 30_000,
      typing_ttl_ms: 5_000,
      watch_limit: 20,
    },
    store: { answers: true, took_ms: 0.25 },
    users: { online },
    connections: {
      open: 0,
      sockets: 0,
      streams: 0,
      watchers: 0,
      watched_users: 0,
      watched_conversations: 0,
      most_watched: [],
    },
    totals: {
      heartbeats: 0,
      transitions: { online: 0, away: 0, busy: 0, offline: 0 },
      updates_sent: 0,
      requests: 0,
      failures: 0,
      archived: 0,
      recheck_changes: 0,
      store_errors: 0,
      replacements: 0,
      ...totals,
    },
    times: { settle_lag: EMPTY, topic_lag: EMPTY, request: EMPTY, functions: {}, store: {}, ...times },
  };
}
