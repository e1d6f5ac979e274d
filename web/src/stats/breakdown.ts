// Time by function, or by store operation, over the window.

import type { Histogram } from "../api/types";
import { difference, EMPTY, quantile, total } from "./histogram";

export interface Row {
  name: string;
  calls_per_s: number;
  p50: number | null;
  p99: number | null;
  /** Its share, 0 to 1, of the total time. */
  share: number;
}

/** A row for each name, by descending time. `duration_ms` is the window's length. */
export function breakdown(
  later: Record<string, Histogram>,
  earlier: Record<string, Histogram>,
  duration_ms: number,
): Row[] {
  const windows = Object.entries(later).map(([name, times]): [string, Histogram] => {
    return [name, difference(times, earlier[name] ?? EMPTY)];
  });
  const whole = total(windows.map(([, window]) => window)).sum_ms;
  const rows = windows.map(([name, window]) => ({
    name,
    calls_per_s: duration_ms > 0 ? (window.count * 1_000) / duration_ms : 0,
    p50: quantile(window, 0.5),
    p99: quantile(window, 0.99),
    share: whole > 0 ? window.sum_ms / whole : 0,
  }));
  return rows.sort((one, other) => other.share - one.share || one.name.localeCompare(other.name));
}
