// Formats numbers, times and durations, in English. Pure.

const INTEGER = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const ONE_PLACE = new Intl.NumberFormat("en", { maximumFractionDigits: 1, minimumFractionDigits: 1 });
const TWO_PLACES = new Intl.NumberFormat("en", { maximumFractionDigits: 2, minimumFractionDigits: 2 });
const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** Shown where there is no number. */
export const NOTHING = "–";
/** Shown where the host does not know. */
export const UNKNOWN = "not known";

/** A count: `4,212`. */
export function count(value: number | null): string {
  return value === null ? NOTHING : INTEGER.format(value);
}

/** A count with its noun: `1 socket`, `2 sockets`. */
export function plural(value: number, one: string, several = `${one}s`): string {
  return `${INTEGER.format(value)} ${value === 1 ? one : several}`;
}

/** A rate, with one decimal below 100. */
export function rate(value: number | null): string {
  if (value === null) return NOTHING;
  return value > 0 && value < 100 ? ONE_PLACE.format(value) : INTEGER.format(value);
}

/** A short duration with its unit: `0.31 ms`, `12 ms`, `1.2 s`. */
export function milliseconds(value: number | null): string {
  if (value === null) return NOTHING;
  if (value >= 9_995) return `${INTEGER.format(value / 1_000)} s`;
  if (value >= 1_000) return `${ONE_PLACE.format(value / 1_000)} s`;
  if (value >= 99.95) return `${INTEGER.format(value)} ms`;
  if (value >= 9.995) return `${ONE_PLACE.format(value)} ms`;
  return value === 0 ? "0 ms" : value < 0.01 ? "< 0.01 ms" : `${TWO_PLACES.format(value)} ms`;
}

/** A share as a percentage: `12 %`. */
export function percent(part: number): string {
  return part > 0 && part < 0.01 ? "< 1 %" : `${INTEGER.format(part * 100)} %`;
}

/** A duration in its largest whole unit: `12 s`, `3 min`, `5 h`, `2 d`. Never negative. */
export function span(duration_ms: number): string {
  const seconds = Math.max(0, Math.floor(duration_ms / 1_000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** How long ago: `12 s ago`. Less than a second, or in the future of a clock that is behind, is `just now`. */
export function ago(then: number | null, now: number): string {
  if (then === null) return "never";
  return now - then < 1_000 ? "just now" : `${span(now - then)} ago`;
}

/** A remaining duration, with tenths of a second below ten: `4.2 s`, `32 s`, `3 min 5 s`. */
export function countdown(left_ms: number): string {
  if (left_ms <= 0) return "now";
  if (left_ms < 10_000) return `${ONE_PLACE.format(left_ms / 1_000)} s`;
  const seconds = Math.ceil(left_ms / 1_000);
  if (seconds < 60) return `${seconds} s`;
  return seconds < 3_600 ? `${Math.floor(seconds / 60)} min ${seconds % 60} s` : span(left_ms);
}

/** The time until an expiry: `32 s`, or `expired`. */
export function life(until: number, now: number): string {
  return until > now ? countdown(until - now) : "expired";
}

/** A time of day: `14:03:59`. */
export function clock(time: number): string {
  return CLOCK.format(time);
}

/** A time, with its date unless that is today: `14:03:59`, `16 Nov 2026, 14:03:59`. */
export function moment(time: number, now: number): string {
  return DATE.format(time) === DATE.format(now) ? clock(time) : `${DATE.format(time)}, ${clock(time)}`;
}

/** Names as a list: `alice, bob and carol`. */
export function list(names: readonly string[]): string {
  const last = names.at(-1) ?? "";
  return names.length < 2 ? last : `${names.slice(0, -1).join(", ")} and ${last}`;
}
