// Takes the screenshot for the README: both views of the console, on a host under load.
//
//   npm run screenshot -w @rollcall/console
//
// The host is the binary at ROLLCALL_BIN, or target/debug/rollcall, and must embed the console; Chromium is at CHROMIUM,
// or on the PATH. It takes about a minute, because the charts show a minute.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { statSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

import { chromiumPath } from "./chromium.mjs";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const PICTURE = `${ROOT}docs/console.png`;
const MAX_BYTES = 200 * 1024;

/** How long the load runs before the screenshot. */
const LOAD_MS = 52_000;
const USERS = 1_800;
/** Watched users, and how many streams watch each. */
const WATCHED = [["nora", 42], ["bob", 31], ["carol", 24], ["erin", 13], ["omar", 8], ["dave", 5]];

async function main() {
  const host = await startHost();
  const end = new AbortController();
  let browser;
  try {
    browser = await chromium.launch({ executablePath: chromiumPath(), args: ["--no-sandbox"], headless: true });
    await setUp(host.base);
    const load = generateLoad(host.base, end.signal);
    const monitor = await open(browser, `${host.base}/#/monitor`, { width: 1_100, height: 800 });
    const others = await Promise.all(["bob", "nora"].map((name) => open(browser, `${host.base}/?as=${name}#/demo`, {})));
    const users = "alice,nora,bob,carol,dave,erin";
    const phone = await open(browser, `${host.base}/?as=alice&with=${users}#/demo`, { width: 380, height: 760 });
    await wait(LOAD_MS);
    await act(others);
    await compose(browser, await capture(monitor), await capture(phone, '[aria-labelledby="watched-title"]'));
    end.abort();
    await load;
  } finally {
    end.abort();
    host.child.kill("SIGKILL");
    await browser?.close();
  }
  const bytes = statSync(PICTURE).size;
  console.log(`${PICTURE}: ${Math.round(bytes / 1024)} KB`);
  if (bytes > MAX_BYTES) throw new Error("docs/console.png is larger than 200 KiB");
}

/** Starts a host with short times, so that much happens in a minute. */
async function startHost() {
  const environment = Object.entries(process.env).filter(([name]) => !name.startsWith("ROLLCALL_"));
  const times = ["--interval", "2s", "--tolerance", "1s", "--grace", "2s", "--evict-after", "1s"];
  const child = spawn(
    process.env.ROLLCALL_BIN ?? `${ROOT}target/debug/rollcall`,
    ["serve", "--listen", "127.0.0.1:0", "--data", "none", "--log", "error", ...times],
    { env: Object.fromEntries(environment), stdio: ["ignore", "pipe", "inherit"] },
  );
  const lines = createInterface({ input: child.stdout });
  const [line] = await once(lines, "line", { signal: AbortSignal.timeout(20_000) });
  return { child, base: line.split(" ").find((word) => word.startsWith("http://")) };
}

/** Sets statuses and privacy of the demo's users. */
async function setUp(base) {
  await request(base, "carol", "PUT", "/v1/status", { choice: "busy", text: "in a meeting", emoji: "☎" });
  await request(base, "erin", "PUT", "/v1/status", { choice: "away", text: "back soon", emoji: "☕" });
  await request(base, "dave", "PUT", "/v1/privacy", { presence: "contacts", last_seen: "contacts" });
}

/** Sends heartbeats of users who come and go, and opens streams that watch them, until aborted. */
async function generateLoad(base, signal) {
  for (const [user, watchers] of WATCHED) {
    for (let watcher = 0; watcher < watchers; watcher++) {
      const users = [user, ...Array.from({ length: 12 }, (_, place) => `user-${watcher * 29 + place * 7}`)].join();
      const path = `/v1/subscribe?users=${users}&as=watcher-${user}-${watcher}`;
      fetch(base + path, { signal }).then((response) => drain(response.body)).catch(() => undefined);
    }
  }
  for (let second = 0; !signal.aborted; second++) {
    // A slow wave of users, plus some who stay only a few seconds.
    const online = Math.round(USERS * (0.8 + 0.2 * Math.sin(second / 9)));
    const steady = Array.from({ length: online }, (_, place) => `user-${place}`);
    const short = Array.from({ length: 60 }, (_, place) => `guest-${Math.floor(second / 4) * 40 + place}`);
    const all = [...steady, ...short, "carol", "erin", "dave", "omar"];
    for (let first = 0; first < all.length; first += 1_000) {
      const beats = all.slice(first, first + 1_000).map((user) => ({ user, device: "web-1", kind: "web" }));
      await request(base, "crowd", "POST", "/v1/heartbeats", { beats });
    }
    await wait(1_000);
  }
}

async function drain(body) {
  for await (const _ of body) {
    // Discard.
  }
}

/** Causes events for the timeline. */
async function act([bob, nora]) {
  await nora.getByRole("radio", { name: "busy" }).check();
  await nora.getByLabel("Text").fill("writing");
  await nora.getByRole("button", { name: "Set" }).click();
  await bob.getByPlaceholder("Hello…").pressSequentially("shall we", { delay: 60 });
}

async function open(browser, url, { width = 1_200, height = 800 }) {
  const context = await browser.newContext({ colorScheme: "light", viewport: { width, height } });
  const page = await context.newPage();
  await page.goto(url);
  return page;
}

/** A screenshot of the page, scrolled to this element. */
async function capture(page, from) {
  if (from) {
    await page.locator(from).first().evaluate((element) => {
      element.scrollIntoView();
      scrollBy(0, -9);
    });
  }
  return page.screenshot();
}

/** Combines both screenshots, the demo in front of the monitor. */
async function compose(browser, monitor, phone) {
  const page = await browser.newPage({ viewport: { width: 1_500, height: 860 } });
  const source = (picture) => `data:image/png;base64,${picture.toString("base64")}`;
  await page.setContent(`
    <style>
      body { margin: 0; height: 860px; background: #dfe6e1; }
      img { position: absolute; border-radius: 10px; box-shadow: 0 0 0 1px #b9c4bd, 0 6px 0 #c9d3cd; }
    </style>
    <img style="left: 30px; top: 30px" src="${source(monitor)}">
    <img style="right: 30px; bottom: 30px" src="${source(phone)}">`);
  await page.screenshot({ path: PICTURE });
}

async function request(base, user, method, path, body) {
  const headers = { "rollcall-user": user, "content-type": "application/json" };
  const response = await fetch(base + path, { method, headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  await response.arrayBuffer();
}

function wait(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

await main();
