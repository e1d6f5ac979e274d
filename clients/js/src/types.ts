// What the package says and is told: the types of its surface, and the shapes that the service sends.
//
// Names of fields are the service's own, so that what a program reads here is what `openapi.json` describes.

import type { RollcallError } from "./error.js";

/** How somebody stands. Null: hidden from whoever asks, and then everything else is null too. */
export type State = "online" | "away" | "busy" | "offline" | null;

/** What somebody wrote beside their state. */
export interface Note {
  text: string;
  emoji: string;
  /** When it falls away; null: when it is replaced. Unix milliseconds. */
  until: number | null;
}

/** What is known of somebody. */
export interface Presence {
  user: string;
  state: State;
  /** When the state began; for `offline`, the last time seen. Unix milliseconds. */
  since: number | null;
  last_seen: number | null;
  version: number | null;
  note: Note | null;
  /** One's own choice, told to oneself alone. */
  choice?: { choice: "busy" | "away" | "invisible"; until: number | null };
}

/** What a callback is told beside a presence. */
export interface Context {
  /**
   * True when the connection has been lost for longer than `staleAfter`: what is known may be out of date. Callbacks
   * are called once when it becomes true and once when it is false again, with the presence as it is then known.
   */
  stale: boolean;
}

/**
 * How the connection stands. `connecting`: on its way, for the first time or again, and what is known still counts;
 * `offline`: lost for longer than `staleAfter`; `paused`: every page is hidden, nothing need be watched, the person is
 * still here; `closed`: by `close()`, or the page is left.
 */
export type Status = "connecting" | "online" | "offline" | "paused" | "closed";

/** One sign of typing, or its end. */
export interface Typing {
  conversation: string;
  user: string;
  typing: boolean;
  until: number | null;
}

/** What the service tells; `id` is where to resume. Answers to long lists come as a snapshot without one. */
export type ServiceEvent =
  | (Presence & { event: "presence"; id?: string })
  | (Typing & { event: "typing"; id?: string })
  | Snapshot;

/** Several at once: all that was asked for, or if `resumed`, what changed since the connection was lost. */
export interface Snapshot {
  event: "snapshot";
  id?: string;
  presences: Presence[];
  typing: Typing[];
  resumed: boolean;
  /** The conversations that it is about. */
  conversations?: string[];
  /** Asked for by a query, because the service does not let one connection watch so many. */
  asked?: boolean;
}

/** What a person chooses to be seen as. */
export interface StatusChoice {
  /** `auto` takes the choice back. */
  choice: "auto" | "busy" | "away" | "invisible";
  text?: string;
  emoji?: string;
  /** For how long, choice and note alike; until replaced if absent. */
  forSeconds?: number;
}

/** What is used of a WebSocket, so that another one can be given where there is none, such as that of `ws`. */
export type WebSocketClass = new (url: string) => {
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  send(text: string): void;
  close(): void;
};

/** How to connect. Times are in milliseconds. */
export interface Options {
  /** Where the service is, such as `https://presence.example.com`. */
  url: string;
  /** The token, or what gets one: called at first, before it expires, and when it is refused. */
  token?: string | (() => string | Promise<string>);
  /** Who is asking, where the service has no key: on a developer's machine. */
  as?: string;
  /** The name of this device; by default one that is kept in the browser. */
  device?: string;
  /** Of what kind the device is; `web` by default. */
  kind?: "web" | "mobile" | "desktop" | "other";
  /** One connection for all tabs of the browser that connect as the same person; true by default. */
  share?: boolean;
  /** Watches without being here. */
  watchOnly?: boolean;
  /** `auto`: a WebSocket, and server-sent events where sockets are blocked. */
  transport?: "auto" | "socket" | "events";
  /** How many people the service lets one connection watch; by default, that is learnt when it refuses more. */
  watchLimit?: number;
  /** How often those are asked about who are more than that; 30 s by default, give or take a fifth. */
  pollInterval?: number;
  /**
   * How often at most it is reported that the person is active; 30 s by default. Well below the service's
   * `idle_after`.
   */
  activityInterval?: number;
  /** How long after the connection was lost what is known counts as stale; 30 s by default, the service's `grace`. */
  staleAfter?: number;
  /** After how long with every page hidden nothing is watched any more; 5 min by default. */
  pauseAfter?: number;
  /** The service's `typing_ttl`; 5 s by default. */
  typingTtl?: number;
  /** False: nothing happens before `start()`. */
  start?: boolean;
  /** Instead of the global one. */
  WebSocket?: WebSocketClass;
  /** Instead of the global one. */
  fetch?: typeof fetch;
}

/** What listeners are called with, by the name of what they listen to. */
export interface Listeners {
  status: (status: Status) => void;
  error: (error: RollcallError) => void;
  event: (event: ServiceEvent) => void;
}

/** A connection. */
export interface Rollcall {
  /** Calls back with each one's state at first and whenever it changes. A name alone is one person. Answers its own
   * end. */
  watch(users: Iterable<string>, callback: (presence: Presence, context: Context) => void): () => void;
  /** What is known now of somebody who is watched. The same object until it changes. */
  get(user: string): Presence | undefined;
  /** Asks once, about any number, in the order asked. */
  presence(users: Iterable<string>): Promise<Presence[]>;
  /** Chooses how to be seen. */
  setStatus(choice: StatusChoice): Promise<void>;
  /** To be called on every keystroke: others are told that the person types, until there is a pause. */
  typing(conversation: string): void;
  /** Ends it at once, such as when the message is sent. */
  stopTyping(conversation: string): void;
  /** Calls back with who else types, at first and whenever it changes. Answers its own end. */
  watchTyping(conversation: string, callback: (typists: string[]) => void): () => void;
  /** Who else types, as far as is known now. The same array until it changes. */
  typists(conversation: string): string[];
  /** Says that the person did something, where the package cannot see it: outside a page. */
  active(): void;
  /** How the connection stands. */
  readonly status: Status;
  /** Listens. Answers its own end. */
  on<Name extends keyof Listeners>(name: Name, listener: Listeners[Name]): () => void;
  /** Connects again after `close()`, or for the first time where `start` was false. */
  start(): void;
  /** Leaves: this device is gone at once, unless another tab goes on. What is watched is kept for `start()`. */
  close(): Promise<void>;
}
