// After how long to try again: full jitter, so that those who were cut off together do not come back together.

/** The first retry comes within this, each further one within twice as long. */
const BASE_MS = 500;

/** No retry waits for longer than this. */
const CAP_MS = 30_000;

/** How long to wait after having been sent away for something that we did: at least, and up to twice as long. */
const LONG_MS = 30_000;

/** How long before the retry after so many failures in a row. `random` is between 0 and 1. */
export function retryDelay(failures: number, random = Math.random()): number {
  return random * Math.min(CAP_MS, BASE_MS * 2 ** failures);
}

/** The same, for whoever asked for too much. */
export function longDelay(random = Math.random()): number {
  return LONG_MS * (1 + random);
}

/** An interval, give or take a fifth. */
export function jittered(ms: number, random = Math.random()): number {
  return ms * (0.8 + random * 0.4);
}
