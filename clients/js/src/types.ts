// The public types of the package, and the messages of the service.
//
// Field names are the service's, so that values match the descriptions in `openapi.json`.

import type { RollcallError } from "./error.js";

/** A user's state; null if hidden from the viewer, and then every other field is null too. */
export type State = "online" | "away" | "busy" | "offline" | null;

/** A short text and emoji shown beside the state. */
export interface Note {
  text: string;
  emoji: string;
  /** When the note ends; if null, when it is replaced. Unix milliseconds. */
  until: number | null;
}

/** The presence of one user. */
export interface Presence {
  user: string;
  state: State;
  /** When the state began; for `offline`, when the user was last seen. Unix milliseconds. */
  since: number | null;
  last_seen: number | null;
  version: number | null;
  note: Note | null;
  /** The user's choice; only in the user's own presence. */
  choice?: { choice: "busy" | "away" | "invisible"; until: number | null };
}

/** The second argument of a `watch()` callback. */
export interface Context {
  /**
   * True once the connection has been lost for longer than `staleAfter`: the presence may be out of date. Callbacks are
   * called when it becomes true and when it becomes false again, with the presence known at that time.
   */
  stale: boolean;
}

/**
 * The status of the connection. `connecting`: not open yet, or reopening while known presences still count; `offline`:
 * lost for longer than `staleAfter`; `paused`: every page is hidden, nothing is watched, the user stays online;
 * `closed`: by `close()`, or because the page was left.
 */
export type Status = "connecting" | "online" | "offline" | "paused" | "closed";

/** A typing signal, or its end. */
export interface Typing {
  conversation: string;
  user: string;
  typing: boolean;
  until: number | null;
}

/** An event of the service. `id` is where to resume; polled users come as a snapshot without one. */
export type ServiceEvent =
  | (Presence & { event: "presence"; id?: string })
  | (Typing & { event: "typing"; id?: string })
  | Snapshot;

/** Several presences: all that were requested, or if `resumed`, those that changed since the connection was lost. */
export interface Snapshot {
  event: "snapshot";
  id?: string;
  presences: Presence[];
  typing: Typing[];
  resumed: boolean;
  /** The conversations the snapshot covers. */
  conversations?: string[];
  /** Polled, because there are more users than one connection may watch. */
  asked?: boolean;
}

/** A user's choice of how to appear. */
export interface StatusChoice {
  /** `auto` removes the choice. */
  choice: "auto" | "busy" | "away" | "invisible";
  text?: string;
  emoji?: string;
  /** How long choice and note last; until replaced if absent. */
  forSeconds?: number;
}

/** The part of the WebSocket API that the client uses; the class of `ws` fits. */
export type WebSocketClass = new (url: string) => {
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  send(text: string): void;
  close(): void;
};

/** Options of `connect()`. Times are in milliseconds. */
export interface Options {
  /** URL of the service, such as `https://presence.example.com`. */
  url: string;
  /** A token, or a function that returns one. It is called at first, before the token expires, and when it is refused. */
  token?: string | (() => string | Promise<string>);
  /** The user to connect as, where the service has no key: for development. */
  as?: string;
  /** Id of this device; by default one that the browser stores. */
  device?: string;
  /** Kind of the device; `web` by default. */
  kind?: "web" | "mobile" | "desktop" | "other";
  /** One connection for all tabs of the browser with the same user; true by default. */
  share?: boolean;
  /** Watch without being online. */
  watchOnly?: boolean;
  /** `auto`: a WebSocket, or server-sent events where WebSockets are blocked. */
  transport?: "auto" | "socket" | "events";
  /** How many users the service lets one connection watch; by default learnt when the service refuses more. */
  watchLimit?: number;
  /** How often users beyond that limit are polled; 30 s by default, ±20 %. */
  pollInterval?: number;
  /** How often activity is reported at most; 30 s by default. Keep it well below the service's `idle_after`. */
  activityInterval?: number;
  /** How long after the connection was lost presences count as stale; 30 s by default, the service's `grace`. */
  staleAfter?: number;
  /** How long every page has to be hidden before watching is paused; 5 min by default. */
  pauseAfter?: number;
  /** The service's `typing_ttl`; 5 s by default. */
  typingTtl?: number;
  /** False: connect only when `start()` is called. */
  start?: boolean;
  /** Replaces the global `WebSocket`. */
  WebSocket?: WebSocketClass;
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch;
}

/** Listeners of `on()`. */
export interface Listeners {
  status: (status: Status) => void;
  error: (error: RollcallError) => void;
  event: (event: ServiceEvent) => void;
}

/** A client of the service. */
export interface Rollcall {
  /** Calls back with the presence of each user, at first and on every change. A string is one user. Returns a function
   * that stops watching. */
  watch(users: Iterable<string>, callback: (presence: Presence, context: Context) => void): () => void;
  /** The known presence of a watched user. The same object until it changes. */
  get(user: string): Presence | undefined;
  /** Queries any number of users once, in order. */
  presence(users: Iterable<string>): Promise<Presence[]>;
  /** Sets how the user appears to others. */
  setStatus(choice: StatusChoice): Promise<void>;
  /** Call it on every keystroke: others see that the user types, until there is a pause. */
  typing(conversation: string): void;
  /** Ends typing at once, for example when the message is sent. */
  stopTyping(conversation: string): void;
  /** Calls back with the other users who type, at first and on every change. Returns a function that stops watching. */
  watchTyping(conversation: string, callback: (typists: string[]) => void): () => void;
  /** The other users known to type. The same array until it changes. */
  typists(conversation: string): string[];
  /** Reports activity of the user, where there is no page to observe it. */
  active(): void;
  /** The status of the connection. */
  readonly status: Status;
  /** Adds a listener. Returns a function that removes it. */
  on<Name extends keyof Listeners>(name: Name, listener: Listeners[Name]): () => void;
  /** Connects again after `close()`, or for the first time if `start` was false. */
  start(): void;
  /** Disconnects: the device goes offline at once, unless another tab stays open. Watches are kept for `start()`. */
  close(): Promise<void>;
}
