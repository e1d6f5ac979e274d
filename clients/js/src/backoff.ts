// Retry delays with full jitter, so that clients that lost their connections together do not reconnect together.

/** Upper bound of the first delay. It doubles with each failure. */
const BASE_MS = 500;

/** Upper bound of every delay. */
const CAP_MS = 30_000;

/** Least delay after the service rejected us for exceeding a limit; the most is twice as long. */
const THROTTLED_MS = 30_000;

/** Delay before the next attempt after `failures` failures in a row. `random` is between 0 and 1. */
export function retryDelay(failures: number, random = Math.random()): number {
  return random * Math.min(CAP_MS, BASE_MS * 2 ** failures);
}

/** Delay before the next attempt after the service rejected us for exceeding a limit. */
export function throttledDelay(random = Math.random()): number {
  return THROTTLED_MS * (1 + random);
}

/** The interval, ±20 %. */
export function jittered(ms: number, random = Math.random()): number {
  return ms * (0.8 + random * 0.4);
}
