// Waits for conditions with a deadline, and records what a client reports.

import WebSocket from "ws";

import { connect, type Context, type Options, type Presence, type Rollcall, type RollcallError } from "../src/index.js";

/** How long a condition may take on a busy machine. */
export const DEADLINE_MS = 20_000;

/** Waits until `look` returns a truthy value, and returns it. `what` names the condition in the error. */
export async function until<T>(what: string, look: () => T | Promise<T>): Promise<NonNullable<T>> {
  const end = Date.now() + DEADLINE_MS;
  for (;;) {
    const found = await look();
    if (found) return found as NonNullable<T>;
    if (Date.now() > end) throw new Error(`timed out waiting until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** A client in Node that records its callbacks. */
export class RecordingClient {
  readonly rollcall: Rollcall;
  readonly calls: { presence: Presence; context: Context }[] = [];
  readonly errors: RollcallError[] = [];
  readonly statuses: string[] = [];
  readonly events: string[] = [];

  constructor(options: Options) {
    this.rollcall = connect({ WebSocket, ...options, start: false });
    this.rollcall.on("error", (error) => this.errors.push(error));
    this.rollcall.on("status", (status) => this.statuses.push(status));
    this.rollcall.on("event", (event) => {
      this.events.push(event.event === "snapshot" ? `snapshot ${event.resumed}` : event.event);
    });
    this.rollcall.start();
  }

  watch(...users: string[]): () => void {
    return this.rollcall.watch(users, (presence, context) => this.calls.push({ presence, context }));
  }

  /** The reported states of a user, in order. */
  states(user: string): (string | null)[] {
    return this.calls.filter(({ presence }) => presence.user === user).map(({ presence }) => presence.state);
  }

  /** Waits until the last reported state of a user is this one. */
  async sees(user: string, state: string | null): Promise<void> {
    await until(`${user} is ${state}, but ${this.states(user)}`, () => this.states(user).at(-1) === state);
  }

  async is(status: string): Promise<void> {
    await until(`${status}, but ${this.statuses}`, () => this.rollcall.status === status);
  }
}
