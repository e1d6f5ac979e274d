// What the two transports have in common, as seen by the line that uses one of them at a time.

import type { RollcallError } from "./error.js";
import type { Access, Ask } from "./http.js";
import type { ServiceEvent, WebSocketClass } from "./types.js";

/** From where to resume, and for whom that holds. Whoever was told of since is taken out by the wire. */
export interface Resume {
  id: string | undefined;
  users: Set<string>;
}

/** What a wire needs to know. */
export interface Opening {
  access: Access;
  ask: Ask;
  device: string;
  kind: string;
  watchOnly?: boolean;
  token: string | undefined;
  /** Whether the person opened the connection, and not the program by itself. */
  active: boolean;
  resume: Resume;
  /** Makes `resume` say where things stand now. */
  recall(): void;
  WebSocket: WebSocketClass | undefined;
}

/** Why a wire ended. */
export interface End {
  /** Whether it was ever open. */
  wasOpen: boolean;
  /** As a socket closes. */
  code?: number;
  /** What was answered instead of a stream. */
  error?: RollcallError;
  /** After how long the service wants us back. */
  afterMs?: number;
}

/** What a wire tells, never before the call that opened it has returned. */
export interface Ears {
  opened(): void;
  heard(event: ServiceEvent): void;
  /** Nothing happened up to here. */
  passed(id: string): void;
  /**
   * Something was refused; if it was to be watched, these. Answers whether what is wanted was changed, so that the
   * same is not refused again.
   */
  refused(error: RollcallError, users?: string[], conversations?: string[]): boolean;
  /** After how long the service wants the next sign of life. */
  nextBeat(ms: number): void;
  ended(end: End): void;
}

/** An open connection. */
export interface Wire {
  readonly isSocket: boolean;
  /** Watches these and nobody else. */
  watch(users: string[], conversations: string[]): void;
  /** The person is active. */
  beat(): void;
  /** The person types, or stopped. */
  type(conversation: string, typing: boolean): void;
  /** Goes on with a fresh token. */
  renew(token: string): void;
  /** Finds out whether anybody is at the other end, where that can be done. */
  probe?(): void;
  /** Ends it, silently; `leave`: the device is gone at once. */
  close(leave: boolean): Promise<void>;
}

/** The part of the address that says who connects and how. The service reads a plus sign as one. */
export function query({ access, device, kind, watchOnly, active }: Opening, token?: string): string {
  const said = { device, kind, active, watch_only: watchOnly, as: access.as, token };
  const given = Object.entries(said).filter(([, value]) => value !== undefined) as [string, string | boolean][];
  return given.map((pair) => pair.map(encodeURIComponent).join("=")).join("&");
}
