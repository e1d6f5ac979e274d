// Time: how it passes, and a timer that is set anew each time, so that what it was set for before is off.

/** A clock that is never set, in milliseconds: for how long ago something was. */
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
