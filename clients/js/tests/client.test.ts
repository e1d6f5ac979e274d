// The client in Node, against a real host.

import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterEach, beforeAll, describe, expect, test, vi } from "vitest";

import type { Options, RollcallError } from "../src/index.js";
import { Host, mint } from "./host.js";
import { Proxy } from "./proxy.js";
import { RecordingClient, until } from "./recorder.js";

const TRANSPORTS = ["socket", "events"] as const;
const cleanup: (() => unknown)[] = [];

afterEach(async () => {
  for (const end of cleanup.splice(0).reverse()) await end();
});

function recordingClient(options: Options): RecordingClient {
  const made = new RecordingClient(options);
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

  const as = (name: string) => recordingClient({ url: host.url, as: `${name} by ${transport}`, transport });
  const called = (name: string) => `${name} by ${transport}`;

  test("watchers receive every change of state", async () => {
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
    expect(alice.calls.every(({ context }) => !context.stale)).toBe(true);
    expect([...alice.errors, ...bob.errors]).toEqual([]);
  });

  test.each(["zoë", "名前"])("ids may contain any character: %s", async (name) => {
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

  test("unwatched users are no longer reported", async () => {
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
    // The subscription changes at a bounded rate.
    await until("frank is dropped", () => !erin.rollcall.get(called("frank")));
    erin.watch(called("frank"));
    await until("frank is reported again", () => erin.states(called("frank")).length > 1);
  });

  test("a string is one user", async () => {
    const olivia = as("olivia");
    olivia.rollcall.watch(called("walter"), (presence, context) => olivia.calls.push({ presence, context }));
    await olivia.sees(called("walter"), "offline");
    expect(olivia.calls.length).toBe(1);
  });

  test("keystrokes show typing until the message is sent", async () => {
    const [heidi, ivan] = [as("heidi"), as("ivan")];
    const typists: string[][] = [];
    heidi.rollcall.watchTyping("room 1/2", (now) => typists.push(now));
    ivan.rollcall.watchTyping("room 1/2", () => {});
    await heidi.is("online");
    await ivan.is("online");
    await until("heidi watches the room", () => heidi.events.length > 0);
    const keystrokes = setInterval(() => ivan.rollcall.typing("room 1/2"), 50);
    cleanup.push(() => clearInterval(keystrokes));
    await until("ivan types", () => typists.at(-1)?.length === 1);
    clearInterval(keystrokes);
    ivan.rollcall.stopTyping("room 1/2");
    await until("ivan stopped", () => typists.at(-1)?.length === 0);
    expect(typists).toEqual([[], [called("ivan")], []]);
    expect(ivan.rollcall.typists("room 1/2"), "the own typing is not reported").toEqual([]);
  });

  test("hidden users have no state until shown again", async () => {
    await host.request(called("judy"), "PUT", `/v1/blocks/${encodeURIComponent(called("mallory"))}`);
    const mallory = as("mallory");
    mallory.watch(called("judy"));
    await mallory.sees(called("judy"), null);
    const nothing = { state: null, since: null, last_seen: null, version: null, note: null };
    expect(mallory.rollcall.get(called("judy"))).toEqual({ user: called("judy"), ...nothing });
    await host.request(called("judy"), "DELETE", `/v1/blocks/${encodeURIComponent(called("mallory"))}`);
    await mallory.sees(called("judy"), "offline");
  });

  test("users beyond the watch limit are polled", async () => {
    const many = Array.from({ length: 1203 }, (_, place) => called(`user ${place}`));
    const oscar = recordingClient({ url: host.url, as: called("oscar"), transport, pollInterval: 300 });
    oscar.watch(...many);
    await until("every user was reported", () => many.every((user) => oscar.rollcall.get(user)));
    expect(oscar.calls.length).toBe(many.length);
    const [first, last] = [many[0] ?? "", many.at(-1) ?? ""];
    await host.beat(first);
    await host.beat(last);
    await oscar.sees(first, "online");
    await oscar.sees(last, "online");
    expect(oscar.calls.length).toBe(many.length + 2);
    expect(oscar.errors).toEqual([]);
    expect((await oscar.rollcall.presence(many)).map(({ user }) => user)).toEqual(many);
  });

  test("an invalid id is reported, others are watched", async () => {
    const peggy = as("peggy");
    peggy.watch(called("rupert"), "", called("sybil"));
    await peggy.sees(called("rupert"), "offline");
    await peggy.sees(called("sybil"), "offline");
    await until("the error", () => peggy.errors.length > 0);
    expect(peggy.errors[0]).toMatchObject({ name: "RollcallError", status: 400, problem: { field: "users[1]" } });
  });

  test("an invalid id does not affect polled users", async () => {
    const quentin = recordingClient({ url: host.url, as: called("quentin"), transport, watchLimit: 1 });
    quentin.watch(called("first"), called("second"), "", called("last"));
    for (const name of ["first", "second", "last"]) await quentin.sees(called(name), "offline");
    expect(quentin.errors.map(({ status, problem }) => [status, problem.field])).toEqual([[400, "users[1]"]]);
  });

  test("frequent list changes end with the last list", async () => {
    const uma = as("uma");
    uma.watch(called("always"));
    await uma.sees(called("always"), "offline");
    let stop = () => {};
    for (let change = 0; change < 200; change++) {
      stop();
      stop = uma.watch(called(`row ${change}`), called(`row ${change + 1}`));
      // One change at a time, like rows that scroll by.
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

  test("closing and starting at once stays online", async () => {
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
    await host.request(called("zara"), "PUT", "/v1/status", { choice: "auto" });
    await yves.sees(called("zara"), "online");
    expect(zara.statuses).toEqual(["connecting", "online", "closed", "connecting", "online"]);
    expect(yves.states(called("zara")).slice(-2), "busy, and no state in between").toEqual(["busy", "online"]);
  });

  test("a short disconnect causes no presence event", async () => {
    const proxy = await proxied(host);
    const trent = as("trent");
    trent.watch(called("victor"));
    await trent.sees(called("victor"), "offline");
    const victor = recordingClient({ url: proxy.url, as: called("victor"), transport, device: "laptop" });
    await trent.sees(called("victor"), "online");
    proxy.cut();
    await victor.is("connecting");
    proxy.restore();
    await victor.is("online");
    await host.request(called("victor"), "PUT", "/v1/status", { choice: "busy" });
    await trent.sees(called("victor"), "busy");
    expect(trent.states(called("victor"))).toEqual(["offline", "online", "busy"]);
  });
});

test("watchers resume after a host crash without duplicates", async () => {
  const folder = mkdtempSync(join(tmpdir(), "rollcall-client-"));
  const first = await Host.start([], folder);
  cleanup.push(() => first.remove());
  const alice = recordingClient({ url: first.url, as: "alice" });
  const bob = recordingClient({ url: first.url, as: "bob" });
  alice.watch("bob", "carol");
  await alice.sees("bob", "online");
  await first.stop("SIGKILL");
  await alice.is("connecting");
  const second = await Host.start(["--listen", `127.0.0.1:${first.port}`], folder);
  cleanup.push(() => second.stop("SIGKILL"));
  await alice.is("online");
  await bob.is("online");
  await second.request("carol", "POST", "/v1/heartbeat", { device: "phone" });
  await alice.sees("carol", "online");
  expect(alice.states("carol")).toEqual(["offline", "online"]);
  await alice.sees("bob", "online");
  const bobs = alice.calls.map(({ presence }) => JSON.stringify(presence)).filter((text) => text.includes('"bob"'));
  expect(bobs.filter((one, place) => one === bobs[place - 1])).toEqual([]);
  expect(alice.calls.every(({ context }) => !context.stale)).toBe(true);
});

test.each(TRANSPORTS)("by %s, a reconnect reports only what changed", async (transport) => {
  const host = await started();
  const proxy = await proxied(host);
  const alice = recordingClient({ url: proxy.url, as: "alice", transport });
  await host.request("dave", "PUT", "/v1/blocks/alice");
  await host.request("bob", "PUT", "/v1/status", { choice: "busy" });
  await host.beat("dave");
  alice.watch("bob", "carol", "dave");
  await alice.sees("dave", null);
  await alice.sees("carol", "offline");
  proxy.cut();
  await alice.is("connecting");
  const beating = setInterval(() => void host.beat("dave").catch(() => {}), 300);
  cleanup.push(() => clearInterval(beating));
  const carol = recordingClient({ url: host.url, as: "carol" });
  await carol.is("online");
  // Becoming visible is not a change of dave's record: his state may be older than alice's last event.
  await host.request("dave", "DELETE", "/v1/blocks/alice");
  alice.events.length = 0;
  proxy.restore();
  await alice.sees("carol", "online");
  await alice.sees("dave", "online");
  expect([alice.states("bob").length, alice.states("carol"), alice.states("dave")]).toEqual([
    1,
    ["offline", "online"],
    [null, "online"],
  ]);
});

test("resuming repeats nothing that did not change", async () => {
  const host = await started();
  const proxy = await proxied(host);
  const alice = recordingClient({ url: proxy.url, as: "alice" });
  const carol = recordingClient({ url: host.url, as: "carol" });
  await carol.is("online");
  alice.watch("bob", "carol");
  await alice.sees("carol", "online");
  proxy.cut();
  await alice.is("connecting");
  await carol.rollcall.setStatus({ choice: "busy" });
  alice.events.length = 0;
  proxy.restore();
  await alice.sees("carol", "busy");
  expect(alice.events[0]).toBe("snapshot true");
  expect([alice.states("bob"), alice.states("carol")]).toEqual([["offline"], ["online", "busy"]]);
});

test.each(TRANSPORTS)("by %s, many conversations are watched in batches", async (transport) => {
  const host = await started("--watch-limit", "200");
  const alice = recordingClient({ url: host.url, as: "alice", transport });
  const rooms = Array.from({ length: 150 }, (_, place) => `room ${place}`);
  const heard = new Set<string>();
  for (const room of rooms) alice.rollcall.watchTyping(room, ([typist]) => typist && heard.add(room));
  const watched = () => host.metric("rollcall_watched_conversations");
  await until("all are watched", async () => (await watched()) === rooms.length);
  for (const room of ["room 0", "room 149"]) await host.request("bob", "PUT", `/v1/typing/${encodeURIComponent(room)}`);
  await until("the first and the last", () => heard.size === 2);
  expect([alice.statuses, alice.errors]).toEqual([["connecting", "online"], []]);
});

test("polling continues after a reconnect", async () => {
  const host = await started();
  const proxy = await proxied(host);
  const alice = recordingClient({ url: proxy.url, as: "alice", watchLimit: 1, pollInterval: 200 });
  alice.watch("bob", "carol");
  await alice.sees("carol", "offline");
  proxy.cut();
  await alice.is("connecting");
  proxy.restore();
  await alice.is("online");
  await host.beat("carol");
  await alice.sees("carol", "online");
});

test("a late stream never replaces a newer one", async () => {
  const host = await started();
  let streams = 0;
  const late: typeof fetch = async (url, request) => {
    const place = String(url).includes("/v1/subscribe") ? ++streams : 0;
    // The first stream opens once the second is requested; the second opens after the first.
    if (place === 1) await until("a second stream is requested", () => streams === 2);
    if (place === 2) await until("the first stream is open", () => alice.rollcall.get("bob"));
    return fetch(url, request);
  };
  const alice = recordingClient({ url: host.url, as: "alice", transport: "events", fetch: late });
  alice.watch("bob");
  await until("a stream is requested", () => streams === 1);
  alice.watch("carol");
  await alice.sees("bob", "offline");
  await alice.sees("carol", "offline");
});

test("presences turn stale, and fresh after reconnecting", async () => {
  const host = await started();
  const proxy = await proxied(host);
  const alice = recordingClient({ url: proxy.url, as: "alice", staleAfter: 100 });
  alice.watch("bob");
  await alice.sees("bob", "offline");
  proxy.cut();
  await alice.is("offline");
  await until("stale", () => alice.calls.length === 2);
  expect(alice.calls[1]).toMatchObject({ presence: { user: "bob", state: "offline" }, context: { stale: true } });
  proxy.restore();
  await alice.is("online");
  await until("fresh", () => alice.calls.length === 3);
  expect(alice.calls[2]?.context).toEqual({ stale: false });
  proxy.cut();
  await until("stale again", () => alice.calls.length === 4);
  await alice.rollcall.close();
  expect(alice.calls.length, "closing does not make it fresh").toBe(4);
});

test("where sockets are blocked, events replace them", async () => {
  const host = await started();
  const proxy = await proxied(host);
  proxy.blocksSockets = true;
  const alice = recordingClient({ url: host.url, as: "alice" });
  alice.watch("bob");
  const bob = recordingClient({ url: proxy.url, as: "bob" });
  bob.watch("alice");
  await bob.sees("alice", "online");
  await alice.sees("bob", "online");
  expect(proxy.upgrades).toBe(2);
  expect(await host.metric('rollcall_upgraded_connections{protocol="sse"}')).toBe(1);
  await bob.rollcall.close();
  await alice.sees("bob", "offline");
  expect(bob.errors).toEqual([]);
});

test("a graceful restart keeps users online", async () => {
  const folder = mkdtempSync(join(tmpdir(), "rollcall-client-"));
  const first = await Host.start([], folder);
  cleanup.push(() => first.remove());
  const alice = recordingClient({ url: first.url, as: "alice" });
  const carol = recordingClient({ url: first.url, as: "carol" });
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

  test.each(TRANSPORTS)("by %s, tokens are renewed without reconnecting", async (transport) => {
    let minted = 0;
    const user = `alice by ${transport}`;
    // Renewed when 20 % of its lifetime is left; minting takes a busy machine some tenths of a second.
    const token = () => mint(key, user, (minted++, "5s"));
    const bob = recordingClient({ url: host.url, token: () => mint(key, "bob", "1h") });
    bob.watch(user);
    await bob.sees(user, "offline");
    const alice = recordingClient({ url: host.url, token, transport });
    alice.watch("bob");
    await bob.sees(user, "online");
    await until("some tokens were renewed", () => minted >= 3);
    expect(alice.statuses.filter((status) => status !== "online")).toEqual(["connecting"]);
    expect(bob.states(user)).toEqual(["offline", "online"]);
    expect(alice.errors).toEqual([]);
  });

  test("a refused token is replaced everywhere", async () => {
    let asked = 0;
    const carol = recordingClient({ url: host.url, token: () => (++asked === 1 ? "stale" : mint(key, "carol", "1h")) });
    const [self] = await carol.rollcall.presence(["carol"]);
    expect(self?.user).toBe("carol");
    await carol.is("online");
    expect(asked).toBe(2);
  });

  test("an invalid token rejects calls and is reported", async () => {
    const eve = recordingClient({ url: host.url, token: "nonsense" });
    const refused = await eve.rollcall.presence(["bob"]).catch((error: RollcallError) => error);
    expect(refused).toMatchObject({ name: "RollcallError", status: 401, title: "The token is not accepted" });
    await until("the error", () => eve.errors.length > 0);
    expect(eve.errors[0]?.status).toBe(401);
    expect(eve.rollcall.status).toBe("connecting");
  });

  test("a conversation returns with the token listing it", async () => {
    const lists = [["ours"], []];
    const token = () => {
      const list = lists.shift();
      return mint(key, "erin", list ? "2s" : "1h", list ?? ["ours"]);
    };
    const erin = recordingClient({ url: host.url, token, transport: "socket" });
    const typists: string[][] = [];
    erin.rollcall.watchTyping("ours", (now) => typists.push(now));
    await until("the conversation is refused", () => erin.errors.length > 0);
    expect(erin.errors.map(({ status }) => status)).toEqual([403]);
    const frank = recordingClient({ url: host.url, token: () => mint(key, "frank", "1h", ["ours"]) });
    await frank.is("online");
    const keystrokes = setInterval(() => frank.rollcall.typing("ours"), 50);
    cleanup.push(() => clearInterval(keystrokes));
    await until("frank types", () => typists.at(-1)?.[0] === "frank");
    expect(erin.statuses).toEqual(["connecting", "online"]);
  });

  test("renewing a token keeps typists", async () => {
    let minted = 0;
    const heidi = recordingClient({ url: host.url, token: () => mint(key, "heidi", (minted++, "2s"), ["ours"]) });
    const ivan = recordingClient({ url: host.url, token: () => mint(key, "ivan", "1h", ["ours"]) });
    const typists: string[][] = [];
    heidi.rollcall.watchTyping("ours", (now) => typists.push(now));
    await ivan.is("online");
    const keystrokes = setInterval(() => ivan.rollcall.typing("ours"), 50);
    cleanup.push(() => clearInterval(keystrokes));
    await until("ivan types", () => typists.at(-1)?.[0] === "ivan");
    const before = minted;
    await until("some tokens were renewed", () => minted >= before + 3);
    expect(typists).toEqual([[], ["ivan"]]);
  });

  test("an expired connection reconnects with a fresh token", async () => {
    // This machine's clock is an hour behind, so by it a token of one second is valid for an hour.
    const right = Date.now;
    const clock = vi.spyOn(Date, "now").mockImplementation(() => right() - 3_600_000);
    cleanup.push(() => clock.mockRestore());
    let asked = 0;
    const judy = recordingClient({ url: host.url, token: () => mint(key, "judy", ++asked === 1 ? "1s" : "1h") });
    judy.watch("bob");
    await judy.is("online");
    await until("the connection ended", () => judy.statuses.length > 2);
    await judy.is("online");
    expect([asked, judy.statuses]).toEqual([2, ["connecting", "online", "connecting", "online"]]);
    expect(judy.errors).toEqual([]);
  });

  test("a refused conversation does not affect others", async () => {
    const token = () => mint(key, "dave", "1h", ["ours"]);
    const dave = recordingClient({ url: host.url, token });
    dave.rollcall.watchTyping("theirs", () => {});
    dave.rollcall.watchTyping("ours", () => {});
    dave.watch("bob");
    await until("refused", () => dave.errors.length > 0);
    await until("ours is watched", () => dave.events.length >= 2);
    expect(dave.errors.map(({ status }) => status)).toEqual([403]);
  });
});

test("an unreachable service is error status 0", async () => {
  const host = await started();
  await host.stop("SIGKILL");
  const alice = recordingClient({ url: host.url, as: "alice", staleAfter: 50 });
  await expect(alice.rollcall.presence(["bob"])).rejects.toMatchObject({ name: "RollcallError", status: 0 });
  await expect(alice.rollcall.setStatus({ choice: "busy" })).rejects.toMatchObject({ title: "No answer" });
  await alice.is("offline");
  await alice.rollcall.close();
  expect(alice.rollcall.status).toBe("closed");
});

test("a throwing callback is reported, others run", async () => {
  const host = await started();
  const alice = recordingClient({ url: host.url, as: "alice" });
  alice.rollcall.watch(["bob"], () => {
    throw new Error("mine");
  });
  alice.watch("bob");
  await alice.sees("bob", "offline");
  await until("the error", () => alice.errors.length > 0);
  expect(alice.errors[0]).toMatchObject({ title: "A callback failed", detail: "Error: mine" });
});

test("a watch-only client is not online", async () => {
  const host = await started();
  const alice = recordingClient({ url: host.url, as: "alice", watchOnly: true });
  alice.watch("alice", "bob");
  await alice.sees("bob", "offline");
  await host.beat("bob");
  await alice.sees("bob", "online");
  alice.rollcall.active();
  // The answer to a later message shows that the service processed the earlier one.
  alice.watch("carol");
  await alice.sees("carol", "offline");
  expect(await host.request("bob", "GET", "/v1/presence/alice")).toMatchObject({ state: "offline" });
  expect(alice.states("alice")).toEqual(["offline"]);
  expect(alice.errors).toEqual([]);
});

test("watches that end at once cause no traffic", async () => {
  const host = await started();
  const alice = recordingClient({ url: host.url, as: "alice" });
  alice.watch("bob");
  await alice.sees("bob", "offline");
  const before = alice.events.length;
  for (let again = 0; again < 5; again++) alice.watch("carol")();
  alice.watch("bob")();
  alice.watch("dave");
  await alice.sees("dave", "offline");
  expect(alice.events.length).toBe(before + 1);
});

test.each(TRANSPORTS)("by %s, activity brings an away user back", async (transport) => {
  const host = await started("--idle-after", "300ms");
  const alice = recordingClient({ url: host.url, as: "alice" });
  alice.watch("bob");
  const bob = recordingClient({ url: host.url, as: "bob", activityInterval: 10, transport });
  await alice.sees("bob", "away");
  bob.rollcall.active();
  await alice.sees("bob", "online");
  await alice.sees("bob", "away");
});
