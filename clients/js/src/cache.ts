// What is known: of each person the newest state, in each conversation who types, and from where to resume.
//
// Every tab keeps the same book, because each is told the same events in the same order; so the tab that takes the
// connection over resumes where the other was. Nothing here waits, sends or calls back: applying an event answers what
// changed by it.

import type { Presence, ServiceEvent, Snapshot, Typing } from "./types.js";

/** Whom and what somebody watches. */
export interface Watched {
  users: string[];
  conversations: string[];
}

/** Nothing more is heard of anybody and anything else: it is watched no longer. Never leaves the package. */
export interface Kept extends Watched {
  event: "kept";
}

/** Whose presence and where typing changed. */
export interface Changes {
  users: Set<string>;
  conversations: Set<string>;
}

/** A sign of typing ends by itself after this many of the service's `typing_ttl`, whatever the clocks say. */
const MOST_TTLS = 2;

const NOBODY: string[] = [];

const unchanged = (): Changes => ({ users: new Set(), conversations: new Set() });

/** Whether both say the same. Objects of the service have their fields in one order. */
function alike(one: Presence, other: Presence): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** Whether this was overtaken by what is known. A person long offline has the version 0, a hidden one none: neither
 * can be compared, and both are derived at the moment of asking. */
export function isOlder(presence: Presence, known: Presence | undefined): boolean {
  return !!(presence.version && known?.version && presence.version < known.version);
}

/** A book. `self` is left out among typists. `now` is a clock that is never set, in milliseconds. */
export class Book {
  /** The last event's. */
  id: string | undefined;
  readonly #people = new Map<string, { presence: Presence; isPushed: boolean }>();
  readonly #rooms = new Map<string, Map<string, number>>();
  readonly #typists = new Map<string, string[]>();
  /** How far the service's clock is at least ahead of `now`: what it states to be past is past. */
  #ahead = -Infinity;

  constructor(
    readonly typingTtl: number,
    readonly now: () => number = () => performance.now(),
    public self?: string,
  ) {}

  get(user: string): Presence | undefined {
    return this.#people.get(user)?.presence;
  }

  typists(conversation: string): string[] {
    return this.#typists.get(conversation) ?? NOBODY;
  }

  /**
   * Those whom the service would tell of if they changed since `id`. Who was hidden is not among them: that
   * somebody is shown again is no change of theirs.
   */
  resumable(): Set<string> {
    const users = new Set<string>();
    if (this.id === undefined) return users;
    for (const [user, { presence, isPushed }] of this.#people) {
      if (isPushed && presence.state !== null) users.add(user);
    }
    return users;
  }

  /** Applies an event. `wanted`: of whom and what the last is kept although nobody tells of them any longer. */
  apply(event: ServiceEvent | Kept, wanted?: () => Watched): Changes {
    const changes = unchanged();
    if (event.event === "kept") {
      this.#forget(event, wanted?.() ?? event);
      return changes;
    }
    if (event.id !== undefined) this.id = event.id;
    if (event.event === "presence") {
      const { event: _, id: __, ...presence } = event;
      if (!isOlder(presence, this.get(presence.user))) this.#learn(presence, true, changes);
    } else if (event.event === "typing") {
      this.#type(event, changes);
    } else {
      this.#replace(event, changes);
    }
    return changes;
  }

  /** Forgets whose sign of typing has ended. Answers where, and after how long the next one ends. */
  expire(): { changes: Changes; next: number } {
    const changes = unchanged();
    let next = Infinity;
    for (const [conversation, room] of this.#rooms) {
      for (const [user, end] of room) {
        const left = end - this.now();
        if (left <= 0) this.#stop(conversation, user, changes);
        else next = Math.min(next, left);
      }
    }
    return { changes, next };
  }

  /** All of it, for a tab that comes: what is pushed, and what was asked for. */
  copy(): Snapshot[] {
    const typing = [...this.#rooms].flatMap(([conversation, room]) =>
      [...room].map(([user, end]) => ({ conversation, user, typing: true, until: Math.max(0, end + this.#ahead) })),
    );
    const people = (isAsked: boolean) =>
      [...this.#people.values()].filter(({ isPushed }) => isPushed !== isAsked).map(({ presence }) => presence);
    return [
      { event: "snapshot", presences: people(false), typing, resumed: true, id: this.id },
      { event: "snapshot", presences: people(true), typing: [], resumed: true, asked: true },
    ];
  }

  #replace({ presences, typing, resumed, conversations = [], asked }: Snapshot, changes: Changes): void {
    for (const presence of presences) {
      // What is whole is how everybody stands now, also where a store lost what it had told.
      const isTaken = !resumed || !isOlder(presence, this.get(presence.user));
      if (isTaken) this.#learn(presence, !asked, changes);
    }
    if (!resumed) {
      for (const conversation of conversations) {
        const types = new Set(typing.filter((sign) => sign.conversation === conversation).map(({ user }) => user));
        for (const user of this.#rooms.get(conversation)?.keys() ?? []) {
          if (!types.has(user)) this.#stop(conversation, user, changes);
        }
      }
    }
    for (const sign of typing) this.#type(sign, changes);
  }

  #learn(presence: Presence, isPushed: boolean, { users }: Changes): void {
    const entry = this.#people.get(presence.user);
    if (entry && alike(entry.presence, presence)) return void (entry.isPushed = isPushed);
    // What was decided has passed on the service's clock. Microseconds.
    if (presence.version) this.#ahead = Math.max(this.#ahead, presence.version / 1000 - this.now());
    this.#people.set(presence.user, { presence, isPushed });
    users.add(presence.user);
  }

  #type({ conversation, user, typing, until }: Typing, changes: Changes): void {
    if (!typing || until === null) return this.#stop(conversation, user, changes);
    if (user === this.self) return;
    const now = this.now();
    const room = this.#rooms.get(conversation) ?? new Map<string, number>();
    const isNew = !room.has(user);
    // If the service's clock is hardly known, this is too long; the service tells of the end too.
    room.set(user, Math.min(until - this.#ahead, now + this.typingTtl * MOST_TTLS));
    this.#rooms.set(conversation, room);
    if (isNew) this.#list(conversation, changes);
  }

  #stop(conversation: string, user: string, changes: Changes): void {
    if (this.#rooms.get(conversation)?.delete(user)) this.#list(conversation, changes);
  }

  #list(conversation: string, { conversations }: Changes): void {
    this.#typists.set(conversation, [...(this.#rooms.get(conversation)?.keys() ?? [])]);
    conversations.add(conversation);
  }

  #forget({ users, conversations }: Kept, wanted: Watched): void {
    const kept = new Set(users);
    const mine = new Set(wanted.users);
    for (const [user, entry] of this.#people) {
      if (kept.has(user)) continue;
      if (mine.has(user)) entry.isPushed = false;
      else this.#people.delete(user);
    }
    const rooms = [...conversations, ...wanted.conversations];
    for (const conversation of this.#rooms.keys()) {
      if (rooms.includes(conversation)) continue;
      this.#rooms.delete(conversation);
      this.#typists.delete(conversation);
    }
  }
}
