// What the host answers, as `/openapi.json` describes it: only what the console reads. Times are Unix milliseconds.

/** How somebody is seen; null is hidden from whoever asks. */
export type State = "online" | "away" | "busy" | "offline";

/** What a person may choose to be. */
export type Stance = "auto" | "busy" | "away" | "invisible";

/** The choices in the order in which they are offered. */
export const STANCES: readonly Stance[] = ["auto", "busy", "away", "invisible"];

/** Whom a person lets see something. */
export type Audience = "everyone" | "contacts" | "nobody";

/** What a person lets others see. */
export interface Privacy {
  presence: Audience;
  last_seen: Audience;
}

/** The text and the emoji beside a state. */
export interface Note {
  text: string | null;
  emoji: string | null;
  until: number | null;
}

/**
 * How long things took since the host started: how many took at most so many milliseconds. The last bound is infinity.
 */
export interface Histogram {
  count: number;
  sum_ms: number;
  buckets: [bound_ms: number | null, cumulative: number][];
}

/** `GET /v1/stats`: counters since the host started, and what is so now. */
export interface Stats {
  host: { version: string; now: number; started: number; store: string; archive: string; open: boolean };
  rules: {
    interval_ms: number;
    tolerance_ms: number;
    idle_after_ms: number;
    grace_ms: number;
    typing_ttl_ms: number;
    watch_limit: number;
  };
  store: { answers: boolean; took_ms: number };
  /** Null while the store does not answer. */
  people: { here: number | null };
  gateway: {
    connections: number;
    sockets: number;
    streams: number;
    watchers: number;
    people: number;
    conversations: number;
    hot: { user: string; watchers: number }[];
  };
  totals: {
    heartbeats: number;
    transitions: Record<State, number>;
    told: number;
    requests: number;
    failures: number;
    archived: number;
    repaired: number;
    store_errors: number;
    replacements: number;
  };
  times: {
    settle_lag: Histogram;
    topic_lag: Histogram;
    request: Histogram;
    functions: Record<string, Histogram>;
    store: Record<string, Histogram>;
  };
}

/** One device of a person. */
export interface Device {
  device: string;
  kind: string | null;
  beat_at: number;
  active_at: number | null;
  expires_at: number;
}

/** `GET /v1/people/{user}`: everything that the service knows about one person. What it could not find out is null. */
export interface Person {
  user: string;
  now: number;
  record: { state: State; since: number | null; last_seen: number | null; version: number; note: Note | null } | null;
  state: State;
  choice: { choice: Exclude<Stance, "auto">; until: number | null } | null;
  devices: Device[];
  deadline: number | null;
  archived_last_seen: number | null;
  privacy: Privacy | null;
  restricted: boolean;
  contacts: number | null;
  blocks: number | null;
  watchers: { here: number; everywhere: number | null };
}

/** Whether a viewer may see somebody, and if not, why. */
export type Ruling = "allowed" | "restricted" | "blocked" | "private";

/** `POST /v1/restrictions/check`. */
export interface Verdicts {
  verdicts: Ruling[];
  last_seen: boolean[];
}
