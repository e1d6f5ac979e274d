// Turns keystrokes into typing signals: debounced at the start, renewed at a bounded rate, ended after a pause.

import { now, Timer } from "./timer.js";

/** The first signal waits this long, so that a very short message sends none. */
const DEBOUNCE_MS = 500;

/** The service accepts one signal per second and conversation. */
const MIN_INTERVAL_MS = 1_000;

/** Typing in one conversation. */
interface TypingState {
  /** When the last signal was sent; 0 before the first. */
  sentAt: number;
  startTimer: Timer;
  stopTimer: Timer;
}

/** Sends typing signals for keystrokes. */
export interface TypingSender {
  keystroke(conversation: string): void;
  /** Ends typing at once. */
  stop(conversation: string): void;
  /** Ends typing in every conversation. */
  stopAll(): void;
}

/**
 * Calls `send` for each signal. A keystroke renews the signal once 40 % of its TTL has passed; 50 % of the TTL without
 * a keystroke ends it. So while the user types, a signal is renewed after at most 90 % of its TTL and never expires.
 */
export function typingSender(typingTtl: number, send: (conversation: string, typing: boolean) => void): TypingSender {
  const states = new Map<string, TypingState>();

  function signal(conversation: string, state: TypingState): void {
    state.sentAt = now();
    send(conversation, true);
  }

  function stop(conversation: string): void {
    const state = states.get(conversation);
    states.delete(conversation);
    state?.startTimer.clear();
    state?.stopTimer.clear();
    if (state?.sentAt) send(conversation, false);
  }

  return {
    keystroke(conversation) {
      const state = states.get(conversation) ?? { sentAt: 0, startTimer: new Timer(), stopTimer: new Timer() };
      if (!states.has(conversation)) state.startTimer.set(DEBOUNCE_MS, () => signal(conversation, state));
      states.set(conversation, state);
      const age = now() - state.sentAt;
      if (state.sentAt && age >= Math.max(MIN_INTERVAL_MS, typingTtl * 0.4)) signal(conversation, state);
      state.stopTimer.set(Math.max(MIN_INTERVAL_MS, typingTtl * 0.5), () => stop(conversation));
    },
    stop,
    stopAll: () => [...states.keys()].forEach(stop),
  };
}
