// Presence in five lines: who is here, who types, and being here oneself.
//
// Importing this does nothing: not in a page, not on a server.

import { Client } from "./client.js";
import type { Options, Rollcall } from "./types.js";

export { RollcallError } from "./error.js";
export type {
  Context,
  Listeners,
  Note,
  Options,
  Presence,
  Rollcall,
  ServiceEvent,
  Snapshot,
  State,
  Status,
  StatusChoice,
  Typing,
  WebSocketClass,
} from "./types.js";

/** Connects, and stays connected until `close()`. */
export function connect(options: Options): Rollcall {
  return new Client(options);
}
