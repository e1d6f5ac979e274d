// A monotonic clock, and a timer that holds one timeout: setting it cancels the previous one.

/** Monotonic time in milliseconds, for measuring durations. */
export const now = () => performance.now();

export class Timer {
  #timeout: ReturnType<typeof setTimeout> | undefined;

  set(ms: number, then: () => unknown): void {
    this.clear();
    this.#timeout = setTimeout(then, ms);
  }

  clear(): void {
    clearTimeout(this.#timeout);
  }
}
