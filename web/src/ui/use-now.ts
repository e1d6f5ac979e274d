// The time, for whatever is shown relative to it: one timer for the whole page.

import { useSyncExternalStore } from "react";

const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;
let now = Date.now();

/** This machine's time, a few times a second. */
export function useNow(): number {
  return useSyncExternalStore(follow, () => now);
}

function follow(changed: () => void): () => void {
  if (listeners.size === 0) {
    now = Date.now();
    timer = setInterval(tick, 250);
  }
  listeners.add(changed);
  return () => {
    listeners.delete(changed);
    if (listeners.size === 0) clearInterval(timer);
  };
}

function tick(): void {
  now = Date.now();
  for (const changed of listeners) changed();
}
