// Saying that the person types: not at the first stroke, not at every one, and not for longer than they do.

import { now, Timer } from "./timer.js";

/** The first sign goes out after so much typing: who writes three letters and sends them needs none. */
const DEBOUNCE_MS = 500;

/** The service takes one sign a second in each conversation. */
const LEAST_MS = 1_000;

/** Typing in one conversation. */
interface Spell {
  /** When the last sign went out. */
  saidAt: number;
  starting: Timer;
  stopping: Timer;
}

/** Turns strokes into signs. */
export interface Typist {
  /** A stroke. */
  stroke(conversation: string): void;
  /** The end, at once. */
  stop(conversation: string): void;
  /** The end everywhere. */
  stopAll(): void;
}

/**
 * A typist, of whose signs `say` is told. With a stroke, a sign is renewed after two fifths of its life; without
 * one, it is ended after half of it. So one that goes on is renewed after nine tenths at the latest, and never
 * ends by itself.
 */
export function typist(typingTtl: number, say: (conversation: string, typing: boolean) => void): Typist {
  const spells = new Map<string, Spell>();

  function sign(conversation: string, spell: Spell): void {
    spell.saidAt = now();
    say(conversation, true);
  }

  function stop(conversation: string): void {
    const spell = spells.get(conversation);
    spells.delete(conversation);
    spell?.starting.clear();
    spell?.stopping.clear();
    if (spell?.saidAt) say(conversation, false);
  }

  return {
    stroke(conversation) {
      const spell = spells.get(conversation) ?? { saidAt: 0, starting: new Timer(), stopping: new Timer() };
      if (!spells.has(conversation)) spell.starting.set(DEBOUNCE_MS, () => sign(conversation, spell));
      spells.set(conversation, spell);
      const age = now() - spell.saidAt;
      if (spell.saidAt && age >= Math.max(LEAST_MS, typingTtl * 0.4)) sign(conversation, spell);
      spell.stopping.set(Math.max(LEAST_MS, typingTtl * 0.5), () => stop(conversation));
    },
    stop,
    stopAll: () => [...spells.keys()].forEach(stop),
  };
}
