// What the client knows: each user's newest presence, who types in each conversation, and the event id to resume from.
//
// Every tab receives the same events in the same order and so holds the same cache; the tab that takes over the
// connection resumes where the last one was. The cache does no I/O and invokes no callbacks: applying an event returns what it
// changed.

import type { Presence, ServiceEvent, Snapshot, Typing } from "./types.js";

/** The users and conversations that are watched. */
export interface Subscription {
  users: string[];
  conversations: string[];
}

/** The subscription changed: everything outside it receives no more events. Internal to the package. */
export interface SubscriptionEvent extends Subscription {
  event: "subscription";
}

/** The users whose presence changed, and the conversations in which typing changed. */
export interface Changes {
  users: Set<string>;
  conversations: Set<string>;
}

/** A typing signal expires after at most this many `typing_ttl`, however wrong the clocks are. */
const MAX_TTLS = 2;

const NO_TYPISTS: string[] = [];

const noChanges = (): Changes => ({ users: new Set(), conversations: new Set() });

/** Whether two presences are equal. The service writes fields in a fixed order, so their JSON can be compared. */
function isEqual(one: Presence, other: Presence): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** Whether the known presence is newer. Users long offline have version 0 and hidden users have none; their state is
 * derived at the time of the query, so it cannot be compared and counts as new. */
export function isOlder(presence: Presence, known: Presence | undefined): boolean {
  return !!(presence.version && known?.version && presence.version < known.version);
}

/** `self` is left out of the typists. `now` is a monotonic clock in milliseconds. */
export class PresenceCache {
  /** The id of the last event. */
  id: string | undefined;
  readonly #entries = new Map<string, { presence: Presence; isPushed: boolean }>();
  /** Per conversation: who types, and until when. */
  readonly #typing = new Map<string, Map<string, number>>();
  readonly #typists = new Map<string, string[]>();
  /** Lower bound of the service's clock minus `now`. Versions prove it: they are times in the service's past. */
  #offset = -Infinity;

  constructor(
    readonly typingTtl: number,
    readonly now: () => number = () => performance.now(),
    public self?: string,
  ) {}

  get(user: string): Presence | undefined {
    return this.#entries.get(user)?.presence;
  }

  typists(conversation: string): string[] {
    return this.#typists.get(conversation) ?? NO_TYPISTS;
  }

  /**
   * The users for which resuming from `id` reports every change. Hidden users are not among them: becoming visible
   * again is not a change of the user's record.
   */
  resumable(): Set<string> {
    const users = new Set<string>();
    if (this.id === undefined) return users;
    for (const [user, { presence, isPushed }] of this.#entries) {
      if (isPushed && presence.state !== null) users.add(user);
    }
    return users;
  }

  /** Applies an event. `wanted` is what this tab watches: it is kept even while the connection does not watch it. */
  apply(event: ServiceEvent | SubscriptionEvent, wanted?: () => Subscription): Changes {
    const changes = noChanges();
    if (event.event === "subscription") {
      this.#prune(event, wanted?.() ?? event);
      return changes;
    }
    if (event.id !== undefined) this.id = event.id;
    if (event.event === "presence") {
      const { event: _, id: __, ...presence } = event;
      if (!isOlder(presence, this.get(presence.user))) this.#set(presence, true, changes);
    } else if (event.event === "typing") {
      this.#setTyping(event, changes);
    } else {
      this.#applySnapshot(event, changes);
    }
    return changes;
  }

  /** Removes expired typing signals. Returns the changes, and the milliseconds until the next one expires. */
  expire(): { changes: Changes; next: number } {
    const changes = noChanges();
    let next = Infinity;
    for (const [conversation, typing] of this.#typing) {
      for (const [user, end] of typing) {
        const left = end - this.now();
        if (left <= 0) this.#stopTyping(conversation, user, changes);
        else next = Math.min(next, left);
      }
    }
    return { changes, next };
  }

  /** The content as events, for a new tab: first what is pushed, then what is polled. */
  toSnapshots(): Snapshot[] {
    const typing = [...this.#typing].flatMap(([conversation, users]) =>
      [...users].map(([user, end]) => ({ conversation, user, typing: true, until: Math.max(0, end + this.#offset) })),
    );
    const presences = (isPolled: boolean) =>
      [...this.#entries.values()].filter(({ isPushed }) => isPushed !== isPolled).map(({ presence }) => presence);
    return [
      { event: "snapshot", presences: presences(false), typing, resumed: true, id: this.id },
      { event: "snapshot", presences: presences(true), typing: [], resumed: true, asked: true },
    ];
  }

  #applySnapshot({ presences, typing, resumed, conversations = [], asked }: Snapshot, changes: Changes): void {
    for (const presence of presences) {
      // A full snapshot is authoritative, even with older versions: the store may have lost records.
      const isTaken = !resumed || !isOlder(presence, this.get(presence.user));
      if (isTaken) this.#set(presence, !asked, changes);
    }
    if (!resumed) {
      for (const conversation of conversations) {
        const current = new Set(typing.filter((signal) => signal.conversation === conversation).map(({ user }) => user));
        for (const user of this.#typing.get(conversation)?.keys() ?? []) {
          if (!current.has(user)) this.#stopTyping(conversation, user, changes);
        }
      }
    }
    for (const signal of typing) this.#setTyping(signal, changes);
  }

  #set(presence: Presence, isPushed: boolean, { users }: Changes): void {
    const entry = this.#entries.get(presence.user);
    if (entry && isEqual(entry.presence, presence)) return void (entry.isPushed = isPushed);
    // A version is the time of the decision on the service's clock, in microseconds.
    if (presence.version) this.#offset = Math.max(this.#offset, presence.version / 1000 - this.now());
    this.#entries.set(presence.user, { presence, isPushed });
    users.add(presence.user);
  }

  #setTyping({ conversation, user, typing, until }: Typing, changes: Changes): void {
    if (!typing || until === null) return this.#stopTyping(conversation, user, changes);
    if (user === this.self) return;
    const now = this.now();
    const users = this.#typing.get(conversation) ?? new Map<string, number>();
    const isNew = !users.has(user);
    // While the offset is a loose bound, this is too late; the service reports the end as well.
    users.set(user, Math.min(until - this.#offset, now + this.typingTtl * MAX_TTLS));
    this.#typing.set(conversation, users);
    if (isNew) this.#updateTypists(conversation, changes);
  }

  #stopTyping(conversation: string, user: string, changes: Changes): void {
    if (this.#typing.get(conversation)?.delete(user)) this.#updateTypists(conversation, changes);
  }

  #updateTypists(conversation: string, { conversations }: Changes): void {
    this.#typists.set(conversation, [...(this.#typing.get(conversation)?.keys() ?? [])]);
    conversations.add(conversation);
  }

  #prune({ users, conversations }: SubscriptionEvent, wanted: Subscription): void {
    const watched = new Set(users);
    const mine = new Set(wanted.users);
    for (const [user, entry] of this.#entries) {
      if (watched.has(user)) continue;
      if (mine.has(user)) entry.isPushed = false;
      else this.#entries.delete(user);
    }
    const kept = [...conversations, ...wanted.conversations];
    for (const conversation of this.#typing.keys()) {
      if (kept.includes(conversation)) continue;
      this.#typing.delete(conversation);
      this.#typists.delete(conversation);
    }
  }
}
