// The host's answers as described by `/openapi.json`; only the fields that the console reads. Times are Unix milliseconds.

/** A user's state. */
export type State = "online" | "away" | "busy" | "offline";

/** The value of a user's choice. */
export type Stance = "auto" | "busy" | "away" | "invisible";

/** The stances in the order of the form. */
export const STANCES: readonly Stance[] = ["auto", "busy", "away", "invisible"];

/** Who may see something. */
export type Audience = "everyone" | "contacts" | "nobody";

/** A user's privacy settings. */
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

/** Durations since the host started: cumulative counts by upper bound. The last bound, null, is infinity. */
export interface Histogram {
  count: number;
  sum_ms: number;
  buckets: [bound_ms: number | null, cumulative: number][];
}

/** `GET /v1/stats`: counters since the host started, and current values. */
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
  /** Null while the store does not respond. */
  users: { online: number | null };
  connections: {
    open: number;
    sockets: number;
    streams: number;
    watchers: number;
    watched_users: number;
    watched_conversations: number;
    most_watched: { user: string; watchers: number }[];
  };
  totals: {
    heartbeats: number;
    transitions: Record<State, number>;
    updates_sent: number;
    requests: number;
    failures: number;
    archived: number;
    recheck_changes: number;
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

/** One device of a user. */
export interface Device {
  device: string;
  kind: string | null;
  beat_at: number;
  active_at: number | null;
  expires_at: number;
}

/** `GET /v1/people/{user}`: everything stored about one user. Unknown fields are null. */
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
  watchers: { this_host: number; all_hosts: number | null };
}

/** Whether a viewer may see a subject, and if not, why. */
export type Ruling = "allowed" | "restricted" | "blocked" | "private";

/** `POST /v1/restrictions/check`. */
export interface CheckAnswer {
  verdicts: Ruling[];
  last_seen: boolean[];
}
