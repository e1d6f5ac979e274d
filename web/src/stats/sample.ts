// One sample of the charts, computed from two answers of `GET /v1/stats`.
//
// Rates cover a few seconds: short enough to follow changes, long enough to smooth heartbeats that come in batches.
// Quantiles need more values, so their window is longer. Time is the host's, so a suspended page does not distort it.

import type { Histogram, State, Stats } from "../api/types";
import { difference, EMPTY, quantile } from "./histogram";

/** Window of the quantiles. */
export const WINDOW_MS = 10_000;
/** Window of the rates. */
export const RATE_MS = 5_000;

/** The charted values; null if there is no earlier answer or nothing happened. */
export interface Sample {
  at: number;
  online: number | null;
  heartbeats: number | null;
  transitions: number | null;
  transitions_to: Record<State, number | null>;
  sent: number | null;
  requests: number | null;
  failures: number | null;
  settle: Quantiles;
  topic: Quantiles;
  request: Quantiles;
  watchers: number | null;
  connections: number | null;
  store_ms: number | null;
  /** Milliseconds of work per second, by function. */
  work: Record<string, number>;
}

/** Median and 99th percentile in milliseconds. */
export interface Quantiles {
  p50: number | null;
  p99: number | null;
}

const UNKNOWN: Quantiles = { p50: null, p99: null };
const NO_STATES: Record<State, null> = { online: null, away: null, busy: null, offline: null };

/** A sample without values: a gap in every line. */
export function gap(at: number): Sample {
  const nothing = { online: null, sent: null, watchers: null, connections: null, store_ms: null };
  const rates = { heartbeats: null, transitions: null, transitions_to: NO_STATES, requests: null, failures: null };
  return { at, ...nothing, ...rates, settle: UNKNOWN, topic: UNKNOWN, request: UNKNOWN, work: {} };
}

/** Whether both come from the same run of the host, in this order. */
export function comparable(later: Stats, earlier: Stats): boolean {
  return later.host.started === earlier.host.started && later.host.now > earlier.host.now;
}

/** The sample of an answer: rates since `previous`, quantiles since `opening`. */
export function sample(current: Stats, previous: Stats | null, opening: Stats | null): Sample {
  const { connections, users, store, times } = current;
  const point = gap(current.host.now);
  point.online = users.online;
  point.watchers = connections.watchers;
  point.connections = connections.open;
  point.store_ms = store.answers ? store.took_ms : null;
  if (previous && comparable(current, previous)) Object.assign(point, rates(current, previous));
  if (opening && comparable(current, opening)) {
    point.settle = quantiles(times.settle_lag, opening.times.settle_lag);
    point.topic = quantiles(times.topic_lag, opening.times.topic_lag);
    point.request = quantiles(times.request, opening.times.request);
  }
  return point;
}

function rates(current: Stats, previous: Stats): Partial<Sample> {
  const seconds = (current.host.now - previous.host.now) / 1_000;
  const [later, earlier] = [current.totals, previous.totals];
  const each = (now: number, before: number) => Math.max(0, now - before) / seconds;
  const moved = (state: State) => each(later.transitions[state] ?? 0, earlier.transitions[state] ?? 0);
  const [online, away, busy, offline] = [moved("online"), moved("away"), moved("busy"), moved("offline")];
  const work = Object.entries(current.times.functions).map(([name, times]): [string, number] => {
    return [name, difference(times, previous.times.functions[name] ?? EMPTY).sum_ms / seconds];
  });
  return {
    heartbeats: each(later.heartbeats, earlier.heartbeats),
    transitions: online + away + busy + offline,
    transitions_to: { online, away, busy, offline },
    sent: each(later.updates_sent, earlier.updates_sent),
    requests: each(later.requests, earlier.requests),
    failures: each(later.failures, earlier.failures),
    work: Object.fromEntries(work),
  };
}

/** The quantiles of the values between two answers. */
export function quantiles(later: Histogram, earlier: Histogram): Quantiles {
  const window = difference(later, earlier);
  return { p50: quantile(window, 0.5), p99: quantile(window, 0.99) };
}
