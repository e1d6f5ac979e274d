// Clock offset and latency.

import { expect, test } from "vitest";

import { NO_OFFSET, best, latency, measured, remember } from "../../src/stats/clock";

test("the offset is measured mid round trip", () => {
  expect(measured(1_000, 1_010, 5_005)).toEqual({ offset_ms: 4_000, error_ms: 5 });
});

test("the shortest of eight round trips counts", () => {
  const quick = { offset_ms: 41, error_ms: 1 };
  const slow = { offset_ms: 49, error_ms: 30 };
  expect(best(remember(remember([], quick), slow))).toEqual(quick);
  const later = Array.from({ length: 8 }, () => slow).reduce(remember, [quick]);
  expect(best(later)).toEqual(slow);
  expect(best([])).toBeNull();
});

test("an offset within the error is zero", () => {
  expect(best([{ offset_ms: -9, error_ms: 30 }])).toEqual({ offset_ms: 0, error_ms: 30 });
});

test("latency is corrected for the clock offset", () => {
  expect(latency(1_700_000_000_000_000, 1_700_000_000_004, NO_OFFSET)).toBe(4);
  expect(latency(1_700_000_003_600_000, 1_700_000_000_004, { offset_ms: 3_600, error_ms: 1 })).toBe(4);
});

test("latency is never negative, null without version", () => {
  expect(latency(1_700_000_000_002_000, 1_700_000_000_001, NO_OFFSET)).toBe(0);
  expect(latency(null, 1_700_000_000_001, NO_OFFSET)).toBeNull();
  expect(latency(0, 1_700_000_000_001, NO_OFFSET)).toBeNull();
});
