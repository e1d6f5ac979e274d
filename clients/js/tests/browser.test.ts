// The built client in Chromium against a real host: tabs, page events and networks.

import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Page } from "playwright-core";

import type { Rollcall } from "../src/index.js";
import { Pages } from "./browser.js";
import { Host } from "./host.js";
import { Proxy } from "./proxy.js";
import { until } from "./recorder.js";

/** The globals of the test page. */
interface TestWindow {
  rollcall: Rollcall;
  calls: [string, string | null, boolean][];
  statuses: string[];
  errors: string[];
  /** Milliseconds from the beginning of each state to its callback. */
  lags: Record<string, number>;
  watch(...users: string[]): () => void;
  /** The typists last reported. */
  typists?: string;
}

declare const window: TestWindow;

let pages: Pages;
let host: Host;
const cleanup: (() => unknown)[] = [];

beforeAll(async () => {
  [pages, host] = await Promise.all([Pages.start(), Host.start()]);
});

afterAll(async () => {
  await pages.stop();
  await host.remove();
});

afterEach(async () => {
  for (const context of pages.browser.contexts()) await context.close();
  await until("every connection is gone", async () => (await sockets()) === 0);
  for (const end of cleanup.splice(0).reverse()) await end();
});

const watch = (page: Page, ...users: string[]) => page.evaluate((users) => void window.watch(...users), users);
const calls = (page: Page) => page.evaluate(() => window.calls);
const status = (page: Page) => page.evaluate(() => window.rollcall.status);

async function sees(page: Page, user: string, state: string | null): Promise<void> {
  const last = async () => (await calls(page)).filter(([name]) => name === user).at(-1)?.[1];
  await until(`${user} is ${state}`, async () => (await last()) === state);
}

async function is(page: Page, wanted: string): Promise<void> {
  await until(wanted, async () => (await status(page)) === wanted);
}

/** The reported states of a user, in order. */
async function states(page: Page, user: string): Promise<(string | null)[]> {
  return (await calls(page)).filter(([name]) => name === user).map(([, state]) => state);
}

/** The same, without an initial `offline`. */
async function sinceOnline(page: Page, user: string): Promise<(string | null)[]> {
  const all = await states(page, user);
  return all.slice(all[0] === "offline" ? 1 : 0);
}

const sockets = () => host.metric('rollcall_upgraded_connections{protocol="websocket"}');

/** Simulates switching tabs: headless pages are always visible. */
async function show(page: Page, isShown: boolean): Promise<void> {
  await page.evaluate((visibility) => {
    Object.defineProperty(document, "visibilityState", { value: visibility, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, isShown ? "visible" : "hidden");
}

test("watchers see a tab open and crash", async () => {
  const alice = await pages.open(host.url, "alice1");
  await watch(alice, "bob1");
  await sees(alice, "bob1", "offline");
  const bob = await pages.open(host.url, "bob1");
  await sees(alice, "bob1", "online");
  expect(await alice.evaluate(() => window.lags["bob1 online"])).toBeLessThan(1000);
  const killing = await bob.context().newCDPSession(bob);
  // A crashed page does not answer.
  void killing.send("Page.crash").catch(() => {});
  await sees(alice, "bob1", "offline");
  expect(await states(alice, "bob1")).toEqual(["offline", "online", "offline"]);
});

describe("tabs of one browser", () => {
  test("share one connection and its events", async () => {
    const context = await pages.browser.newContext();
    const one = await pages.open(host.url, "alice2", {}, context);
    const other = await pages.open(host.url, "alice2", {}, context);
    await watch(one, "bob2");
    await watch(other, "bob2", "carol2");
    for (const [page, user] of [[one, "bob2"], [other, "bob2"], [other, "carol2"]] as const) {
      await sees(page, user, "offline");
    }
    await is(other, "online");
    await host.beat("bob2");
    await sees(one, "bob2", "online");
    await sees(other, "bob2", "online");
    expect(await sockets()).toBe(1);
    expect(await states(one, "carol2")).toEqual([]);
    const otherUser = await pages.open(host.url, "dave2", {}, context);
    await watch(otherUser, "alice2");
    await sees(otherUser, "alice2", "online");
    expect(await sockets()).toBe(2);
  });

  test("stay online when the leader is closed", async () => {
    const watcher = await pages.open(host.url, "watcher3");
    await watch(watcher, "alice3");
    const context = await pages.browser.newContext();
    const one = await pages.open(host.url, "alice3", {}, context);
    await is(one, "online");
    const other = await pages.open(host.url, "alice3", {}, context);
    await watch(other, "bob3");
    await sees(other, "bob3", "offline");
    await sees(watcher, "alice3", "online");
    await one.close();
    await until("the other connects", async () => (await other.evaluate(() => window.statuses)).includes("connecting"));
    await is(other, "online");
    await host.beat("bob3");
    await sees(other, "bob3", "online");
    expect(await states(other, "bob3")).toEqual(["offline", "online"]);
    await other.evaluate(() => window.rollcall.setStatus({ choice: "busy" }));
    await sees(watcher, "alice3", "busy");
    expect(await sinceOnline(watcher, "alice3")).toEqual(["online", "busy"]);
    await other.evaluate(() => window.rollcall.close());
    await sees(watcher, "alice3", "offline");
  });

  test("keep their device id after a reload", async () => {
    const watcher = await pages.open(host.url, "watcher4");
    await watch(watcher, "alice4");
    const context = await pages.browser.newContext();
    const one = await pages.open(host.url, "alice4", {}, context);
    await is(one, "online");
    const other = await pages.open(host.url, "alice4", {}, context);
    await is(other, "online");
    await sees(watcher, "alice4", "online");
    const device = () => other.evaluate(() => localStorage.getItem("rollcall:device"));
    const before = await device();
    await one.evaluate(() => window.rollcall.close());
    await other.reload();
    await other.waitForFunction("window.ready");
    await other.evaluate("void window.open({})");
    await is(other, "online");
    expect([await device(), await sinceOnline(watcher, "alice4")]).toEqual([before, ["online"]]);
  });

  test("share typing signals", async () => {
    const bob = await pages.open(host.url, "bob5");
    const context = await pages.browser.newContext();
    const one = await pages.open(host.url, "alice5", {}, context);
    await is(one, "online");
    const other = await pages.open(host.url, "alice5", {}, context);
    await is(other, "online");
    await is(bob, "online");
    for (const page of [bob, other]) {
      await page.evaluate(() => void window.rollcall.watchTyping("room 5", () => {}));
    }
    const typists = (page: Page) => page.evaluate(() => window.rollcall.typists("room 5").join());
    const typing = setInterval(() => void other.evaluate(() => window.rollcall.typing("room 5")).catch(() => {}), 100);
    cleanup.push(() => clearInterval(typing));
    await until("bob sees alice type", async () => (await typists(bob)) === "alice5");
    clearInterval(typing);
    await until("typing ends after a pause", async () => (await typists(bob)) === "");
    const answering = setInterval(() => void bob.evaluate(() => window.rollcall.typing("room 5")).catch(() => {}), 100);
    cleanup.push(() => clearInterval(answering));
    await until("alice sees bob type", async () => (await typists(other)) === "bob5");
  });

  test("form groups by device and watchOnly", async () => {
    const context = await pages.browser.newContext();
    const watcher = await pages.open(host.url, "alice14", { watchOnly: true }, context);
    await watch(watcher, "alice14");
    await sees(watcher, "alice14", "offline");
    const here = await pages.open(host.url, "alice14", {}, context);
    await sees(watcher, "alice14", "online");
    await is(await pages.open(host.url, "alice14", { device: "kiosk" }, context), "online");
    await until("three connections", async () => (await sockets()) === 3);
    await is(await pages.open(host.url, "alice14", { device: "kiosk" }, context), "online");
    await is(here, "online");
    expect(await sockets()).toBe(3);
  });

  test("resume presence and typing when the leader crashes", async () => {
    const watcher = await pages.open(host.url, "watcher15");
    await watch(watcher, "alice15");
    const context = await pages.browser.newContext();
    const tabs: Page[] = [];
    for (let tab = 0; tab < 3; tab++) {
      const page = await pages.open(host.url, "alice15", {}, context);
      await is(page, "online");
      tabs.push(page);
    }
    const [leader, ...others] = tabs as [Page, Page, Page];
    for (const page of others) {
      await watch(page, "bob15");
      await sees(page, "bob15", "offline");
    }
    // Only the last tab watches the conversation, which the next leader does not know at first.
    const [, last] = others;
    await last.evaluate(() => void window.rollcall.watchTyping("room 15", (now) => (window.typists = now.join())));
    const typists = () => last.evaluate(() => window.typists);
    await sees(watcher, "alice15", "online");
    const watched = () => host.metric("rollcall_watched_conversations");
    await until("the room is watched", async () => (await watched()) === 1);
    const typing = (method: string) => host.request("bob15", method, "/v1/typing/room%2015");
    await typing("PUT");
    await until("bob types", async () => (await typists()) === "bob15");
    const killing = await leader.context().newCDPSession(leader);
    void killing.send("Page.crash").catch(() => {});
    await typing("DELETE");
    await until("another connects", async () => {
      const said = await Promise.all(others.map((page) => page.evaluate(() => window.statuses)));
      return said.every((statuses) => statuses.filter((status) => status === "online").length > 1);
    });
    await until("bob stopped", async () => (await typists()) === "");
    await host.beat("bob15");
    for (const page of others) {
      await sees(page, "bob15", "online");
      expect(await states(page, "bob15")).toEqual(["offline", "online"]);
    }
    expect(await sinceOnline(watcher, "alice15")).toEqual(["online"]);
  });

  test("stay stale when a disconnected leader is closed", async () => {
    const proxy = await Proxy.start(host.port);
    cleanup.push(() => proxy.stop());
    const context = await pages.browser.newContext();
    const one = await pages.open(proxy.url, "alice16", { staleAfter: 200 }, context);
    await is(one, "online");
    const other = await pages.open(proxy.url, "alice16", { staleAfter: 200 }, context);
    await watch(other, "bob16");
    await sees(other, "bob16", "offline");
    proxy.cut();
    await is(one, "offline");
    await is(other, "offline");
    await one.close();
    proxy.restore();
    await other.evaluate(() => void dispatchEvent(new Event("online")));
    await is(other, "online");
    expect((await calls(other)).map(([, , isStale]) => isStale)).toEqual([false, true, false]);
    const statuses = await other.evaluate(() => window.statuses);
    expect(statuses).toEqual(["online", "connecting", "offline", "online"]);
  });

  test("without sharing have a connection each", async () => {
    const context = await pages.browser.newContext();
    for (let tab = 0; tab < 2; tab++) {
      await is(await pages.open(host.url, "alice6", { share: false }, context), "online");
    }
    expect(await sockets()).toBe(2);
  });
});

test("a short network outage loses no events", async () => {
  const proxy = await Proxy.start(host.port);
  cleanup.push(() => proxy.stop());
  const watcher = await pages.open(host.url, "watcher7");
  await watch(watcher, "alice7");
  const alice = await pages.open(proxy.url, "alice7");
  await watch(alice, "bob7", "carol7");
  await sees(alice, "bob7", "offline");
  await sees(watcher, "alice7", "online");
  proxy.cut();
  await is(alice, "connecting");
  await host.beat("bob7");
  proxy.restore();
  await alice.evaluate(() => void dispatchEvent(new Event("online")));
  await sees(alice, "bob7", "online");
  const reported = await calls(alice);
  expect(reported).toEqual([["bob7", "offline", false], ["carol7", "offline", false], ["bob7", "online", false]]);
  await alice.evaluate(() => window.rollcall.setStatus({ choice: "busy" }));
  await sees(watcher, "alice7", "busy");
  expect(await sinceOnline(watcher, "alice7")).toEqual(["online", "busy"]);
});

test("where sockets are blocked, a page uses events", async () => {
  const proxy = await Proxy.start(host.port);
  cleanup.push(() => proxy.stop());
  proxy.blocksSockets = true;
  const watcher = await pages.open(host.url, "watcher17");
  await watch(watcher, "alice17");
  const alice = await pages.open(proxy.url, "alice17");
  await watch(alice, "bob17");
  await sees(alice, "bob17", "offline");
  await sees(watcher, "alice17", "online");
  await watch(alice, "carol17");
  await sees(alice, "carol17", "offline");
  await host.beat("bob17");
  await sees(alice, "bob17", "online");
  await alice.evaluate(() => window.rollcall.close());
  await sees(watcher, "alice17", "offline");
  expect(await states(alice, "bob17")).toEqual(["offline", "online"]);
  expect(await alice.evaluate(() => window.errors)).toEqual([]);
});

test("a long network outage takes the user offline", async () => {
  const proxy = await Proxy.start(host.port);
  cleanup.push(() => proxy.stop());
  const watcher = await pages.open(host.url, "watcher8");
  await watch(watcher, "alice8");
  const alice = await pages.open(proxy.url, "alice8", { staleAfter: 200 });
  await watch(alice, "bob8");
  await sees(alice, "bob8", "offline");
  await sees(watcher, "alice8", "online");
  proxy.cut();
  await is(alice, "offline");
  expect(await calls(alice)).toEqual([["bob8", "offline", false], ["bob8", "offline", true]]);
  await sees(watcher, "alice8", "offline");
  proxy.restore();
  await alice.evaluate(() => void dispatchEvent(new Event("online")));
  await is(alice, "online");
  await sees(watcher, "alice8", "online");
  expect((await calls(alice)).at(-1)).toEqual(["bob8", "offline", false]);
});

test("pointer and keys end being away", async () => {
  const brief = await Host.start(["--idle-after", "1s"]);
  cleanup.push(() => brief.remove());
  const watcher = await pages.open(brief.url, "watcher9");
  await watch(watcher, "alice9");
  const alice = await pages.open(brief.url, "alice9", { activityInterval: 100 });
  await sees(watcher, "alice9", "away");
  await alice.mouse.move(10, 10);
  await sees(watcher, "alice9", "online");
  await sees(watcher, "alice9", "away");
  await alice.keyboard.press("a");
  await sees(watcher, "alice9", "online");
  await sees(watcher, "alice9", "away");
  await show(alice, false);
  await alice.mouse.move(20, 20);
  await show(alice, true);
  await sees(watcher, "alice9", "online");
});

test("hidden pages pause watching and stay online", async () => {
  const watcher = await pages.open(host.url, "watcher10");
  await watch(watcher, "alice10");
  const context = await pages.browser.newContext();
  const one = await pages.open(host.url, "alice10", { pauseAfter: 100 }, context);
  await is(one, "online");
  const other = await pages.open(host.url, "alice10", { pauseAfter: 100 }, context);
  await watch(other, "bob10");
  await sees(other, "bob10", "offline");
  const watched = await host.metric("rollcall_watched_users");
  await show(one, false);
  await show(other, false);
  await is(other, "paused");
  await until("bob is not watched", async () => (await host.metric("rollcall_watched_users")) === watched - 1);
  const bob = await pages.open(host.url, "bob10");
  await is(bob, "online");
  expect(await states(other, "bob10")).toEqual(["offline"]);
  await show(other, true);
  await sees(other, "bob10", "online");
  await is(one, "online");
  expect(await sinceOnline(watcher, "alice10")).toEqual(["online"]);
});

test("a page closes when left, reconnects when restored", async () => {
  const alice = await pages.open(host.url, "alice11");
  await watch(alice, "bob11");
  await sees(alice, "bob11", "offline");
  await alice.evaluate(() => void dispatchEvent(new PageTransitionEvent("pagehide", { persisted: true })));
  await until("no connection", async () => (await sockets()) === 0);
  await host.beat("bob11");
  await alice.evaluate(() => void dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })));
  await sees(alice, "bob11", "online");
  await alice.goto(`${pages.url}/blank.html`);
  await until("no connection", async () => (await sockets()) === 0);
});

test("without locks, each page has its own connection", async () => {
  const context = await pages.browser.newContext();
  await context.addInitScript(() => {
    const denied = () => Promise.reject(new DOMException("denied", "SecurityError"));
    Object.defineProperty(navigator.locks, "request", { value: denied });
  });
  const alice = await pages.open(host.url, "alice12", {}, context);
  await watch(alice, "bob12");
  await sees(alice, "bob12", "offline");
  const old = await pages.browser.newContext();
  await old.addInitScript(() => {
    Object.defineProperty(navigator, "locks", { value: undefined });
    Object.defineProperty(globalThis, "localStorage", {
      get() {
        throw new DOMException("denied", "SecurityError");
      },
    });
  });
  const bob = await pages.open(host.url, "bob12", {}, old);
  await is(bob, "online");
  await sees(alice, "bob12", "online");
});

test("hooks connect and watch once under StrictMode", async () => {
  const page = await (await pages.browser.newContext()).newPage();
  await page.goto(`${pages.url}/strict-mode.html?host=${encodeURIComponent(host.url)}`);
  const shows = async (text: string) => {
    await until(text, async () => (await page.evaluate(() => document.body.innerText)).includes(text));
  };
  type Strict = { sent: string[]; sockets: number; renders: number; act: Record<string, (given?: unknown) => void> };
  const strict = <T>(look: (strict: Strict) => T) => page.evaluate(`(${look})(window)`) as Promise<T>;
  const sent = async () => (await strict((window) => window.sent)).map((text) => JSON.parse(text) as { op: string });
  const watcher = await pages.open(host.url, "watcher13");
  await watch(watcher, "alice");
  await shows("bob offline; typing");
  await until("both are watched", async () => (await sent()).length === 2);
  expect((await sent()).map(({ op }) => op)).toEqual(["watch", "watch"]);
  expect(await strict((window) => window.sockets)).toBe(1);
  await sees(watcher, "alice", "online");

  const renders = await strict((window) => window.renders);
  await strict((window) => window.act.again?.());
  await until("rendered again", async () => (await strict((window) => window.renders)) > renders);
  await strict((window) => window.act.users?.(["bob", "carol"]));
  await shows("bob offline, carol offline; typing");
  expect((await sent()).map(({ op }) => op)).toEqual(["watch", "watch", "watch"]);
  await host.beat("carol");
  await shows("bob offline, carol online; typing");
  await host.request("carol", "PUT", "/v1/typing/room");
  await shows("bob offline, carol online; carol typing");
  await host.request("carol", "DELETE", "/v1/typing/room");
  await shows("bob offline, carol online; typing");

  // A provider that replaces the first: the user stays online.
  await strict((window) => window.act.another?.());
  await until("another connection", async () => (await strict((window) => window.sockets)) === 2);
  await until("one connection", async () => (await sockets()) === 2);
  await shows("bob offline, carol online; typing");
  expect((await sent()).filter(({ op }) => op === "leave")).toEqual([]);

  await strict((window) => window.act.mount?.(false));
  await sees(watcher, "alice", "offline");
  expect((await sent()).at(-1)?.op).toBe("leave");
  expect(await sinceOnline(watcher, "alice")).toEqual(["online", "offline"]);
});
