// The client in Node, against a real host.

import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterEach, beforeAll, describe, expect, test, vi } from "vitest";

import type { Options, RollcallError } from "../src/index.js";
import { Host, mint } from "./host.js";
import { Proxy } from "./proxy.js";
import { Listener, until } from "./recorder.js";

const TRANSPORTS = ["socket", "events"] as const;
const cleanup: (() => unknown)[] = [];

afterEach(async () => {
  for (const end of cleanup.splice(0).reverse()) await end();
});

function listener(options: Options): Listener {
  const made = new Listener(options);
  cleanup.push(() => made.rollcall.close());
  return made;
}

async function started(...flags: string[]): Promise<Host> {
  const host = await Host.start(flags);
  cleanup.push(() => host.remove());
  return host;
}

async function proxied(host: Host): Promise<Proxy> {
  const proxy = await Proxy.start(host.port);
  cleanup.push(() => proxy.stop());
  return proxy;
}

describe.each(TRANSPORTS)("by %s", (transport) => {
  let host: Host;

  beforeAll(async () => {
    host = await Host.start();
    return () => host.remove();
  });

  const as = (name: string) => listener({ url: host.url, as: `${name} by ${transport}`, transport });
  const called = (name: string) => `${name} by ${transport}`;

  test("a watcher is told of each at first and of every change, and being connected is being here", async () => {
    const alice = as("alice");
    alice.watch(called("bob"), called("carol"));
    await alice.sees(called("bob"), "offline");
    await alice.sees(called("carol"), "offline");
    const bob = as("bob");
    await alice.sees(called("bob"), "online");
    await bob.rollcall.setStatus({ choice: "busy", text: "in a meeting", emoji: "📅", forSeconds: 60 });
    await alice.sees(called("bob"), "busy");
    expect(alice.rollcall.get(called("bob"))?.note).toMatchObject({ text: "in a meeting", emoji: "📅" });
    await bob.rollcall.setStatus({ choice: "auto" });
    await alice.sees(called("bob"), "online");
    await bob.rollcall.close();
    await alice.sees(called("bob"), "offline");
    expect(alice.states(called("bob"))).toEqual(["offline", "online", "busy", "online", "offline"]);
    expect(alice.states(called("carol"))).toEqual(["offline"]);
    expect(alice.told.every(({ context }) => !context.stale)).toBe(true);
    expect([...alice.errors, ...bob.errors]).toEqual([]);
  });

  test.each(["zoë", "名前"])("a name may have any letters: %s", async (name) => {
    const [zoe, alice] = [as(name), as("alice")];
    alice.watch(called(name));
    await alice.sees(called(name), "online");
    await zoe.rollcall.setStatus({ choice: "busy" });
    await alice.sees(called(name), "busy");
    expect((await zoe.rollcall.presence([called(name)]))[0]).toMatchObject({ user: called(name), state: "busy" });
    await zoe.rollcall.close();
    await alice.sees(called(name), "offline");
    expect([...alice.errors, ...zoe.errors]).toEqual([]);
  });

  test("whom to watch may change, and who is watched no longer is told of no longer", async () => {
    const erin = as("erin");
    const stop = erin.watch(called("frank"));
    await erin.sees(called("frank"), "offline");
    erin.watch(called("grace"));
    await erin.sees(called("grace"), "offline");
    stop();
    await host.beat(called("frank"));
    await host.beat(called("grace"));
    await erin.sees(called("grace"), "online");
    expect(erin.states(called("frank"))).toEqual(["offline"]);
    // Whom to watch changes so often and no oftener.
    await until("frank is forgotten", () => !erin.rollcall.get(called("frank")));
    erin.watch(called("frank"));
    await until("frank is told of anew", () => erin.states(called("frank")).length > 1);
  });

  test("a name alone is one person", async () => {
    const olivia = as("olivia");
    olivia.rollcall.watch(called("walter"), (presence, context) => olivia.told.push({ presence, context }));
    await olivia.sees(called("walter"), "offline");
    expect(olivia.told.length).toBe(1);
  });

  test("strokes become one sign that others see, and none after the message is sent", async () => {
    const [heidi, ivan] = [as("heidi"), as("ivan")];
    const typists: string[][] = [];
    heidi.rollcall.watchTyping("room 1/2", (now) => typists.push(now));
    ivan.rollcall.watchTyping("room 1/2", () => {});
    await heidi.is("online");
    await ivan.is("online");
    await until("heidi watches the room", () => heidi.events.length > 0);
    const stroking = setInterval(() => ivan.rollcall.typing("room 1/2"), 50);
    cleanup.push(() => clearInterval(stroking));
    await until("ivan types", () => typists.at(-1)?.length === 1);
    clearInterval(stroking);
    ivan.rollcall.stopTyping("room 1/2");
    await until("ivan stopped", () => typists.at(-1)?.length === 0);
    expect(typists).toEqual([[], [called("ivan")], []]);
    expect(ivan.rollcall.typists("room 1/2"), "one does not see oneself type").toEqual([]);
  });

  test("whoever is hidden has no state, and one again when they are shown", async () => {
    await host.ask(called("judy"), "PUT", `/v1/blocks/${encodeURIComponent(called("mallory"))}`);
    const mallory = as("mallory");
    mallory.watch(called("judy"));
    await mallory.sees(called("judy"), null);
    const nothing = { state: null, since: null, last_seen: null, version: null, note: null };
    expect(mallory.rollcall.get(called("judy"))).toEqual({ user: called("judy"), ...nothing });
    await host.ask(called("judy"), "DELETE", `/v1/blocks/${encodeURIComponent(called("mallory"))}`);
    await mallory.sees(called("judy"), "offline");
  });

  test("more people than one connection may watch are told of all the same", async () => {
    const many = Array.from({ length: 1203 }, (_, place) => called(`person ${place}`));
    const oscar = listener({ url: host.url, as: called("oscar"), transport, pollInterval: 300 });
    oscar.watch(...many);
    await until("everybody was told of", () => many.every((user) => oscar.rollcall.get(user)));
    expect(oscar.told.length).toBe(many.length);
    const [first, last] = [many[0] ?? "", many.at(-1) ?? ""];
    await host.beat(first);
    await host.beat(last);
    await oscar.sees(first, "online");
    await oscar.sees(last, "online");
    expect(oscar.told.length).toBe(many.length + 2);
    expect(oscar.errors).toEqual([]);
    expect((await oscar.rollcall.presence(many)).map(({ user }) => user)).toEqual(many);
  });

  test("a name that is none is told as an error, and takes nobody with it", async () => {
    const peggy = as("peggy");
    peggy.watch(called("rupert"), "", called("sybil"));
    await peggy.sees(called("rupert"), "offline");
    await peggy.sees(called("sybil"), "offline");
    await until("the error", () => peggy.errors.length > 0);
    expect(peggy.errors[0]).toMatchObject({ name: "RollcallError", status: 400, problem: { field: "users[1]" } });
  });

  test("a name that is none takes nobody with it either among those who are asked about", async () => {
    const quentin = listener({ url: host.url, as: called("quentin"), transport, watchLimit: 1 });
    quentin.watch(called("first"), called("second"), "", called("last"));
    for (const name of ["first", "second", "last"]) await quentin.sees(called(name), "offline");
    expect(quentin.errors.map(({ status, problem }) => [status, problem.field])).toEqual([[400, "users[1]"]]);
  });

  test("a list that changes all the time is no flood, and ends as it was last wanted", async () => {
    const uma = as("uma");
    uma.watch(called("always"));
    await uma.sees(called("always"), "offline");
    let stop = () => {};
    for (let change = 0; change < 200; change++) {
      stop();
      stop = uma.watch(called(`row ${change}`), called(`row ${change + 1}`));
      // Each change on its own, as rows come and go with every frame.
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    await uma.sees(called("row 199"), "offline");
    await uma.sees(called("row 200"), "offline");
    for (const name of ["row 3", "row 200", "always"]) await host.beat(called(name));
    await uma.sees(called("row 200"), "online");
    await uma.sees(called("always"), "online");
    expect(uma.rollcall.get(called("row 3"))).toBe(undefined);
    expect(uma.statuses).toEqual(["connecting", "online"]);
    expect(uma.errors).toEqual([]);
  });

  test("whoever leaves and comes back at once is here", async () => {
    const yves = as("yves");
    yves.watch(called("zara"));
    const zara = as("zara");
    await yves.sees(called("zara"), "online");
    const left = zara.rollcall.close();
    zara.rollcall.start();
    await left;
    await zara.is("online");
    await zara.rollcall.setStatus({ choice: "busy" });
    await yves.sees(called("zara"), "busy");
    await host.ask(called("zara"), "PUT", "/v1/status", { choice: "auto" });
    await yves.sees(called("zara"), "online");
    expect(zara.statuses).toEqual(["connecting", "online", "closed", "connecting", "online"]);
    expect(yves.states(called("zara")).slice(-2), "busy at once, and nothing after").toEqual(["busy", "online"]);
  });

  test("whoever leaves for a second flickers for nobody", async () => {
    const proxy = await proxied(host);
    const trent = as("trent");
    trent.watch(called("victor"));
    await trent.sees(called("victor"), "offline");
    const victor = listener({ url: proxy.url, as: called("victor"), transport, device: "laptop" });
    await trent.sees(called("victor"), "online");
    proxy.cut();
    await victor.is("connecting");
    proxy.mend();
    await victor.is("online");
    await host.ask(called("victor"), "PUT", "/v1/status", { choice: "busy" });
    await trent.sees(called("victor"), "busy");
    expect(trent.states(called("victor"))).toEqual(["offline", "online", "busy"]);
  });
});

test("a watcher resumes when the host is killed and comes back, and is told nothing twice", async () => {
  const folder = mkdtempSync(join(tmpdir(), "rollcall-client-"));
  const first = await Host.start([], folder);
  cleanup.push(() => first.remove());
  const alice = listener({ url: first.url, as: "alice" });
  const bob = listener({ url: first.url, as: "bob" });
  alice.watch("bob", "carol");
  await alice.sees("bob", "online");
  await first.stop("SIGKILL");
  await alice.is("connecting");
  const second = await Host.start(["--listen", `127.0.0.1:${first.port}`], folder);
  cleanup.push(() => second.stop("SIGKILL"));
  await alice.is("online");
  await bob.is("online");
  await second.ask("carol", "POST", "/v1/heartbeat", { device: "phone" });
  await alice.sees("carol", "online");
  expect(alice.states("carol")).toEqual(["offline", "online"]);
  await alice.sees("bob", "online");
  const bobs = alice.told.map(({ presence }) => JSON.stringify(presence)).filter((text) => text.includes('"bob"'));
  expect(bobs.filter((one, place) => one === bobs[place - 1])).toEqual([]);
  expect(alice.told.every(({ context }) => !context.stale)).toBe(true);
});

test.each(TRANSPORTS)("by %s, what happened while it was broken is told, and nothing else", async (transport) => {
  const host = await started();
  const proxy = await proxied(host);
  const alice = listener({ url: proxy.url, as: "alice", transport });
  await host.ask("dave", "PUT", "/v1/blocks/alice");
  await host.ask("bob", "PUT", "/v1/status", { choice: "busy" });
  await host.beat("dave");
  alice.watch("bob", "carol", "dave");
  await alice.sees("dave", null);
  await alice.sees("carol", "offline");
  proxy.cut();
  await alice.is("connecting");
  const beating = setInterval(() => void host.beat("dave").catch(() => {}), 300);
  cleanup.push(() => clearInterval(beating));
  const carol = listener({ url: host.url, as: "carol" });
  await carol.is("online");
  // That somebody is shown again is no change of theirs: their state may be older than what alice heard last.
  await host.ask("dave", "DELETE", "/v1/blocks/alice");
  alice.events.length = 0;
  proxy.mend();
  await alice.sees("carol", "online");
  await alice.sees("dave", "online");
  expect([alice.states("bob").length, alice.states("carol"), alice.states("dave")]).toEqual([
    1,
    ["offline", "online"],
    [null, "online"],
  ]);
});

test("what did not change is not told again after a connection that broke", async () => {
  const host = await started();
  const proxy = await proxied(host);
  const alice = listener({ url: proxy.url, as: "alice" });
  const carol = listener({ url: host.url, as: "carol" });
  await carol.is("online");
  alice.watch("bob", "carol");
  await alice.sees("carol", "online");
  proxy.cut();
  await alice.is("connecting");
  await carol.rollcall.setStatus({ choice: "busy" });
  alice.events.length = 0;
  proxy.mend();
  await alice.sees("carol", "busy");
  expect(alice.events[0]).toBe("snapshot true");
  expect([alice.states("bob"), alice.states("carol")]).toEqual([["offline"], ["online", "busy"]]);
});

test.each(TRANSPORTS)("by %s, more conversations than messages may be sent at once are watched", async (transport) => {
  const host = await started("--watch-limit", "200");
  const alice = listener({ url: host.url, as: "alice", transport });
  const rooms = Array.from({ length: 150 }, (_, place) => `room ${place}`);
  const heard = new Set<string>();
  for (const room of rooms) alice.rollcall.watchTyping(room, ([typist]) => typist && heard.add(room));
  const watched = () => host.metric("rollcall_watched_conversations");
  await until("all are watched", async () => (await watched()) === rooms.length);
  for (const room of ["room 0", "room 149"]) await host.ask("bob", "PUT", `/v1/typing/${encodeURIComponent(room)}`);
  await until("the first and the last", () => heard.size === 2);
  expect([alice.statuses, alice.errors]).toEqual([["connecting", "online"], []]);
});

test("those who are asked about are asked about again after a connection that broke", async () => {
  const host = await started();
  const proxy = await proxied(host);
  const alice = listener({ url: proxy.url, as: "alice", watchLimit: 1, pollInterval: 200 });
  alice.watch("bob", "carol");
  await alice.sees("carol", "offline");
  proxy.cut();
  await alice.is("connecting");
  proxy.mend();
  await alice.is("online");
  await host.beat("carol");
  await alice.sees("carol", "online");
});

test("a stream that is answered late does not take the place of a newer one", async () => {
  const host = await started();
  let streams = 0;
  const late: typeof fetch = async (url, request) => {
    const place = String(url).includes("/v1/subscribe") ? ++streams : 0;
    // The first is answered when the second was asked for, and that one when the first is there.
    if (place === 1) await until("another is asked for", () => streams === 2);
    if (place === 2) await until("the first is there", () => alice.rollcall.get("bob"));
    return fetch(url, request);
  };
  const alice = listener({ url: host.url, as: "alice", transport: "events", fetch: late });
  alice.watch("bob");
  await until("a stream is asked for", () => streams === 1);
  alice.watch("carol");
  await alice.sees("bob", "offline");
  await alice.sees("carol", "offline");
});

test("after the grace what is known is stale, and is told so once; then it is not", async () => {
  const host = await started();
  const proxy = await proxied(host);
  const alice = listener({ url: proxy.url, as: "alice", staleAfter: 100 });
  alice.watch("bob");
  await alice.sees("bob", "offline");
  proxy.cut();
  await alice.is("offline");
  await until("stale", () => alice.told.length === 2);
  expect(alice.told[1]).toMatchObject({ presence: { user: "bob", state: "offline" }, context: { stale: true } });
  proxy.mend();
  await alice.is("online");
  await until("fresh", () => alice.told.length === 3);
  expect(alice.told[2]?.context).toEqual({ stale: false });
  proxy.cut();
  await until("stale again", () => alice.told.length === 4);
  await alice.rollcall.close();
  expect(alice.told.length, "leaving makes nothing fresh").toBe(4);
});

test("where sockets are blocked, events take their place, and somebody is here all the same", async () => {
  const host = await started();
  const proxy = await proxied(host);
  proxy.blocksSockets = true;
  const alice = listener({ url: host.url, as: "alice" });
  alice.watch("bob");
  const bob = listener({ url: proxy.url, as: "bob" });
  bob.watch("alice");
  await bob.sees("alice", "online");
  await alice.sees("bob", "online");
  expect(proxy.upgrades).toBe(2);
  expect(await host.metric('rollcall_streams{of="subscribe"}')).toBe(1);
  await bob.rollcall.close();
  await alice.sees("bob", "offline");
  expect(bob.errors).toEqual([]);
});

test("a host that is told to stop loses nobody for more than a moment", async () => {
  const folder = mkdtempSync(join(tmpdir(), "rollcall-client-"));
  const first = await Host.start([], folder);
  cleanup.push(() => first.remove());
  const alice = listener({ url: first.url, as: "alice" });
  const carol = listener({ url: first.url, as: "carol" });
  alice.watch("bob");
  carol.watch("alice");
  await alice.sees("bob", "offline");
  await carol.sees("alice", "online");
  await first.stop();
  await alice.is("connecting");
  const second = await Host.start(["--listen", `127.0.0.1:${first.port}`], folder);
  cleanup.push(() => second.stop("SIGKILL"));
  await second.beat("bob");
  await alice.sees("bob", "online");
  await carol.is("online");
  await alice.rollcall.setStatus({ choice: "busy" });
  await carol.sees("alice", "busy");
  expect(carol.states("alice").filter((state) => state !== "online")).toEqual(
    carol.states("alice")[0] === "offline" ? ["offline", "busy"] : ["busy"],
  );
});

describe("with a key", () => {
  let host: Host;
  let key: string;

  beforeAll(async () => {
    const folder = mkdtempSync(join(tmpdir(), "rollcall-client-"));
    key = Host.key(folder);
    host = await Host.start(["--token-key", key], folder);
    return () => host.remove();
  });

  test.each(TRANSPORTS)("by %s, a connection outlives its token by fresh ones, unnoticed", async (transport) => {
    let minted = 0;
    const user = `alice by ${transport}`;
    // It is renewed when a fifth of its life is left, and minting takes a busy machine some tenths of a second.
    const token = () => mint(key, user, (minted++, "5s"));
    const bob = listener({ url: host.url, token: () => mint(key, "bob", "1h") });
    bob.watch(user);
    await bob.sees(user, "offline");
    const alice = listener({ url: host.url, token, transport });
    alice.watch("bob");
    await bob.sees(user, "online");
    await until("some tokens were used up", () => minted >= 3);
    expect(alice.statuses.filter((status) => status !== "online")).toEqual(["connecting"]);
    expect(bob.states(user)).toEqual(["offline", "online"]);
    expect(alice.errors).toEqual([]);
  });

  test("a token that is refused is replaced by a fresh one, for calls and for the connection", async () => {
    let asked = 0;
    const carol = listener({ url: host.url, token: () => (++asked === 1 ? "stale" : mint(key, "carol", "1h")) });
    const [self] = await carol.rollcall.presence(["carol"]);
    expect(self?.user).toBe("carol");
    await carol.is("online");
    expect(asked).toBe(2);
  });

  test("without a good token every call rejects with a problem, and so says the listener", async () => {
    const eve = listener({ url: host.url, token: "nonsense" });
    const refused = await eve.rollcall.presence(["bob"]).catch((error: RollcallError) => error);
    expect(refused).toMatchObject({ name: "RollcallError", status: 401, title: "The token is not accepted" });
    await until("the error", () => eve.errors.length > 0);
    expect(eve.errors[0]?.status).toBe(401);
    expect(eve.rollcall.status).toBe("connecting");
  });

  test("a conversation that one token takes away is there again with the next that has it", async () => {
    const lists = [["ours"], []];
    const token = () => {
      const list = lists.shift();
      return mint(key, "erin", list ? "2s" : "1h", list ?? ["ours"]);
    };
    const erin = listener({ url: host.url, token, transport: "socket" });
    const typists: string[][] = [];
    erin.rollcall.watchTyping("ours", (now) => typists.push(now));
    await until("it was taken away", () => erin.errors.length > 0);
    expect(erin.errors.map(({ status }) => status)).toEqual([403]);
    const frank = listener({ url: host.url, token: () => mint(key, "frank", "1h", ["ours"]) });
    await frank.is("online");
    const stroking = setInterval(() => frank.rollcall.typing("ours"), 50);
    cleanup.push(() => clearInterval(stroking));
    await until("frank types", () => typists.at(-1)?.[0] === "frank");
    expect(erin.statuses).toEqual(["connecting", "online"]);
  });

  test("who types does not flicker when a token is renewed", async () => {
    let minted = 0;
    const heidi = listener({ url: host.url, token: () => mint(key, "heidi", (minted++, "2s"), ["ours"]) });
    const ivan = listener({ url: host.url, token: () => mint(key, "ivan", "1h", ["ours"]) });
    const typists: string[][] = [];
    heidi.rollcall.watchTyping("ours", (now) => typists.push(now));
    await ivan.is("online");
    const stroking = setInterval(() => ivan.rollcall.typing("ours"), 50);
    cleanup.push(() => clearInterval(stroking));
    await until("ivan types", () => typists.at(-1)?.[0] === "ivan");
    const before = minted;
    await until("some tokens were used up", () => minted >= before + 3);
    expect(typists).toEqual([[], ["ivan"]]);
  });

  test("a connection that the service ends with its token is made again with a fresh one", async () => {
    // By this machine's clock, which is an hour behind, the token is good for an hour; by the service's for a second.
    const right = Date.now;
    const clock = vi.spyOn(Date, "now").mockImplementation(() => right() - 3_600_000);
    cleanup.push(() => clock.mockRestore());
    let asked = 0;
    const judy = listener({ url: host.url, token: () => mint(key, "judy", ++asked === 1 ? "1s" : "1h") });
    judy.watch("bob");
    await judy.is("online");
    await until("it ended", () => judy.statuses.length > 2);
    await judy.is("online");
    expect([asked, judy.statuses]).toEqual([2, ["connecting", "online", "connecting", "online"]]);
    expect(judy.errors).toEqual([]);
  });

  test("a conversation of others is refused once, and the rest goes on", async () => {
    const token = () => mint(key, "dave", "1h", ["ours"]);
    const dave = listener({ url: host.url, token });
    dave.rollcall.watchTyping("theirs", () => {});
    dave.rollcall.watchTyping("ours", () => {});
    dave.watch("bob");
    await until("refused", () => dave.errors.length > 0);
    await until("ours is watched", () => dave.events.length >= 2);
    expect(dave.errors.map(({ status }) => status)).toEqual([403]);
  });
});

test("what cannot be reached is a problem without a status", async () => {
  const host = await started();
  await host.stop("SIGKILL");
  const alice = listener({ url: host.url, as: "alice", staleAfter: 50 });
  await expect(alice.rollcall.presence(["bob"])).rejects.toMatchObject({ name: "RollcallError", status: 0 });
  await expect(alice.rollcall.setStatus({ choice: "busy" })).rejects.toMatchObject({ title: "No answer" });
  await alice.is("offline");
  await alice.rollcall.close();
  expect(alice.rollcall.status).toBe("closed");
});

test("a callback that throws is told as an error, and the others are called", async () => {
  const host = await started();
  const alice = listener({ url: host.url, as: "alice" });
  alice.rollcall.watch(["bob"], () => {
    throw new Error("mine");
  });
  alice.watch("bob");
  await alice.sees("bob", "offline");
  await until("the error", () => alice.errors.length > 0);
  expect(alice.errors[0]).toMatchObject({ title: "A callback failed", detail: "Error: mine" });
});

test("who only watches is not here", async () => {
  const host = await started();
  const alice = listener({ url: host.url, as: "alice", watchOnly: true });
  alice.watch("alice", "bob");
  await alice.sees("bob", "offline");
  await host.beat("bob");
  await alice.sees("bob", "online");
  alice.rollcall.active();
  // What she says after that is answered, so the first was heard.
  alice.watch("carol");
  await alice.sees("carol", "offline");
  expect(await host.ask("bob", "GET", "/v1/presence/alice")).toMatchObject({ state: "offline" });
  expect(alice.states("alice")).toEqual(["offline"]);
  expect(alice.errors).toEqual([]);
});

test("watching begun and ended in one go is nothing on the wire", async () => {
  const host = await started();
  const alice = listener({ url: host.url, as: "alice" });
  alice.watch("bob");
  await alice.sees("bob", "offline");
  const before = alice.events.length;
  for (let again = 0; again < 5; again++) alice.watch("carol")();
  alice.watch("bob")();
  alice.watch("dave");
  await alice.sees("dave", "offline");
  expect(alice.events.length).toBe(before + 1);
});

test.each(TRANSPORTS)("by %s, somebody who went away is here again with what they do", async (transport) => {
  const host = await started("--idle-after", "300ms");
  const alice = listener({ url: host.url, as: "alice" });
  alice.watch("bob");
  const bob = listener({ url: host.url, as: "bob", activityInterval: 10, transport });
  await alice.sees("bob", "away");
  bob.rollcall.active();
  await alice.sees("bob", "online");
  await alice.sees("bob", "away");
});
