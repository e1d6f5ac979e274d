// The example in two windows: as the host serves it, under the host's own Content-Security-Policy, and opened as a file.

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

/** A window of this person at an address, and what the browser complained of. */
async function open(address: string, name: string): Promise<{ page: Page; complaints: string[] }> {
  const page = await (await pages.browser.newContext()).newPage();
  const complaints: string[] = [];
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("dialog", (dialog) => void dialog.accept(name));
  // It asks for no icon, but browsers look for one at an address of the web.
  await page.route(`${host.url}/favicon.ico`, (route) => route.fulfill({ status: 204 }));
  await page.goto(address);
  return { page, complaints };
}

const shows = (page: Page, text: string) =>
  until(text, async () => (await page.evaluate(() => document.body.innerText)).includes(text));

/** Two windows at this address see each other come, hide and go. */
async function together(address: string): Promise<void> {
  const alice = await open(address, "alice");
  await shows(alice.page, "alice (you): online");
  await shows(alice.page, "bob: offline");
  const bob = await open(address, "bob");
  await shows(alice.page, "bob: online");
  await shows(bob.page, "alice: online");
  expect(await alice.page.locator("i.online").count()).toBe(2);
  await host.ask("bob", "PUT", "/v1/blocks/alice");
  await shows(alice.page, "bob: hidden");
  await host.ask("bob", "DELETE", "/v1/blocks/alice");
  await shows(alice.page, "bob: online");
  await bob.page.close();
  await shows(alice.page, "bob: offline");
  expect([...alice.complaints, ...bob.complaints]).toEqual([]);
  await alice.page.close();
}

test("the example is twenty lines, and the host serves these and no others", async () => {
  expect(EXAMPLE.trim().split("\n").length).toBe(20);
  const served = await fetch(`${host.url}/example.html`);
  expect(await served.text(), "the binary holds another example: run `cargo xtask build`").toBe(EXAMPLE);
});

test("two windows that the host serves see each other come, hide and go", () => together(`${host.url}/example.html`));

test("two windows that are opened as files do too, if the host lets files in", async () => {
  // The page names the port that a host has by itself, and this one has another.
  const copy = join(host.folder, "page.html");
  const named = "http://localhost:8080";
  expect(EXAMPLE.split(named).length, "it names the host once").toBe(2);
  writeFileSync(copy, EXAMPLE.replace(named, host.url));
  await together(pathToFileURL(copy).href);
});
