// Histograms of the host: the difference of two, which is a window of time, and its quantiles.
//
// A quantile is an estimate: values are assumed to be spread evenly within a bucket.

import type { Histogram } from "../api/types";

/** A histogram without values. */
export const EMPTY: Histogram = { count: 0, sum_ms: 0, buckets: [] };

/** The values between two answers. If the earlier one counts more, the host was restarted: then all of the later one. */
export function difference(later: Histogram, earlier: Histogram): Histogram {
  if (earlier.count > later.count) return later;
  const before = new Map(earlier.buckets);
  return {
    count: later.count - earlier.count,
    sum_ms: Math.max(0, later.sum_ms - earlier.sum_ms),
    buckets: later.buckets.map(([bound, cumulative]) => [bound, cumulative - (before.get(bound) ?? 0)]),
  };
}

/** The quantile for `part` (0 to 1) in milliseconds; null without values. */
export function quantile(histogram: Histogram, part: number): number | null {
  if (histogram.count === 0) return null;
  const wanted = part * histogram.count;
  let [lower, below] = [0, 0];
  for (const [bound, cumulative] of histogram.buckets) {
    // Beyond the last finite bound only that bound is known.
    if (bound === null) return lower;
    if (cumulative >= wanted && cumulative > below) {
      return lower + ((bound - lower) * Math.max(0, wanted - below)) / (cumulative - below);
    }
    [lower, below] = [bound, cumulative];
  }
  return lower;
}

/** The sum of all. */
export function total(histograms: readonly Histogram[]): { count: number; sum_ms: number } {
  return histograms.reduce(
    (sum, one) => ({ count: sum.count + one.count, sum_ms: sum.sum_ms + one.sum_ms }),
    { count: 0, sum_ms: 0 },
  );
}
