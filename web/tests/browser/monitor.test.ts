// The monitor: charts, user lookup, visibility check, host restarts and tokens.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import type { Stats } from "../../src/api/types";
import { Host, mint } from "./host";
import { until, Windows } from "./browser";

let windows: Windows;
const hosts: Host[] = [];
beforeAll(async () => {
  windows = await Windows.launch();
});
afterAll(() => windows.close());
afterEach(async () => {
  await windows.closeAll();
  for (const host of hosts.splice(0)) await host.kill();
  expect(windows.violations.splice(0)).toEqual([]);
});

/** Starts a host that ends with the test. */
async function start(further: readonly string[] = []): Promise<Host> {
  const host = await Host.start(further);
  hosts.push(host);
  return host;
}

/** The current value of a chart's series. */
async function value(page: Page, chart: string, line: string): Promise<number> {
  const figure = page.locator("figure", { has: page.getByRole("heading", { name: chart, exact: true }) });
  const cell = figure.locator(".legend tr", { hasText: line }).locator("td").first();
  return Number((await cell.getAttribute("data-value")) || Number.NaN);
}

/** Sends a heartbeat for this many users. */
async function beat(host: Host, users: number): Promise<void> {
  const beats = Array.from({ length: users }, (_, place) => ({ user: `user-${place}`, device: "web-1" }));
  await host.request("crowd", "POST", "/v1/heartbeats", { beats });
}

async function lookUp(page: Page, user: string): Promise<void> {
  await page.getByLabel("User", { exact: true }).fill(user);
  await page.getByRole("button", { name: "Look up" }).click();
}

async function explanation(page: Page, viewer: string, subject: string): Promise<string> {
  await page.getByLabel("Viewer").fill(viewer);
  await page.getByLabel("Subject").fill(subject);
  await page.getByRole("button", { name: "Check", exact: true }).click();
  await page.locator(".verdict strong", { hasText: `${viewer} can` }).filter({ hasText: `see ${subject}.` }).waitFor();
  return page.locator(".verdict").innerText();
}

test("charts follow users who come and go", async () => {
  const host = await start();
  const page = await windows.open(host, "/#/monitor");
  await page.getByText("The last five minutes").waitFor();
  await until("no user is online", async () => (await value(page, "Users online", "online")) === 0);
  await beat(host, 300);
  await until("all users are online", async () => (await value(page, "Users online", "online")) === 300);
  await until("their heartbeats are counted", async () => (await value(page, "Heartbeats", "heartbeats/s")) > 0);
  await until("their transitions are counted", async () => (await value(page, "Transitions", "online")) > 0);
  const canvas = page.locator("figure canvas").first();
  const pixels = () => canvas.evaluate((element: HTMLCanvasElement) => element.toDataURL());
  const drawn = await pixels();
  await until("all users are offline", async () => (await value(page, "Users online", "online")) === 0);
  await until("transitions to offline are counted", async () => (await value(page, "Transitions", "offline")) > 0);
  await until("the settle lag is known", async () => (await value(page, "Settle lag", "p99")) > 0);
  await until("the chart has changed", async () => drawn !== (await pixels()));
  await page.getByText("As a table: Users online").click();
  await page.getByRole("region", { name: "Users online, as a table" }).locator("tbody tr").first().waitFor();
});

test("a lookup shows and follows a user", async () => {
  const host = await start();
  await host.request("bob", "POST", "/v1/heartbeat", { device: "phone-7", kind: "mobile" });
  await host.request("bob", "PUT", "/v1/status", { choice: "busy", text: "lunch" });
  const page = await windows.open(host, "/#/monitor");
  const beating = setInterval(() => {
    host.request("bob", "POST", "/v1/heartbeat", { device: "phone-7", kind: "mobile" }).catch(() => undefined);
  }, 1_000);
  await lookUp(page, "bob");
  await page.getByRole("rowheader", { name: "phone-7" }).waitFor();
  await page.locator(".profile [data-state]", { hasText: "busy" }).waitFor();
  expect(await page.locator(".facts").innerText()).toMatch(/“lunch”[^]*Choice\s*busy[^]*Next deadline\s*in \d/);
  clearInterval(beating);
  await page.getByText("No live device.").waitFor();
  await page.locator(".profile [data-state]", { hasText: "offline" }).waitFor();
});

test("a user never online has no last seen", async () => {
  const host = await start();
  await host.request("nell", "PUT", "/v1/status", { choice: "away", text: "back soon" });
  const page = await windows.open(host, "/#/monitor");
  await lookUp(page, "nell");
  await page.getByText("offline, “back soon”", { exact: true }).waitFor();
  expect(await page.locator(".facts").innerText()).toMatch(/Last seen\s*not known/);
});

test("the visibility check explains each verdict", async () => {
  const host = await start();
  const page = await windows.open(host, "/#/monitor");
  expect(await explanation(page, "alice", "bob")).toMatch(/^alice can see bob\.[^]* bob is offline\./);
  await host.request("erin", "PUT", "/v1/status", { choice: "invisible" });
  expect(await explanation(page, "alice", "erin")).toMatch(/^alice can see erin\.[^]* erin is invisible/);
  await host.request("bob", "PUT", "/v1/blocks/alice");
  expect(await explanation(page, "alice", "bob")).toMatch(/^alice cannot see bob\. bob blocked alice\.[^]*unblocks alice/);
  await host.request("carol", "PUT", "/v1/privacy", { presence: "contacts", last_seen: "nobody" });
  expect(await explanation(page, "alice", "carol")).toMatch(/^alice cannot see carol\. carol is visible only to contacts/);
  await host.request("admin", "PUT", "/v1/restrictions/dave");
  expect(await explanation(page, "alice", "dave")).toMatch(/^alice cannot see dave\. An administrator restricted/);
  await lookUp(page, "dave");
  await page.locator(".profile .tag", { hasText: "restricted" }).waitFor();
});

test("a verdict is shown without its explanation", async () => {
  const host = await start();
  await host.request("bob", "PUT", "/v1/privacy", { presence: "nobody", last_seen: "nobody" });
  await host.request("carol", "PUT", "/v1/blocks/alice");
  const page = await windows.open(host, "/#/monitor");
  await page.route(/\/v1\/(people|blocks)/, (route) => route.abort());
  expect(await explanation(page, "alice", "bob")).toMatch(/^alice cannot see bob\. The privacy of bob excludes alice\./);
  expect(await explanation(page, "alice", "carol")).toMatch(/^alice cannot see carol\. Either alice or carol/);
});

test("stats stay visible, greyed, during a host outage", async () => {
  const host = await start();
  const page = await windows.open(host, "/#/monitor");
  await beat(host, 5);
  await until("five users are online", async () => (await value(page, "Users online", "online")) === 5);
  await host.kill();
  await page.getByText("The host has not responded for").waitFor();
  await page.locator(".monitor.stale").waitFor();
  expect(await page.getByText("The last five minutes").isVisible()).toBe(true);
  await start(["--listen", new URL(host.base).host]);
  await page.locator(".monitor:not(.stale)").waitFor();
  expect(await page.getByText("The host has not responded for").count()).toBe(0);
});

test("a host with a key requires a token", async () => {
  const folder = mkdtempSync(join(tmpdir(), "rollcall-console-"));
  const key = join(folder, "key");
  writeFileSync(key, "a secret of thirty-two bytes or more, for a test");
  const host = await start(["--token-key", key]);
  const page = await windows.open(host, "/#/monitor");
  const signIn = async (token: string) => {
    await page.getByLabel("Paste a token").fill(token);
    await page.getByRole("button", { name: "Sign in" }).click();
  };
  await signIn("nonsense");
  await page.getByText("Not a JSON Web Token").waitFor();
  await signIn(mint(key, "alice"));
  await page.getByText("needs a token with the scope admin").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await signIn(mint(key, "alice", "--scope", "admin"));
  await page.getByText("The last five minutes").waitFor();
  await page.getByRole("link", { name: "Demo" }).click();
  await page.getByText("You are alice").waitFor();
  await page.locator('[data-you][data-state="online"]').waitFor();
  await page.reload();
  await page.getByText("Signed in as alice").waitFor();
  rmSync(folder, { recursive: true });
});

test("the monitor alone does not go online", async () => {
  const folder = mkdtempSync(join(tmpdir(), "rollcall-console-"));
  const key = join(folder, "key");
  writeFileSync(key, "a secret of thirty-two bytes or more, for a test");
  const host = await start(["--token-key", key]);
  const token = mint(key, "ops", "--scope", "admin");
  const stats = async () => {
    const answer = await fetch(`${host.base}/v1/stats`, { headers: { authorization: `Bearer ${token}` } });
    return (await answer.json()) as Stats;
  };
  const page = await windows.open(host, "/#/monitor");
  await page.getByLabel("Paste a token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("The last five minutes").waitFor();
  // Long enough for the demo to have connected.
  for (let looked = 0; looked < 3; looked++) await page.waitForResponse(/\/v1\/stats/);
  const { totals, users, connections } = await stats();
  expect([totals.heartbeats, users.online, connections.watchers, connections.watched_users]).toEqual([0, 0, 0, 0]);
  await page.getByRole("link", { name: "Demo" }).click();
  await page.locator('[data-you][data-state="online"]').waitFor();
  await page.getByRole("link", { name: "Monitor" }).click();
  await page.getByText("The last five minutes").waitFor();
  expect((await stats()).users.online, "the demo stays connected").toBe(1);
  rmSync(folder, { recursive: true });
});
