// Units without I/O: retry delays, the presence cache, typing signals, polling, tokens, the SSE parser.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

import { jittered, retryDelay, throttledDelay } from "../src/backoff.js";
import { PresenceCache } from "../src/cache.js";
import { RollcallError } from "../src/error.js";
import type { SendRequest } from "../src/http.js";
import { listenToPage } from "../src/page.js";
import { poller } from "../src/polling.js";
import { sseParser } from "../src/sse-parser.js";
import { claims, renewDelay, tokenSource } from "../src/token.js";
import type { Presence, Snapshot, State } from "../src/types.js";
import { typingSender } from "../src/typing.js";

function bob(state: State, version: number | null): Presence {
  return { user: "bob", state, since: 1, last_seen: 1, version, note: null };
}

const snapshot: Snapshot = { event: "snapshot", typing: [], presences: [], resumed: false };

describe("retries", () => {
  test("wait a random part of a doubling bound", () => {
    expect([0, 1, 2, 3].map((failures) => retryDelay(failures, 1))).toEqual([500, 1000, 2000, 4000]);
    expect(retryDelay(3, 0)).toBe(0);
    expect(retryDelay(3, 0.5)).toBe(2000);
    expect([7, 100, 5000].map((failures) => retryDelay(failures, 1))).toEqual([30_000, 30_000, 30_000]);
  });

  test("wait longer after throttling", () => {
    expect([throttledDelay(0), throttledDelay(1)]).toEqual([30_000, 60_000]);
  });

  test("spread regular intervals by 20 %", () => {
    expect([jittered(1000, 0), Math.round(jittered(1000, 1))]).toEqual([800, 1200]);
  });
});

describe("the presence cache", () => {
  test("reports an unchanged presence only once", () => {
    const cache = new PresenceCache(5000);
    expect([...cache.apply({ event: "presence", id: "1", ...bob("online", 5) }).users]).toEqual(["bob"]);
    expect(cache.apply({ event: "presence", id: "2", ...bob("online", 5) }).users.size).toBe(0);
    expect(cache.apply({ ...snapshot, presences: [bob("online", 5)] }).users.size).toBe(0);
    expect(cache.id).toBe("2");
  });

  test("ignores older versions except in full snapshots", () => {
    const cache = new PresenceCache(5000);
    cache.apply({ event: "presence", ...bob("busy", 6) });
    expect(cache.apply({ event: "presence", ...bob("online", 5) }).users.size).toBe(0);
    expect(cache.apply({ ...snapshot, presences: [bob("online", 5)], resumed: true }).users.size).toBe(0);
    expect(cache.get("bob")?.state).toBe("busy");
    expect(cache.apply({ ...snapshot, presences: [bob("online", 5)] }).users.size).toBe(1);
    expect(cache.get("bob")?.state).toBe("online");
  });

  test("accepts offline and hidden states without version", () => {
    const cache = new PresenceCache(5000);
    cache.apply({ event: "presence", ...bob("online", 6) });
    cache.apply({ event: "presence", ...bob("offline", 0) });
    expect(cache.get("bob")?.state).toBe("offline");
    cache.apply({ event: "presence", ...bob(null, null) });
    expect(cache.get("bob")?.state).toBe(null);
    cache.apply({ event: "presence", ...bob("online", 5) });
    expect(cache.get("bob")?.state).toBe("online");
  });

  test("resumes neither hidden nor polled users", () => {
    const cache = new PresenceCache(5000);
    const of = (user: string, state: State) => ({ ...bob(state, 5), user });
    cache.apply({ ...snapshot, id: "7", presences: [of("bob", "online"), of("carol", null)] });
    cache.apply({ ...snapshot, presences: [of("dave", "online")], resumed: true, asked: true });
    expect([...cache.resumable()]).toEqual(["bob"]);
    const other = new PresenceCache(5000);
    cache.toSnapshots().forEach((event) => other.apply(event));
    expect([...other.resumable()]).toEqual(["bob"]);
    expect(["bob", "carol", "dave"].map((user) => other.get(user)?.state)).toEqual(["online", null, "online"]);
    cache.apply({ event: "subscription", users: ["dave"], conversations: [] }, () => ({ users: ["bob"], conversations: [] }));
    expect([cache.get("bob")?.state, cache.get("carol")]).toEqual(["online", undefined]);
    expect(cache.resumable().size).toBe(0);
  });

  test("keeps typists of conversations this tab watches", () => {
    const cache = new PresenceCache(5000);
    const signal = (conversation: string) => ({ conversation, user: "bob", typing: true, until: Date.now() });
    cache.apply({ ...snapshot, typing: [signal("mine"), signal("another's")], conversations: ["mine", "another's"] });
    cache.apply({ event: "subscription", users: [], conversations: [] }, () => ({ users: [], conversations: ["mine"] }));
    expect([cache.typists("mine"), cache.typists("another's")]).toEqual([["bob"], []]);
    const changes = cache.apply({ ...snapshot, conversations: ["mine"] });
    expect([[...changes.conversations], cache.typists("mine")]).toEqual([["mine"], []]);
  });

  test("expires typing signals by the service's clock", () => {
    // The service's clock is at one million, ours starts at 0.
    let now = 100;
    const cache = new PresenceCache(5000, () => now);
    cache.apply({ event: "presence", ...bob("online", 1_000_000_000) });
    const typing = { event: "typing", conversation: "c", user: "bob", typing: true } as const;
    cache.apply({ ...typing, until: 1_003_000 });
    expect([cache.typists("c"), cache.expire().next]).toEqual([["bob"], 3000]);
    now += 2999;
    expect(cache.expire().changes.conversations.size).toBe(0);
    now += 1;
    expect([...cache.expire().changes.conversations]).toEqual(["c"]);
    expect(cache.typists("c")).toEqual([]);
  });

  test("bounds typing signals and omits the user themself", () => {
    let now = 0;
    const cache = new PresenceCache(5000, () => now);
    cache.self = "alice";
    const typing = { event: "typing", conversation: "c", typing: true, until: Date.now() } as const;
    cache.apply({ ...typing, user: "alice" });
    cache.apply({ ...typing, user: "bob" });
    expect(cache.typists("c")).toEqual(["bob"]);
    now = 10_000;
    cache.expire();
    expect(cache.typists("c")).toEqual([]);
  });

  test("replaces typists only by a full snapshot", () => {
    const cache = new PresenceCache(5000);
    const signal = (user: string) => ({ conversation: "c", user, typing: true, until: Date.now() });
    cache.apply({ ...snapshot, typing: [signal("bob")], conversations: ["c"] });
    const list = cache.typists("c");
    expect(cache.apply({ event: "typing", ...signal("bob") }).conversations.size).toBe(0);
    expect(cache.typists("c")).toBe(list);
    cache.apply({ ...snapshot, typing: [signal("carol")], conversations: ["c"], resumed: true });
    expect(cache.typists("c")).toEqual(["bob", "carol"]);
    cache.apply({ ...snapshot, typing: [signal("carol")], conversations: ["c"] });
    expect(cache.typists("c")).toEqual(["carol"]);
  });
});

describe("typing", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  /** The signals sent within a minute for keystrokes at these times. */
  function signals(keystrokes: number[], stopAt?: number): [number, boolean][] {
    const sent: [number, boolean][] = [];
    const start = Date.now();
    const typing = typingSender(5000, (_, typing) => sent.push([Date.now() - start, typing]));
    keystrokes.forEach((at) => setTimeout(() => typing.keystroke("c"), at));
    if (stopAt !== undefined) setTimeout(() => typing.stop("c"), stopAt);
    vi.advanceTimersByTime(60_000);
    return sent;
  }

  test("is sent debounced and ended after a pause", () => {
    expect(signals([0, 100, 200])).toEqual([[500, true], [2700, false]]);
  });

  test("is not sent for a short message", () => {
    expect(signals([0, 100], 300)).toEqual([]);
  });

  test("ends at once when the message is sent", () => {
    expect(signals([0, 100, 600], 700)).toEqual([[500, true], [700, false]]);
  });

  test("goes on when the clock is set back", () => {
    const keystrokes = Array.from({ length: 100 }, (_, place) => place * 100);
    setTimeout(() => vi.setSystemTime(0), 1000);
    expect(signals(keystrokes).length).toBeGreaterThan(4);
  });

  test("is renewed before it expires, within the rate", () => {
    for (const gap of [50, 900, 2400]) {
      const sent = signals(Array.from({ length: Math.floor(30_000 / gap) }, (_, place) => place * gap));
      const times = sent.filter(([, typing]) => typing).map(([at]) => at);
      const gaps = times.slice(1).map((at, place) => at - (times[place] ?? 0));
      expect(Math.max(...gaps)).toBeLessThan(5000);
      expect(Math.min(...gaps)).toBeGreaterThanOrEqual(1000);
      expect(sent.filter(([, typing]) => !typing).length).toBe(1);
    }
  });
});

describe("polling", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  /** A poller with an interval of 30 s, and what it queried, received and removed. An empty id is refused. */
  function recordedPoller() {
    const queried: string[][] = [];
    const removed: string[] = [];
    const sendRequest = async (_: string, __: string, { users }: { users: string[] }) => {
      queried.push(users);
      const place = users.indexOf("");
      if (place >= 0) throw new RollcallError({ status: 400, field: `users[${place}]` });
      return { presences: users.map((user) => ({ ...bob("online", 5), user })) };
    };
    const answered: string[] = [];
    const polling = poller(sendRequest as SendRequest, 30_000, {
      answered: (presences) => answered.push(...presences.map(({ user }) => user)),
      refused: ({ problem }, users) => {
        const place = Number(/\d+/.exec(problem.field ?? "")?.[0]);
        removed.push(users[place] ?? "none");
        polling.setUsers(listed.filter((user) => !removed.includes(user)));
        return true;
      },
    });
    let listed: string[] = [];
    const list = (wanted: string[]) => polling.setUsers((listed = wanted));
    return { polling, list, queried, answered, removed };
  }

  test("continues after a short disconnect", async () => {
    const { polling, list, queried } = recordedPoller();
    list(["bob"]);
    polling.setEnabled(true);
    await vi.advanceTimersByTimeAsync(1000);
    polling.setEnabled(false);
    polling.setEnabled(true);
    expect(queried.length, "just now").toBe(1);
    await vi.advanceTimersByTimeAsync(40_000);
    expect(queried.length).toBe(2);
  });

  test("queries users added while off once on", async () => {
    const { polling, list, queried } = recordedPoller();
    list(["bob"]);
    polling.setEnabled(true);
    polling.setEnabled(false);
    list(["bob", "carol"]);
    await vi.advanceTimersByTimeAsync(100_000);
    expect(queried).toEqual([["bob"]]);
    polling.setEnabled(true);
    list(["bob", "carol", "dave"]);
    await vi.advanceTimersByTimeAsync(1000);
    expect(queried).toEqual([["bob"], ["bob", "carol"], ["dave"]]);
  });

  test("removes an invalid id and queries the rest", async () => {
    const { polling, list, answered, removed } = recordedPoller();
    const many = Array.from({ length: 1100 }, (_, place) => (place === 700 ? "" : `user ${place}`));
    list(many);
    polling.setEnabled(true);
    await vi.advanceTimersByTimeAsync(1000);
    expect([removed, answered]).toEqual([[""], many.filter((user) => user !== "")]);
  });
});

test("the wheel counts as activity, scrolling does not", () => {
  const [page, active] = [new EventTarget(), vi.fn()];
  vi.stubGlobal("document", page);
  vi.stubGlobal("window", page);
  const unused = { visibilityChanged: vi.fn(), unloaded: vi.fn(), restored: vi.fn(), networkUp: vi.fn() };
  const end = listenToPage({ active, ...unused });
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

  test("are read without verification", () => {
    expect(claims(token({ sub: "bób?>", exp: 5 }))).toEqual({ sub: "bób?>", exp: 5 });
    expect([claims("opaque"), claims("a.b.c"), claims("")]).toEqual([{}, {}, {}]);
  });

  test("are renewed before they expire", () => {
    expect(renewDelay({ exp: 3600 }, 0)).toBe(3_540_000);
    expect(renewDelay({ exp: 100 }, 0)).toBe(80_000);
    expect([renewDelay({}, 0), renewDelay({ exp: 5 }, 10_000)]).toEqual([Infinity, Infinity]);
  });

  test("are requested once, again after a refusal", async () => {
    let asked = 0;
    const source = tokenSource(async () => token({ sub: `user ${++asked}`, exp: Date.now() / 1000 + 3600 }));
    const [one, other] = await Promise.all([source.get(), source.get()]);
    expect([asked, one === other, source.subject()]).toEqual([1, true, "user 1"]);
    expect(await source.get()).toBe(one);
    expect(await source.get(one)).not.toBe(one);
    expect(asked).toBe(2);
  });

  test("that fail reject, and are requested again", async () => {
    let asked = 0;
    const source = tokenSource(() => {
      if (++asked === 1) throw new Error("logged out");
      return "opaque";
    });
    await expect(source.get()).rejects.toMatchObject({ name: "RollcallError", title: "No token", status: 0 });
    expect(await source.get()).toBe("opaque");
    expect(source.renewIn()).toBe(Infinity);
  });
});

test("events are parsed from chunks of any size", () => {
  const stream = 'retry: 5\n\nevent: presence\nid: 17-0f\ndata: {"a":": b"}\n\nid: 18\n\n:\n\n';
  for (const size of [1, 2, 7, 1000]) {
    const parse = sseParser();
    const read = [];
    for (let at = 0; at < stream.length; at += size) read.push(...parse(stream.slice(at, at + size)));
    const events = read.filter(({ data, id }) => data ?? id);
    expect(events).toEqual([{ event: "presence", id: "17-0f", data: '{"a":": b"}' }, { id: "18" }]);
  }
});
