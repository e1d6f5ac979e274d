// Watch it run: the figures move, people are found, and a host that goes away is said to be.

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
  expect(windows.misdeeds.splice(0)).toEqual([]);
});

/** A host of this test's own. */
async function start(further: readonly string[] = []): Promise<Host> {
  const host = await Host.start(further);
  hosts.push(host);
  return host;
}

/** The current value of a chart's line. */
async function value(page: Page, chart: string, line: string): Promise<number> {
  const figure = page.locator("figure", { has: page.getByRole("heading", { name: chart, exact: true }) });
  const cell = figure.locator(".legend tr", { hasText: line }).locator("td").first();
  return Number((await cell.getAttribute("data-value")) || Number.NaN);
}

/** Beats for so many people. */
async function beat(host: Host, people: number): Promise<void> {
  const beats = Array.from({ length: people }, (_, place) => ({ user: `person-${place}`, device: "web-1" }));
  await host.ask("crowd", "POST", "/v1/heartbeats", { beats });
}

async function lookUp(page: Page, user: string): Promise<void> {
  await page.getByLabel("Whose name").fill(user);
  await page.getByRole("button", { name: "Look up" }).click();
}

async function why(page: Page, viewer: string, subject: string): Promise<string> {
  await page.getByLabel("Who looks").fill(viewer);
  await page.getByLabel("Who is looked at").fill(subject);
  await page.getByRole("button", { name: "Ask", exact: true }).click();
  await page.locator(".verdict strong", { hasText: `${viewer} can` }).filter({ hasText: `see ${subject}.` }).waitFor();
  return page.locator(".verdict").innerText();
}

test("the charts move while people come, beat and go", async () => {
  const host = await start();
  const page = await windows.open(host, "/#/run");
  await page.getByText("The last five minutes").waitFor();
  await until("nobody is here", async () => (await value(page, "People here", "here")) === 0);
  await beat(host, 300);
  await until("all of them are here", async () => (await value(page, "People here", "here")) === 300);
  await until("their beats are counted", async () => (await value(page, "Heartbeats", "heartbeats/s")) > 0);
  await until("their coming is counted", async () => (await value(page, "Transitions", "online")) > 0);
  const canvas = page.locator("figure canvas").first();
  const pixels = () => canvas.evaluate((element: HTMLCanvasElement) => element.toDataURL());
  const drawn = await pixels();
  await until("they are gone", async () => (await value(page, "People here", "here")) === 0);
  await until("their going is counted", async () => (await value(page, "Transitions", "offline")) > 0);
  await until("the lag of it is known", async () => (await value(page, "Settle lag", "p99")) > 0);
  await until("what is drawn has moved", async () => drawn !== (await pixels()));
  await page.getByText("As a table: People here").click();
  await page.getByRole("region", { name: "People here, as a table" }).locator("tbody tr").first().waitFor();
});

test("a person is found with devices, choice and deadline, and followed", async () => {
  const host = await start();
  await host.ask("bob", "POST", "/v1/heartbeat", { device: "phone-7", kind: "mobile" });
  await host.ask("bob", "PUT", "/v1/status", { choice: "busy", text: "lunch" });
  const page = await windows.open(host, "/#/run");
  const beating = setInterval(() => {
    host.ask("bob", "POST", "/v1/heartbeat", { device: "phone-7", kind: "mobile" }).catch(() => undefined);
  }, 1_000);
  await lookUp(page, "bob");
  await page.getByRole("rowheader", { name: "phone-7" }).waitFor();
  await page.locator(".profile [data-state]", { hasText: "busy" }).waitFor();
  expect(await page.locator(".facts").innerText()).toMatch(/“lunch”[^]*Choice\s*busy[^]*Next deadline\s*in \d/);
  clearInterval(beating);
  await page.getByText("No device is alive.").waitFor();
  await page.locator(".profile [data-state]", { hasText: "offline" }).waitFor();
});

test("of somebody who left a note and was never here no time is told", async () => {
  const host = await start();
  await host.ask("nell", "PUT", "/v1/status", { choice: "away", text: "back soon" });
  const page = await windows.open(host, "/#/run");
  await lookUp(page, "nell");
  await page.getByText("offline, “back soon”", { exact: true }).waitFor();
  expect(await page.locator(".facts").innerText()).toMatch(/Last seen\s*not known/);
});

test("why one cannot see another is said in a sentence", async () => {
  const host = await start();
  const page = await windows.open(host, "/#/run");
  expect(await why(page, "alice", "bob")).toMatch(/^alice can see bob\.[^]* bob is offline\./);
  await host.ask("erin", "PUT", "/v1/status", { choice: "invisible" });
  expect(await why(page, "alice", "erin")).toMatch(/^alice can see erin\.[^]* erin chose to be invisible/);
  await host.ask("bob", "PUT", "/v1/blocks/alice");
  expect(await why(page, "alice", "bob")).toMatch(/^alice cannot see bob\. bob blocked alice\.[^]*unblocks alice/);
  await host.ask("carol", "PUT", "/v1/privacy", { presence: "contacts", last_seen: "nobody" });
  expect(await why(page, "alice", "carol")).toMatch(/^alice cannot see carol\. carol lets only contacts see them/);
  await host.ask("admin", "PUT", "/v1/restrictions/dave");
  expect(await why(page, "alice", "dave")).toMatch(/^alice cannot see dave\. An administrator restricted/);
  await lookUp(page, "dave");
  await page.locator(".profile .tag", { hasText: "restricted" }).waitFor();
});

test("a verdict is told although what would explain it cannot be had", async () => {
  const host = await start();
  await host.ask("bob", "PUT", "/v1/privacy", { presence: "nobody", last_seen: "nobody" });
  await host.ask("carol", "PUT", "/v1/blocks/alice");
  const page = await windows.open(host, "/#/run");
  await page.route(/\/v1\/(people|blocks)/, (route) => route.abort());
  expect(await why(page, "alice", "bob")).toMatch(/^alice cannot see bob\. A privacy setting of bob excludes alice\./);
  expect(await why(page, "alice", "carol")).toMatch(/^alice cannot see carol\. One of the two/);
});

test("a host that goes away is said to be, what it said stays, and it comes back by itself", async () => {
  const host = await start();
  const page = await windows.open(host, "/#/run");
  await beat(host, 5);
  await until("five are here", async () => (await value(page, "People here", "here")) === 5);
  await host.kill();
  await page.getByText("The host has not answered for").waitFor();
  await page.locator(".run.stale").waitFor();
  expect(await page.getByText("The last five minutes").isVisible()).toBe(true);
  await start(["--listen", new URL(host.base).host]);
  await page.locator(".run:not(.stale)").waitFor();
  expect(await page.getByText("The host has not answered for").count()).toBe(0);
});

test("a host with a key asks for a token, and says which scope is missing", async () => {
  const folder = mkdtempSync(join(tmpdir(), "rollcall-console-"));
  const key = join(folder, "key");
  writeFileSync(key, "a secret of thirty-two bytes or more, for a test");
  const host = await start(["--token-key", key]);
  const page = await windows.open(host, "/#/run");
  const signIn = async (token: string) => {
    await page.getByLabel("Paste a token").fill(token);
    await page.getByRole("button", { name: "Sign in" }).click();
  };
  await signIn("nonsense");
  await page.getByText("That is no token").waitFor();
  await signIn(mint(key, "alice"));
  await page.getByText("takes a token with the scope admin").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await signIn(mint(key, "alice", "--scope", "admin"));
  await page.getByText("The last five minutes").waitFor();
  await page.getByRole("link", { name: "Try it" }).click();
  await page.getByText("You are alice").waitFor();
  await page.locator('[data-you][data-state="online"]').waitFor();
  await page.reload();
  await page.getByText("Signed in as alice").waitFor();
  rmSync(folder, { recursive: true });
});

test("who only watches it run is not here, and watches nobody", async () => {
  const folder = mkdtempSync(join(tmpdir(), "rollcall-console-"));
  const key = join(folder, "key");
  writeFileSync(key, "a secret of thirty-two bytes or more, for a test");
  const host = await start(["--token-key", key]);
  const token = mint(key, "ops", "--scope", "admin");
  const stats = async () => {
    const answer = await fetch(`${host.base}/v1/stats`, { headers: { authorization: `Bearer ${token}` } });
    return (await answer.json()) as Stats;
  };
  const page = await windows.open(host, "/#/run");
  await page.getByLabel("Paste a token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("The last five minutes").waitFor();
  // Seconds after a room would have been entered.
  for (let looked = 0; looked < 3; looked++) await page.waitForResponse(/\/v1\/stats/);
  const { totals, people, gateway } = await stats();
  expect([totals.heartbeats, people.here, gateway.watchers, gateway.people]).toEqual([0, 0, 0, 0]);
  await page.getByRole("link", { name: "Try it" }).click();
  await page.locator('[data-you][data-state="online"]').waitFor();
  await page.getByRole("link", { name: "Watch it run" }).click();
  await page.getByText("The last five minutes").waitFor();
  expect((await stats()).people.here, "who entered stays").toBe(1);
  rmSync(folder, { recursive: true });
});
