// How far the host's clock is from this one's, and how late an event came by it.
//
// The host says its time in an answer. It was that time somewhere between the question and the arrival of the answer,
// so the middle is wrong by at most half the round trip; of the last few, the quickest is believed. Clocks that it
// cannot tell apart are taken to agree, as on one machine they do.

/** How many measurements are compared. */
const REMEMBERED = 8;

/** The difference to be added to this machine's time, and by how much it may be wrong; in milliseconds. */
export interface Offset {
  offset_ms: number;
  error_ms: number;
}

/** The clocks are taken to agree. */
export const AGREED: Offset = { offset_ms: 0, error_ms: 0 };

/** What one answer tells. */
export function measured(asked_at: number, answered_at: number, host_now: number): Offset {
  return { offset_ms: host_now - (asked_at + answered_at) / 2, error_ms: (answered_at - asked_at) / 2 };
}

/** The measurements with one more. */
export function remember(offsets: readonly Offset[], one: Offset): Offset[] {
  return [...offsets, one].slice(-REMEMBERED);
}

/** The most exact of them; nought if it may as well be. */
export function best(offsets: readonly Offset[]): Offset | null {
  const better = (best: Offset | null, one: Offset) => (best && best.error_ms <= one.error_ms ? best : one);
  const exact = offsets.reduce(better, null);
  return exact && Math.abs(exact.offset_ms) <= exact.error_ms ? { ...exact, offset_ms: 0 } : exact;
}

/**
 * From the decision to the arrival. A version is the decision's time in microseconds; null where there is none, because
 * the person is hidden, or was read from the archive. What the clocks' resolution turns negative is nought.
 */
export function latency(version: number | null, arrived_at: number, offset: Offset): number | null {
  if (!version) return null;
  return Math.max(0, arrived_at + offset.offset_ms - version / 1_000);
}
