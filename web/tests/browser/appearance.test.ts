// Appearance in light and dark, on desktop and phone: axe has no serious findings and nothing overflows. Screenshots go
// to `target/screenshots`.

import { readFileSync } from "node:fs";

import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import { Host, ROOT } from "./host";
import { axeFindings, screenshot, shows, Windows, type Appearance } from "./browser";

let host: Host;
let windows: Windows;
beforeAll(async () => {
  host = await Host.start(["--interval", "10m", "--tolerance", "1m"]);
  windows = await Windows.launch();
  for (const user of ["bob", "carol", "dave"]) await host.request(user, "POST", "/v1/heartbeat", { device: "web-1" });
  await host.request("carol", "PUT", "/v1/status", { choice: "busy", text: "in a meeting", emoji: "☕" });
  await host.request("dave", "PUT", "/v1/privacy", { presence: "nobody", last_seen: "nobody" });
  await host.request("erin", "PUT", "/v1/status", { choice: "away", text: "back soon" });
  await host.request("erin", "POST", "/v1/heartbeat", { device: "web-1" });
});
afterAll(async () => {
  await windows.close();
  await host.kill();
});
afterEach(async () => {
  await windows.closeAll();
  expect(windows.violations.splice(0)).toEqual([]);
});

/** Pixels by which the page is wider than the window. */
function overflow(page: Page): Promise<number> {
  return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}

const APPEARANCES: [string, Appearance][] = [
  ["light", { scheme: "light" }],
  ["dark", { scheme: "dark" }],
  ["light-phone", { scheme: "light", width: 360, height: 740 }],
  ["dark-phone", { scheme: "dark", width: 360, height: 740 }],
];

test.each(APPEARANCES)("the name picker is accessible: %s", async (name, appearance) => {
  const page = await windows.open(host, "/", appearance);
  await page.getByRole("heading", { name: "Pick a name" }).waitFor();
  await screenshot(page, `name-${name}`);
  expect(await axeFindings(page)).toEqual([]);
  expect(await overflow(page)).toBe(0);
});

test.each(APPEARANCES)("the demo is accessible: %s", async (name, appearance) => {
  const page = await windows.open(host, "/?as=alice&with=alice,bob,carol,dave,erin,frank#/demo", appearance);
  await shows(page, "bob", "online");
  await shows(page, "carol", "busy");
  await shows(page, "dave", "hidden");
  await shows(page, "erin", "away");
  await shows(page, "frank", "offline");
  await page.locator('[data-connection="online"]').waitFor();
  await screenshot(page, `demo-${name}`);
  expect(await axeFindings(page)).toEqual([]);
  expect(await overflow(page)).toBe(0);
});

test.each(APPEARANCES)("the monitor is accessible: %s", async (name, appearance) => {
  const page = await windows.open(host, "/?as=alice#/monitor", appearance);
  await page.getByLabel("User", { exact: true }).fill("carol");
  await page.getByRole("button", { name: "Look up" }).click();
  await page.getByRole("rowheader", { name: "web-1" }).waitFor();
  await page.getByLabel("Viewer").fill("alice");
  await page.getByLabel("Subject").fill("dave");
  await page.getByRole("button", { name: "Check", exact: true }).click();
  await page.getByText("dave is visible to nobody.").waitFor();
  await page.getByText("As a table: Users online").click();
  await screenshot(page, `monitor-${name}`);
  expect(await axeFindings(page)).toEqual([]);
  expect(await overflow(page)).toBe(0);
});

test("a chosen theme overrides the system and persists", async () => {
  const page = await windows.open(host, "/", { scheme: "dark" });
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await ground();
  await page.getByRole("button", { name: "Light" }).click();
  const light = await ground();
  expect(light).not.toBe(dark);
  await page.reload();
  await page.getByRole("button", { name: "Dark" }).waitFor();
  expect(await ground()).toBe(light);
});

test("the skip link is first in tab order", async () => {
  const page = await windows.open(host, "/?as=alice#/demo");
  await page.getByText("You are alice").waitFor();
  await page.keyboard.press("Tab");
  expect(await page.evaluate(() => document.activeElement?.textContent)).toBe("Skip to the content");
  await page.keyboard.press("Enter");
  expect(await page.evaluate(() => document.activeElement?.id)).toBe("content");
  await page.keyboard.press("Tab");
  expect(await page.evaluate(() => document.activeElement?.textContent)).toBe("Go offline");
  expect(page.url()).toMatch(/#\/demo$/);
});

test("the host serves the built console", async () => {
  const built = readFileSync(`${ROOT}web/dist/index.html`, "utf8");
  const response = await fetch(`${host.base}/`);
  expect(await response.text(), "the binary embeds another version: run `cargo xtask build`").toBe(built);
  const policy = response.headers.get("content-security-policy");
  expect(policy).toMatch(/^default-src 'none'; script-src 'self'; style-src 'self';/);
  expect(built).not.toMatch(/<style|style=|<script(?![^>]* src=)|https?:/);
});
