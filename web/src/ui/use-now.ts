// The current time, for relative times on the page. One timer serves all of them.

import { useSyncExternalStore } from "react";

const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;
let now = Date.now();

/** This machine's time, updated four times a second. */
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
