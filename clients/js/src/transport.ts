// What the two transports, WebSocket and server-sent events, have in common. A connection uses one at a time.

import type { RollcallError } from "./error.js";
import type { Access, SendRequest } from "./http.js";
import type { ServiceEvent, WebSocketClass } from "./types.js";

/** The event id to resume from, and the users it is valid for. The transport removes a user once it received their
 * state. */
export interface ResumePoint {
  id: string | undefined;
  users: Set<string>;
}

/** Options of a transport. */
export interface TransportOptions {
  access: Access;
  sendRequest: SendRequest;
  device: string;
  kind: string;
  watchOnly?: boolean;
  token: string | undefined;
  /** Whether the user caused the connection, rather than a reconnect. */
  active: boolean;
  resume: ResumePoint;
  /** Updates `resume` to what is known now. */
  updateResume(): void;
  WebSocket: WebSocketClass | undefined;
}

/** Why a transport ended. */
export interface End {
  /** Whether it was ever open. */
  wasOpen: boolean;
  /** The WebSocket close code. */
  code?: number;
  /** The response, if it was not a stream. */
  error?: RollcallError;
  /** When to reconnect, if the service said so. */
  afterMs?: number;
}

/** Handlers of a transport. None is called before the transport's constructor has returned. */
export interface TransportHandlers {
  opened(): void;
  received(event: ServiceEvent): void;
  /** Nothing happened up to this event id. */
  advanced(id: string): void;
  /**
   * The service refused something; `users` and `conversations` are those it refused to watch. Returns whether the
   * subscription was changed, so that the same request is not repeated.
   */
  refused(error: RollcallError, users?: string[], conversations?: string[]): boolean;
  /** Milliseconds until the service expects the next heartbeat. */
  nextBeat(ms: number): void;
  ended(end: End): void;
}

/** A connection to the service. */
export interface Transport {
  readonly isSocket: boolean;
  /** Replaces the subscription. */
  watch(users: string[], conversations: string[]): void;
  /** Reports that the user is active. */
  beat(): void;
  /** Sends a typing update. */
  type(conversation: string, typing: boolean): void;
  /** Replaces the token. */
  renew(token: string): void;
  /** Checks that the service still responds, where the transport can. */
  probe?(): void;
  /** Ends without calling `ended`. `leave` also ends the device's presence at once. */
  close(leave: boolean): Promise<void>;
}

/** The query string that identifies the client. Not `URLSearchParams`: it writes a space as `+`, which the service reads
 * literally. */
export function connectionQuery({ access, device, kind, watchOnly, active }: TransportOptions, token?: string): string {
  const fields = { device, kind, active, watch_only: watchOnly, as: access.as, token };
  const given = Object.entries(fields).filter(([, value]) => value !== undefined) as [string, string | boolean][];
  return given.map((pair) => pair.map(encodeURIComponent).join("=")).join("&");
}
