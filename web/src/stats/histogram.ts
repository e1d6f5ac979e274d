// Histograms as the host keeps them, and what a window of time says: the difference of two, and its quantiles.
//
// A quantile is an estimate: within the bucket that holds it, everything is taken to be spread evenly.

import type { Histogram } from "../api/types";

/** Nothing was measured. */
export const EMPTY: Histogram = { count: 0, sum_ms: 0, buckets: [] };

/**
 * What came between two answers. An earlier one that counted more is of another run of the host, and counts as
 * nothing.
 */
export function difference(later: Histogram, earlier: Histogram): Histogram {
  if (earlier.count > later.count) return later;
  const before = new Map(earlier.buckets);
  return {
    count: later.count - earlier.count,
    sum_ms: Math.max(0, later.sum_ms - earlier.sum_ms),
    buckets: later.buckets.map(([bound, cumulative]) => [bound, cumulative - (before.get(bound) ?? 0)]),
  };
}

/** Below how many milliseconds this part (0 to 1) of them stayed; null if there were none. */
export function quantile(histogram: Histogram, part: number): number | null {
  if (histogram.count === 0) return null;
  const wanted = part * histogram.count;
  let [lower, below] = [0, 0];
  for (const [bound, cumulative] of histogram.buckets) {
    // Beyond the last bound nothing is known but that bound.
    if (bound === null) return lower;
    if (cumulative >= wanted && cumulative > below) {
      return lower + ((bound - lower) * Math.max(0, wanted - below)) / (cumulative - below);
    }
    [lower, below] = [bound, cumulative];
  }
  return lower;
}

/** All of them in one. */
export function total(histograms: readonly Histogram[]): { count: number; sum_ms: number } {
  return histograms.reduce(
    (sum, one) => ({ count: sum.count + one.count, sum_ms: sum.sum_ms + one.sum_ms }),
    { count: 0, sum_ms: 0 },
  );
}
