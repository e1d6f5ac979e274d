// The parts that wait for nothing: when to try again, what is older than what, which sign of typing goes out.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

import { jittered, longDelay, retryDelay } from "../src/backoff.js";
import { Book } from "../src/cache.js";
import { RollcallError } from "../src/error.js";
import type { Ask } from "../src/http.js";
import { listen } from "../src/page.js";
import { polling } from "../src/polling.js";
import { framer } from "../src/sse-parser.js";
import { claims, renewal, tokens } from "../src/token.js";
import type { Presence, Snapshot, State } from "../src/types.js";
import { typist } from "../src/typing.js";

function bob(state: State, version: number | null): Presence {
  return { user: "bob", state, since: 1, last_seen: 1, version, note: null };
}

const snapshot: Snapshot = { event: "snapshot", typing: [], presences: [], resumed: false };

describe("retries", () => {
  test("wait for a random part of a time that doubles, up to half a minute", () => {
    expect([0, 1, 2, 3].map((failures) => retryDelay(failures, 1))).toEqual([500, 1000, 2000, 4000]);
    expect(retryDelay(3, 0)).toBe(0);
    expect(retryDelay(3, 0.5)).toBe(2000);
    expect([7, 100, 5000].map((failures) => retryDelay(failures, 1))).toEqual([30_000, 30_000, 30_000]);
  });

  test("wait long for whoever asked for too much", () => {
    expect([longDelay(0), longDelay(1)]).toEqual([30_000, 60_000]);
  });

  test("are spread by a fifth where they are regular", () => {
    expect([jittered(1000, 0), Math.round(jittered(1000, 1))]).toEqual([800, 1200]);
  });
});

describe("a book", () => {
  test("tells a state once, however often it comes", () => {
    const book = new Book(5000);
    expect([...book.apply({ event: "presence", id: "1", ...bob("online", 5) }).users]).toEqual(["bob"]);
    expect(book.apply({ event: "presence", id: "2", ...bob("online", 5) }).users.size).toBe(0);
    expect(book.apply({ ...snapshot, presences: [bob("online", 5)] }).users.size).toBe(0);
    expect(book.id).toBe("2");
  });

  test("never goes back to an older version, unless everything is told anew", () => {
    const book = new Book(5000);
    book.apply({ event: "presence", ...bob("busy", 6) });
    expect(book.apply({ event: "presence", ...bob("online", 5) }).users.size).toBe(0);
    expect(book.apply({ ...snapshot, presences: [bob("online", 5)], resumed: true }).users.size).toBe(0);
    expect(book.get("bob")?.state).toBe("busy");
    expect(book.apply({ ...snapshot, presences: [bob("online", 5)] }).users.size).toBe(1);
    expect(book.get("bob")?.state).toBe("online");
  });

  test("believes that somebody is long gone or hidden, which have no version", () => {
    const book = new Book(5000);
    book.apply({ event: "presence", ...bob("online", 6) });
    book.apply({ event: "presence", ...bob("offline", 0) });
    expect(book.get("bob")?.state).toBe("offline");
    book.apply({ event: "presence", ...bob(null, null) });
    expect(book.get("bob")?.state).toBe(null);
    book.apply({ event: "presence", ...bob("online", 5) });
    expect(book.get("bob")?.state).toBe("online");
  });

  test("resumes for those whom it was told of, but not for who was hidden or asked about", () => {
    const book = new Book(5000);
    const of = (user: string, state: State) => ({ ...bob(state, 5), user });
    book.apply({ ...snapshot, id: "7", presences: [of("bob", "online"), of("carol", null)] });
    book.apply({ ...snapshot, presences: [of("dave", "online")], resumed: true, asked: true });
    expect([...book.resumable()]).toEqual(["bob"]);
    const other = new Book(5000);
    book.copy().forEach((event) => other.apply(event));
    expect([...other.resumable()]).toEqual(["bob"]);
    expect(["bob", "carol", "dave"].map((user) => other.get(user)?.state)).toEqual(["online", null, "online"]);
    book.apply({ event: "kept", users: ["dave"], conversations: [] }, () => ({ users: ["bob"], conversations: [] }));
    expect([book.get("bob")?.state, book.get("carol")]).toEqual(["online", undefined]);
    expect(book.resumable().size).toBe(0);
  });

  test("keeps who types where this tab looks, although whoever has the connection does not watch it yet", () => {
    const book = new Book(5000);
    const sign = (conversation: string) => ({ conversation, user: "bob", typing: true, until: Date.now() });
    book.apply({ ...snapshot, typing: [sign("mine"), sign("another's")], conversations: ["mine", "another's"] });
    book.apply({ event: "kept", users: [], conversations: [] }, () => ({ users: [], conversations: ["mine"] }));
    expect([book.typists("mine"), book.typists("another's")]).toEqual([["bob"], []]);
    const changes = book.apply({ ...snapshot, conversations: ["mine"] });
    expect([[...changes.conversations], book.typists("mine")]).toEqual([["mine"], []]);
  });

  test("ends a sign of typing by the service's clock, however wrong our own is", () => {
    // The service's clock is at a million, ours began at 0.
    let now = 100;
    const book = new Book(5000, () => now);
    book.apply({ event: "presence", ...bob("online", 1_000_000_000) });
    const typing = { event: "typing", conversation: "c", user: "bob", typing: true } as const;
    book.apply({ ...typing, until: 1_003_000 });
    expect([book.typists("c"), book.expire().next]).toEqual([["bob"], 3000]);
    now += 2999;
    expect(book.expire().changes.conversations.size).toBe(0);
    now += 1;
    expect([...book.expire().changes.conversations]).toEqual(["c"]);
    expect(book.typists("c")).toEqual([]);
  });

  test("ends a sign of typing in any case, and leaves out oneself", () => {
    let now = 0;
    const book = new Book(5000, () => now);
    book.self = "alice";
    const typing = { event: "typing", conversation: "c", typing: true, until: Date.now() } as const;
    book.apply({ ...typing, user: "alice" });
    book.apply({ ...typing, user: "bob" });
    expect(book.typists("c")).toEqual(["bob"]);
    now = 10_000;
    book.expire();
    expect(book.typists("c")).toEqual([]);
  });

  test("takes a whole snapshot as everybody who types there, and a resumed one as those who were added", () => {
    const book = new Book(5000);
    const sign = (user: string) => ({ conversation: "c", user, typing: true, until: Date.now() });
    book.apply({ ...snapshot, typing: [sign("bob")], conversations: ["c"] });
    const list = book.typists("c");
    expect(book.apply({ event: "typing", ...sign("bob") }).conversations.size).toBe(0);
    expect(book.typists("c")).toBe(list);
    book.apply({ ...snapshot, typing: [sign("carol")], conversations: ["c"], resumed: true });
    expect(book.typists("c")).toEqual(["bob", "carol"]);
    book.apply({ ...snapshot, typing: [sign("carol")], conversations: ["c"] });
    expect(book.typists("c")).toEqual(["carol"]);
  });
});

describe("typing", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  /** Strokes at these times, and the signs that go out with theirs, until a minute has passed. */
  function signs(strokes: number[], stopAt?: number): [number, boolean][] {
    const said: [number, boolean][] = [];
    const start = Date.now();
    const typing = typist(5000, (_, typing) => said.push([Date.now() - start, typing]));
    strokes.forEach((at) => setTimeout(() => typing.stroke("c"), at));
    if (stopAt !== undefined) setTimeout(() => typing.stop("c"), stopAt);
    vi.advanceTimersByTime(60_000);
    return said;
  }

  test("is said half a second after the first stroke, and ended after a pause", () => {
    expect(signs([0, 100, 200])).toEqual([[500, true], [2700, false]]);
  });

  test("is not said of a message that is sent before that", () => {
    expect(signs([0, 100], 300)).toEqual([]);
  });

  test("ends at once when the message is sent", () => {
    expect(signs([0, 100, 600], 700)).toEqual([[500, true], [700, false]]);
  });

  test("goes on when the clock is set back", () => {
    const strokes = Array.from({ length: 100 }, (_, place) => place * 100);
    setTimeout(() => vi.setSystemTime(0), 1000);
    expect(signs(strokes).length).toBeGreaterThan(4);
  });

  test("is renewed while it goes on, before the sign ends, and never twice a second", () => {
    for (const gap of [50, 900, 2400]) {
      const said = signs(Array.from({ length: Math.floor(30_000 / gap) }, (_, place) => place * gap));
      const times = said.filter(([, typing]) => typing).map(([at]) => at);
      const gaps = times.slice(1).map((at, place) => at - (times[place] ?? 0));
      expect(Math.max(...gaps)).toBeLessThan(5000);
      expect(Math.min(...gaps)).toBeGreaterThanOrEqual(1000);
      expect(said.filter(([, typing]) => !typing).length).toBe(1);
    }
  });
});

describe("polling", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  /** A polling every 30 s, whom it asked about, and whom it left out. A name that is empty is refused. */
  function polled() {
    const asked: string[][] = [];
    const leftOut: string[] = [];
    const ask = async (_: string, __: string, { users }: { users: string[] }) => {
      asked.push(users);
      const place = users.indexOf("");
      if (place >= 0) throw new RollcallError({ status: 400, field: `users[${place}]` });
      return { presences: users.map((user) => ({ ...bob("online", 5), user })) };
    };
    const answered: string[] = [];
    const people = polling(ask as Ask, 30_000, {
      answered: (presences) => answered.push(...presences.map(({ user }) => user)),
      refused: ({ problem }, users) => {
        const place = Number(/\d+/.exec(problem.field ?? "")?.[0]);
        leftOut.push(users[place] ?? "nobody");
        people.list(listed.filter((user) => !leftOut.includes(user)));
        return true;
      },
    });
    let listed: string[] = [];
    const list = (users: string[]) => people.list((listed = users));
    return { people, list, asked, answered, leftOut };
  }

  test("goes on after a connection that was lost for a moment", async () => {
    const { people, list, asked } = polled();
    list(["bob"]);
    people.turn(true);
    await vi.advanceTimersByTimeAsync(1000);
    people.turn(false);
    people.turn(true);
    expect(asked.length, "just now").toBe(1);
    await vi.advanceTimersByTimeAsync(40_000);
    expect(asked.length).toBe(2);
  });

  test("asks nobody while it is off, and about whoever came meanwhile when it is on", async () => {
    const { people, list, asked } = polled();
    list(["bob"]);
    people.turn(true);
    people.turn(false);
    list(["bob", "carol"]);
    await vi.advanceTimersByTimeAsync(100_000);
    expect(asked).toEqual([["bob"]]);
    people.turn(true);
    list(["bob", "carol", "dave"]);
    await vi.advanceTimersByTimeAsync(1000);
    expect(asked).toEqual([["bob"], ["bob", "carol"], ["dave"]]);
  });

  test("leaves out a name that is none, and asks about the others", async () => {
    const { people, list, answered, leftOut } = polled();
    const many = Array.from({ length: 1100 }, (_, place) => (place === 700 ? "" : `person ${place}`));
    list(many);
    people.turn(true);
    await vi.advanceTimersByTimeAsync(1000);
    expect([leftOut, answered]).toEqual([[""], many.filter((user) => user !== "")]);
  });
});

test("a wheel is a sign of somebody, and that a page scrolls is none", () => {
  const [page, active] = [new EventTarget(), vi.fn()];
  vi.stubGlobal("document", page);
  vi.stubGlobal("window", page);
  const ears = { active, visibility: vi.fn(), left: vi.fn(), back: vi.fn(), network: vi.fn() };
  const end = listen(ears);
  page.dispatchEvent(new Event("scroll"));
  expect(active).toHaveBeenCalledTimes(0);
  page.dispatchEvent(new Event("wheel"));
  expect(active).toHaveBeenCalledTimes(1);
  end();
  page.dispatchEvent(new Event("wheel"));
  expect(active).toHaveBeenCalledTimes(1);
  vi.unstubAllGlobals();
});

describe("tokens", () => {
  const token = (payload: object) => `x.${Buffer.from(JSON.stringify(payload)).toString("base64url")}.y`;

  test("are read without being checked", () => {
    expect(claims(token({ sub: "bób?>", exp: 5 }))).toEqual({ sub: "bób?>", exp: 5 });
    expect([claims("opaque"), claims("a.b.c"), claims("")]).toEqual([{}, {}, {}]);
  });

  test("are renewed a minute before they end, or when a fifth of a short life is left", () => {
    expect(renewal({ exp: 3600 }, 0)).toBe(3_540_000);
    expect(renewal({ exp: 100 }, 0)).toBe(80_000);
    expect([renewal({}, 0), renewal({ exp: 5 }, 10_000)]).toEqual([Infinity, Infinity]);
  });

  test("are asked for once, however many need one, and again when one was refused", async () => {
    let asked = 0;
    const source = tokens(async () => token({ sub: `person ${++asked}`, exp: Date.now() / 1000 + 3600 }));
    const [one, other] = await Promise.all([source.get(), source.get()]);
    expect([asked, one === other, source.subject()]).toEqual([1, true, "person 1"]);
    expect(await source.get()).toBe(one);
    expect(await source.get(one)).not.toBe(one);
    expect(asked).toBe(2);
  });

  test("that cannot be had reject with a problem, and are asked for again", async () => {
    let asked = 0;
    const source = tokens(() => {
      if (++asked === 1) throw new Error("logged out");
      return "opaque";
    });
    await expect(source.get()).rejects.toMatchObject({ name: "RollcallError", title: "No token", status: 0 });
    expect(await source.get()).toBe("opaque");
    expect(source.renewIn()).toBe(Infinity);
  });
});

test("events are read in whatever pieces they come", () => {
  const stream = 'retry: 5\n\nevent: presence\nid: 17-0f\ndata: {"a":": b"}\n\nid: 18\n\n:\n\n';
  for (const size of [1, 2, 7, 1000]) {
    const frames = framer();
    const read = [];
    for (let at = 0; at < stream.length; at += size) read.push(...frames(stream.slice(at, at + size)));
    const events = read.filter(({ data, id }) => data ?? id);
    expect(events).toEqual([{ event: "presence", id: "17-0f", data: '{"a":": b"}' }, { id: "18" }]);
  }
});
