// How late an event came, by the host's clock.

import { expect, test } from "vitest";

import { AGREED, best, latency, measured, remember } from "../../src/stats/clock";

test("the host's time is taken to be that of the middle of the question", () => {
  expect(measured(1_000, 1_010, 5_005)).toEqual({ offset_ms: 4_000, error_ms: 5 });
});

test("the quickest of the last eight measurements is believed", () => {
  const quick = { offset_ms: 41, error_ms: 1 };
  const slow = { offset_ms: 49, error_ms: 30 };
  expect(best(remember(remember([], quick), slow))).toEqual(quick);
  const later = Array.from({ length: 8 }, () => slow).reduce(remember, [quick]);
  expect(best(later)).toEqual(slow);
  expect(best([])).toBeNull();
});

test("clocks that cannot be told apart are taken to agree", () => {
  expect(best([{ offset_ms: -9, error_ms: 30 }])).toEqual({ offset_ms: 0, error_ms: 30 });
});

test("latency goes from the version to the arrival, the clocks' difference taken out", () => {
  expect(latency(1_700_000_000_000_000, 1_700_000_000_004, AGREED)).toBe(4);
  expect(latency(1_700_000_003_600_000, 1_700_000_000_004, { offset_ms: 3_600, error_ms: 1 })).toBe(4);
});

test("latency is never negative, and unknown without a version", () => {
  expect(latency(1_700_000_000_002_000, 1_700_000_000_001, AGREED)).toBe(0);
  expect(latency(null, 1_700_000_000_001, AGREED)).toBeNull();
  expect(latency(0, 1_700_000_000_001, AGREED)).toBeNull();
});
