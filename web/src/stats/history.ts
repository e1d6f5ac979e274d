// The last five minutes: the answers that a window needs, and a point for each, one a second.

import type { Stats } from "../api/types";
import { comparable, gap, RATE_MS, sample, WINDOW_MS, type Sample } from "./sample";

/** For how long points are kept. */
export const KEPT_MS = 5 * 60_000;
/** After how long without an answer a line is broken. */
const GAP_MS = 3_000;

/** What the host said lately. */
export interface History {
  /** The answers of the last window and a little more, oldest first. */
  readonly answers: readonly Stats[];
  /** A point for every answer of the last five minutes, oldest first. */
  readonly samples: readonly Sample[];
}

/** Nothing was heard yet. */
export const NONE: History = { answers: [], samples: [] };

/** Adds an answer. One of another run of the host begins anew, after a gap; one that is no later is passed over. */
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
    samples: points.filter((point) => now - point.at <= KEPT_MS && point.at <= now),
  };
}

/** The newest answer, and the one at the window's beginning with which it is compared. */
export function window(history: History): { current: Stats; opening: Stats | null } | null {
  const current = history.answers.at(-1);
  if (!current) return null;
  return { current, opening: since(history.answers.slice(0, -1), current.host.now - WINDOW_MS) };
}

/** The newest answer that is no later than this, or else the oldest. */
function since(answers: readonly Stats[], time: number): Stats | null {
  return [...answers].reverse().find((one) => one.host.now <= time) ?? answers[0] ?? null;
}
