// The example, as the host serves it: under its Content-Security-Policy, at the origin of the service, in two windows.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { afterAll, beforeAll, expect, test } from "vitest";
import type { Page } from "playwright-core";

import { Pages } from "./browser.js";
import { Host } from "./host.js";
import { until } from "./waiting.js";

const read = (path: string) => readFileSync(fileURLToPath(new URL(path, import.meta.url)), "utf8");
const EXAMPLE = read("../../../examples/page.html");

let pages: Pages;
let host: Host;

beforeAll(async () => {
  [pages, host] = await Promise.all([Pages.start(), Host.start()]);
});

afterAll(async () => {
  await pages.stop();
  await host.remove();
});

/** The hash by which a policy allows what stands inside of an element. */
function hash(element: string): string {
  const inside = new RegExp(`<${element}[^>]*>([\\s\\S]*?)</${element}>`).exec(EXAMPLE)?.[1] ?? "";
  return `'sha256-${createHash("sha256").update(inside).digest("base64")}'`;
}

async function open(name: string): Promise<{ page: Page; complaints: string[] }> {
  const page = await (await pages.browser.newContext()).newPage();
  const complaints: string[] = [];
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("dialog", (dialog) => void dialog.accept(name));
  const [script, style] = [hash("script"), hash("style")];
  const policy = `default-src 'none'; script-src 'self' ${script}; style-src ${style}; connect-src 'self'`;
  const html = { contentType: "text/html", body: EXAMPLE, headers: { "Content-Security-Policy": policy } };
  await page.route(`${host.url}/example.html`, (route) => route.fulfill(html));
  const client = { contentType: "text/javascript", body: read("../dist/index.js") };
  await page.route(`${host.url}/client.js`, (route) => route.fulfill(client));
  await page.route(`${host.url}/favicon.ico`, (route) => route.fulfill({ status: 204 }));
  await page.goto(`${host.url}/example.html`);
  return { page, complaints };
}

const shows = (page: Page, text: string) =>
  until(text, async () => (await page.evaluate(() => document.body.innerText)).includes(text));

test("the example is some twenty lines, and two windows of it see each other come and go", async () => {
  expect(EXAMPLE.trim().split("\n").length).toBeLessThanOrEqual(24);
  const alice = await open("alice");
  await shows(alice.page, "alice (you): online");
  await shows(alice.page, "bob: offline");
  const bob = await open("bob");
  await shows(alice.page, "bob: online");
  await shows(bob.page, "alice: online");
  expect(await alice.page.locator("i.online").count()).toBe(2);
  await bob.page.close();
  await shows(alice.page, "bob: offline");
  expect([...alice.complaints, ...bob.complaints]).toEqual([]);
});
