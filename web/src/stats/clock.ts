// Offset between the host's clock and this one, and the latency of events.
//
// A response carries the host's time at some point of the round trip, so its middle is wrong by at most half the round
// trip. Of the last few measurements, the one with the shortest round trip counts. An offset within the error is taken
// as zero, as it is on one machine.

/** How many measurements are kept. */
const MAX_SAMPLES = 8;

/** The offset to add to this machine's time, and its maximum error; in milliseconds. */
export interface Offset {
  offset_ms: number;
  error_ms: number;
}

/** Both clocks agree. */
export const NO_OFFSET: Offset = { offset_ms: 0, error_ms: 0 };

/** The offset that one response shows. */
export function measured(asked_at: number, answered_at: number, host_now: number): Offset {
  return { offset_ms: host_now - (asked_at + answered_at) / 2, error_ms: (answered_at - asked_at) / 2 };
}

/** Adds a measurement and drops the oldest beyond the limit. */
export function remember(offsets: readonly Offset[], one: Offset): Offset[] {
  return [...offsets, one].slice(-MAX_SAMPLES);
}

/** The most precise measurement; zero if zero is within its error. */
export function best(offsets: readonly Offset[]): Offset | null {
  const better = (best: Offset | null, one: Offset) => (best && best.error_ms <= one.error_ms ? best : one);
  const exact = offsets.reduce(better, null);
  return exact && Math.abs(exact.offset_ms) <= exact.error_ms ? { ...exact, offset_ms: 0 } : exact;
}

/**
 * Milliseconds from the decision to the arrival. A version is the time of the decision in microseconds. Null without a
 * version: the user is hidden, or was read from the archive. Never negative, whatever the clocks' resolution.
 */
export function latency(version: number | null, arrived_at: number, offset: Offset): number | null {
  if (!version) return null;
  return Math.max(0, arrived_at + offset.offset_ms - version / 1_000);
}
