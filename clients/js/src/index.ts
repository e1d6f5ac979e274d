// Entry point of the package. Importing it has no side effects, in a page or on a server.

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

/** Connects, and reconnects as needed until `close()`. */
export function connect(options: Options): Rollcall {
  return new Client(options);
}
