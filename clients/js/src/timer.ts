// A timer that is set anew each time: what it was set for before is off.

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
