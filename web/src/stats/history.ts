// The last five minutes: one sample per second, and the answers that the window needs.

import type { Stats } from "../api/types";
import { comparable, gap, RATE_MS, sample, WINDOW_MS, type Sample } from "./sample";

/** How long samples are kept. */
export const HISTORY_MS = 5 * 60_000;
/** After this long without an answer the lines have a gap. */
const GAP_MS = 3_000;

export interface History {
  /** The answers that the window needs, oldest first. */
  readonly answers: readonly Stats[];
  /** One sample per answer of the last five minutes, oldest first. */
  readonly samples: readonly Sample[];
}

/** No answer yet. */
export const NONE: History = { answers: [], samples: [] };

/** Adds an answer. After a restart of the host the rates start over, after a gap. An answer that is not newer is ignored. */
export function record(history: History, answer: Stats): History {
  const previous = history.answers.at(-1) ?? null;
  const last = history.samples.at(-1);
  const now = answer.host.now;
  if (previous && previous.host.started === answer.host.started && now <= previous.host.now) return history;
  const kept = history.answers.filter((one) => comparable(answer, one));
  const opening = since(kept, now - WINDOW_MS);
  const broken = last !== undefined && (kept.length === 0 || now - last.at > GAP_MS) ? [gap(last.at + 1)] : [];
  const points = [...history.samples, ...broken, sample(answer, since(kept, now - RATE_MS), opening)];
  return {
    answers: [...kept.filter((one) => one === opening || now - one.host.now <= WINDOW_MS), answer],
    samples: points.filter((point) => now - point.at <= HISTORY_MS && point.at <= now),
  };
}

/** The newest answer, and the one at the start of the window to compare it with. */
export function window(history: History): { current: Stats; opening: Stats | null } | null {
  const current = history.answers.at(-1);
  if (!current) return null;
  return { current, opening: since(history.answers.slice(0, -1), current.host.now - WINDOW_MS) };
}

/** The newest answer up to this time, or else the oldest. */
function since(answers: readonly Stats[], time: number): Stats | null {
  return [...answers].reverse().find((one) => one.host.now <= time) ?? answers[0] ?? null;
}
