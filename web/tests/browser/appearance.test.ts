// How it looks: in light and dark, on a desk and on a phone, axe finds nothing serious and nothing sticks out. Pictures
// of all of it are written to `target/screenshots`.

import { readFileSync } from "node:fs";

import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import { Host, ROOT } from "./host";
import { picture, shows, violations, Windows, type Looks } from "./browser";

let host: Host;
let windows: Windows;
beforeAll(async () => {
  host = await Host.start(["--interval", "10m", "--tolerance", "1m"]);
  windows = await Windows.launch();
  for (const user of ["bob", "carol", "dave"]) await host.ask(user, "POST", "/v1/heartbeat", { device: "web-1" });
  await host.ask("carol", "PUT", "/v1/status", { choice: "busy", text: "in a meeting", emoji: "☕" });
  await host.ask("dave", "PUT", "/v1/privacy", { presence: "nobody", last_seen: "nobody" });
  await host.ask("erin", "PUT", "/v1/status", { choice: "away", text: "back soon" });
  await host.ask("erin", "POST", "/v1/heartbeat", { device: "web-1" });
});
afterAll(async () => {
  await windows.close();
  await host.kill();
});
afterEach(async () => {
  await windows.closeAll();
  expect(windows.misdeeds.splice(0)).toEqual([]);
});

/** How wide the page is beyond the window. */
function overhang(page: Page): Promise<number> {
  return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}

const LOOKS: [string, Looks][] = [
  ["light", { scheme: "light" }],
  ["dark", { scheme: "dark" }],
  ["light-phone", { scheme: "light", width: 360, height: 740 }],
  ["dark-phone", { scheme: "dark", width: 360, height: 740 }],
];

test.each(LOOKS)("the way in is fit for everybody: %s", async (name, looks) => {
  const page = await windows.open(host, "/", looks);
  await page.getByRole("heading", { name: "Who are you?" }).waitFor();
  await picture(page, `enter-${name}`);
  expect(await violations(page)).toEqual([]);
  expect(await overhang(page)).toBe(0);
});

test.each(LOOKS)("Try it is fit for everybody: %s", async (name, looks) => {
  const page = await windows.open(host, "/?as=alice&with=alice,bob,carol,dave,erin,frank#/try", looks);
  await shows(page, "bob", "online");
  await shows(page, "carol", "busy");
  await shows(page, "dave", "hidden");
  await shows(page, "erin", "away");
  await shows(page, "frank", "offline");
  await page.locator('[data-link="online"]').waitFor();
  await picture(page, `try-${name}`);
  expect(await violations(page)).toEqual([]);
  expect(await overhang(page)).toBe(0);
});

test.each(LOOKS)("Watch it run is fit for everybody: %s", async (name, looks) => {
  const page = await windows.open(host, "/?as=alice#/run", looks);
  await page.getByLabel("Whose name").fill("carol");
  await page.getByRole("button", { name: "Look up" }).click();
  await page.getByRole("rowheader", { name: "web-1" }).waitFor();
  await page.getByLabel("Who looks").fill("alice");
  await page.getByLabel("Who is looked at").fill("dave");
  await page.getByRole("button", { name: "Ask", exact: true }).click();
  await page.getByText("dave lets nobody see them.").waitFor();
  await page.getByText("As a table: People here").click();
  await picture(page, `run-${name}`);
  expect(await violations(page)).toEqual([]);
  expect(await overhang(page)).toBe(0);
});

test("the theme is as the system prefers until it is chosen, and stays as chosen", async () => {
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

test("the keyboard reaches the content first, and then everything else", async () => {
  const page = await windows.open(host, "/?as=alice#/try");
  await page.getByText("You are alice").waitFor();
  await page.keyboard.press("Tab");
  expect(await page.evaluate(() => document.activeElement?.textContent)).toBe("Skip to the content");
  await page.keyboard.press("Enter");
  expect(await page.evaluate(() => document.activeElement?.id)).toBe("content");
  await page.keyboard.press("Tab");
  expect(await page.evaluate(() => document.activeElement?.textContent)).toBe("Leave");
  expect(page.url()).toMatch(/#\/try$/);
});

test("the host serves the console that was built, and allows it nothing else", async () => {
  const built = readFileSync(`${ROOT}web/dist/index.html`, "utf8");
  const response = await fetch(`${host.base}/`);
  expect(await response.text(), "the binary holds another console: run `cargo xtask build`").toBe(built);
  const policy = response.headers.get("content-security-policy");
  expect(policy).toMatch(/^default-src 'none'; script-src 'self'; style-src 'self';/);
  expect(built).not.toMatch(/<style|style=|<script(?![^>]* src=)|https?:/);
});
