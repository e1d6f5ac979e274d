// The example page in two windows: served by the host under its Content-Security-Policy, and opened as a file.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { afterAll, beforeAll, expect, test } from "vitest";
import type { Page } from "playwright-core";

import { Pages } from "./browser.js";
import { Host } from "./host.js";
import { until } from "./recorder.js";

const EXAMPLE = readFileSync(fileURLToPath(new URL("../../../examples/page.html", import.meta.url)), "utf8");

let pages: Pages;
let host: Host;

beforeAll(async () => {
  [pages, host] = await Promise.all([Pages.start(), Host.start(["--origins", "null"])]);
});

afterAll(async () => {
  await pages.stop();
  await host.remove();
});

/** A window of a user, and the errors the browser logged. */
async function open(address: string, name: string): Promise<{ page: Page; errors: string[] }> {
  const page = await (await pages.browser.newContext()).newPage();
  const errors: string[] = [];
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("dialog", (dialog) => void dialog.accept(name));
  // Browsers request an icon from http addresses, although the page names none.
  await page.route(`${host.url}/favicon.ico`, (route) => route.fulfill({ status: 204 }));
  await page.goto(address);
  return { page, errors };
}

const shows = (page: Page, text: string) =>
  until(text, async () => (await page.evaluate(() => document.body.innerText)).includes(text));

/** Two windows at this address see each other come online, block and go offline. */
async function checkTwoWindows(address: string): Promise<void> {
  const alice = await open(address, "alice");
  await shows(alice.page, "alice (you): online");
  await shows(alice.page, "bob: offline");
  const bob = await open(address, "bob");
  await shows(alice.page, "bob: online");
  await shows(bob.page, "alice: online");
  expect(await alice.page.locator("i.online").count()).toBe(2);
  await host.request("bob", "PUT", "/v1/blocks/alice");
  await shows(alice.page, "bob: hidden");
  await host.request("bob", "DELETE", "/v1/blocks/alice");
  await shows(alice.page, "bob: online");
  await bob.page.close();
  await shows(alice.page, "bob: offline");
  expect([...alice.errors, ...bob.errors]).toEqual([]);
  await alice.page.close();
}

test("the host serves the twenty-line example", async () => {
  expect(EXAMPLE.trim().split("\n").length).toBe(20);
  const served = await fetch(`${host.url}/example.html`);
  expect(await served.text(), "the binary embeds another version: run `cargo xtask build`").toBe(EXAMPLE);
});

test("windows served by the host see each other", () => checkTwoWindows(`${host.url}/example.html`));

test("windows opened as files see each other", async () => {
  // The page names the default port; this host listens on another.
  const copy = join(host.folder, "page.html");
  const named = "http://localhost:8080";
  expect(EXAMPLE.split(named).length, "the host is named once").toBe(2);
  writeFileSync(copy, EXAMPLE.replace(named, host.url));
  await checkTwoWindows(pathToFileURL(copy).href);
});
