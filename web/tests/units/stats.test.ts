// Rates, quantiles and shares, computed from the host's counters.

import { describe, expect, test } from "vitest";

import { breakdown } from "../../src/stats/breakdown";
import { difference, quantile } from "../../src/stats/histogram";
import { HISTORY_MS, NONE, record, window, type History } from "../../src/stats/history";
import { answer, histogram } from "./fixtures";

describe("a histogram", () => {
  test("subtracts an earlier answer", () => {
    const window = difference(histogram([1, 2, 3, 9]), histogram([1, 2]));
    expect(window).toEqual({ count: 2, sum_ms: 12, buckets: [[1, 0], [2, 0], [4, 1], [8, 1], [null, 2]] });
  });

  test("starts over after a restart", () => {
    expect(difference(histogram([1]), histogram([1, 2, 3]))).toEqual(histogram([1]));
  });

  test("counts buckets missing in the earlier answer", () => {
    expect(difference(histogram([1, 3]), { count: 0, sum_ms: 0, buckets: [] })).toEqual(histogram([1, 3]));
  });

  test("interpolates within a bucket", () => {
    const four = histogram([3, 3, 3, 3]);
    expect(quantile(four, 0.5)).toBe(3);
    expect(quantile(four, 1)).toBe(4);
  });

  test("finds the bucket that holds the quantile", () => {
    const values = [...Array<number>(98).fill(0.5), 7, 7];
    expect(quantile(histogram(values), 0.5)).toBeCloseTo(50 / 98);
    expect(quantile(histogram(values), 0.99)).toBeCloseTo(6);
  });

  test("caps quantiles at the last bound", () => {
    expect(quantile(histogram([100, 200]), 0.99)).toBe(8);
  });

  test("has no quantile without values", () => {
    expect(quantile(histogram([]), 0.5)).toBeNull();
  });
});

describe("the history", () => {
  const steady = (seconds: number) =>
    Array.from({ length: seconds }, (_, second) => answer(second * 1_000, { totals: { heartbeats: second * 7 } }));
  const play = (answers: ReturnType<typeof steady>, history: History = NONE) => answers.reduce(record, history);

  test("has no rate after one answer", () => {
    const [sample] = record(NONE, answer(1_000, { online: 3 })).samples;
    expect([sample?.online, sample?.heartbeats, sample?.settle.p50]).toEqual([3, null, null]);
  });

  test("has a rate from the second answer on", () => {
    expect(play(steady(2)).samples.at(-1)?.heartbeats).toBe(7);
    expect(play(steady(30)).samples.at(-1)?.heartbeats).toBe(7);
  });

  test("takes rates over five seconds", () => {
    const counted = [0, 0, 0, 0, 100, 100];
    const answers = counted.map((heartbeats, second) => answer(second * 1_000, { totals: { heartbeats } }));
    expect(play(answers).samples.at(-1)?.heartbeats).toBe(20);
  });

  test("counts transitions by state and in total", () => {
    const transitions = { online: 3, away: 1, busy: 0, offline: 2 };
    const sample = play([answer(0), answer(2_000, { totals: { transitions } })]).samples.at(-1);
    expect(sample?.transitions).toBe(3);
    expect(sample?.transitions_to).toEqual({ online: 1.5, away: 0.5, busy: 0, offline: 1 });
  });

  test("takes quantiles over ten seconds", () => {
    const slow = answer(0, { times: { settle_lag: histogram([]) } });
    const lag = (second: number, values: number[]) => {
      return answer(second * 1_000, { times: { settle_lag: histogram(values) } });
    };
    const after = play([slow, lag(1, [7, 7]), ...[2, 4, 6, 8, 10].map((second) => lag(second, [7, 7]))]);
    expect(after.samples.at(-1)?.settle.p50).toBe(6);
    const later = play([lag(11, [7, 7]), lag(12, [7, 7, 0.5])], after);
    expect(later.samples.at(-2)?.settle.p50).toBeNull();
    expect(later.samples.at(-1)?.settle.p50).toBe(0.5);
  });

  test("keeps five minutes and no more", () => {
    const history = play(steady(400));
    const [first, last] = [history.samples[0], history.samples.at(-1)];
    expect((last?.at ?? 0) - (first?.at ?? 0)).toBe(HISTORY_MS);
    expect(history.answers.length).toBeLessThan(15);
  });

  test("has a gap while the host is silent", () => {
    const history = play([answer(0), answer(1_000), answer(60_000)]);
    expect(history.samples.map((sample) => sample.online)).toEqual([0, 0, null, 0]);
  });

  test("starts over after a restart", () => {
    const before = play([answer(0, { totals: { heartbeats: 500 } }), answer(1_000, { totals: { heartbeats: 600 } })]);
    const after = record(before, answer(2_000, { started: 1_500, totals: { heartbeats: 2 } }));
    expect(after.samples.at(-1)?.heartbeats).toBeNull();
    expect(after.answers).toHaveLength(1);
    expect(after.samples.map((sample) => sample.online)).toEqual([0, 0, null, 0]);
  });

  test("ignores an answer that is not newer", () => {
    const history = play(steady(3));
    expect(record(history, answer(1_000))).toBe(history);
  });

  test("opens its window ten seconds ago", () => {
    const shown = window(play(steady(30)));
    expect([shown?.current.host.now, shown?.opening?.host.now]).toEqual([29_000, 19_000]);
    expect(window(NONE)).toBeNull();
  });
});

describe("the breakdown", () => {
  test("orders by time and computes shares", () => {
    const later = { query: histogram([1]), heartbeat: histogram([3, 3, 3]) };
    const rows = breakdown(later, { heartbeat: histogram([3, 3]) }, 2_000);
    expect(rows.map(({ name, calls_per_s, share }) => [name, calls_per_s, share])).toEqual([
      ["heartbeat", 0.5, 0.75],
      ["query", 0.5, 0.25],
    ]);
  });

  test("has no shares without calls", () => {
    expect(breakdown({ query: histogram([]) }, {}, 1_000)).toEqual([
      { name: "query", calls_per_s: 0, p50: null, p99: null, share: 0 },
    ]);
  });
});
