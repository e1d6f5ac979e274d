// Waiting for conditions, with a deadline, and listening to what a client tells.

import WebSocket from "ws";

import { connect, type Context, type Options, type Presence, type Rollcall, type RollcallError } from "../src/index.js";

/** How long anything may take on a busy machine. */
export const DEADLINE_MS = 20_000;

/** Waits until this answers something true; answers that. `what` is said when it never does. */
export async function until<T>(what: string, look: () => T | Promise<T>): Promise<NonNullable<T>> {
  const end = Date.now() + DEADLINE_MS;
  for (;;) {
    const found = await look();
    if (found) return found as NonNullable<T>;
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** A client in Node, and everything that it told. */
export class Listener {
  readonly rollcall: Rollcall;
  readonly told: { presence: Presence; context: Context }[] = [];
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
    return this.rollcall.watch(users, (presence, context) => this.told.push({ presence, context }));
  }

  /** The states that were told of somebody, in order. */
  states(user: string): (string | null)[] {
    return this.told.filter(({ presence }) => presence.user === user).map(({ presence }) => presence.state);
  }

  /** Waits until somebody was last told to be so. */
  async sees(user: string, state: string | null): Promise<void> {
    await until(`${user} is ${state}, but ${this.states(user)}`, () => this.states(user).at(-1) === state);
  }

  async is(status: string): Promise<void> {
    await until(`${status}, but ${this.statuses}`, () => this.rollcall.status === status);
  }
}
