// The demo: windows of different users on one host see each other. Every test has its own users.

import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import { Host } from "./host";
import { crash, shows, until, Windows } from "./browser";

let host: Host;
let windows: Windows;
beforeAll(async () => {
  host = await Host.start();
  windows = await Windows.launch();
});
afterAll(async () => {
  await windows.close();
  await host.kill();
});
afterEach(async () => {
  await windows.closeAll();
  expect(windows.violations.splice(0)).toEqual([]);
});

/** Two windows whose users see each other online. */
async function openBoth(one: string, other: string): Promise<[Page, Page]> {
  const users = `with=${one},${other}`;
  const first = await windows.open(host, `/?as=${one}&${users}#/demo`);
  const second = await windows.open(host, `/?as=${other}&${users}#/demo`);
  await shows(first, other, "online");
  await shows(second, one, "online");
  return [first, second];
}

async function setStatus(page: Page, choice: string, note: { text?: string; emoji?: string } = {}): Promise<void> {
  await page.getByRole("radio", { name: choice }).check();
  await page.getByLabel("Text").fill(note.text ?? "");
  await page.getByLabel("Emoji").fill(note.emoji ?? "");
  await page.getByRole("button", { name: "Set" }).click();
}

test("windows see each other open and crash", async () => {
  const alice = await windows.open(host, "/?as=alice#/demo");
  await shows(alice, "bob", "offline");
  const bob = await windows.open(host, "/?as=bob#/demo");
  await shows(alice, "bob", "online");
  await shows(bob, "alice", "online");
  await crash(bob);
  await shows(alice, "bob", "offline");
  await alice.getByText(/last seen/).first().waitFor();
});

test("the timeline shows changes with their latency", async () => {
  const [ada, bill] = await openBoth("ada", "bill");
  await setStatus(bill, "busy");
  const event = ada.locator(".event", { hasText: "bill is busy" });
  await event.waitFor();
  expect(await event.locator(".latency").innerText()).toMatch(/^(< )?\d+ ms$/);
  expect(await event.locator(".latency").getAttribute("title")).toMatch(/event's version.*(within|±) \d+ ms/);
  await setStatus(bill, "automatic");
});

test("a busy user is shown with a note", async () => {
  const [cleo, dan] = await openBoth("cleo", "dan");
  await setStatus(dan, "busy", { text: "in a meeting", emoji: "☕" });
  await shows(cleo, "dan", "busy");
  expect(await cleo.locator('[data-user="dan"] .note').innerText()).toBe("☕ in a meeting");
  await dan.locator('[data-you][data-state="busy"]').waitFor();
  await setStatus(dan, "automatic");
  await shows(cleo, "dan", "online");
});

test("an invisible user appears offline to others", async () => {
  const [eve, finn] = await openBoth("eve", "finn");
  await setStatus(finn, "invisible");
  await shows(eve, "finn", "offline");
  await finn.getByText("invisible: others see you offline").waitFor();
  await setStatus(finn, "automatic");
  await shows(eve, "finn", "online");
});

test("a block hides both users", async () => {
  const [gina, hugo] = await openBoth("gina", "hugo");
  const block = hugo.getByRole("button", { name: "Block gina" });
  await block.click();
  await shows(gina, "hugo", "hidden");
  await shows(hugo, "gina", "hidden");
  await gina.locator(".event", { hasText: "hugo is not visible to you" }).waitFor();
  expect(await block.getAttribute("aria-pressed")).toBe("true");
  await block.click();
  await shows(gina, "hugo", "online");
});

test("contacts privacy hides users from non-contacts", async () => {
  const [ida, jack] = await openBoth("ida", "jack");
  await jack.getByLabel("presence").selectOption("contacts");
  await shows(ida, "jack", "hidden");
  await jack.getByRole("button", { name: "Contact ida" }).click();
  await shows(ida, "jack", "online");
  await jack.getByLabel("presence").selectOption("everyone");
  await jack.getByRole("button", { name: "Contact ida" }).click();
});

test("typing is shown until it stops", async () => {
  const [kate, liam] = await openBoth("kate", "liam");
  await liam.getByPlaceholder("Hello…").pressSequentially("hi there");
  await kate.getByRole("status").filter({ hasText: "liam is typing" }).waitFor();
  await liam.getByPlaceholder("Hello…").fill("");
  await kate.locator(".event", { hasText: "liam stopped typing" }).waitFor();
  expect(await kate.getByRole("status").filter({ hasText: "typing" }).count()).toBe(0);
});

test("going offline is immediate and reversible", async () => {
  const [mona, ned] = await openBoth("mona", "ned");
  await ned.getByRole("button", { name: "Go offline" }).click();
  await shows(mona, "ned", "offline");
  await ned.getByRole("button", { name: "Go online" }).click();
  await shows(mona, "ned", "online");
});

test("the user stays online in the monitor", async () => {
  const [olga, paul] = await openBoth("olga", "paul");
  await paul.getByRole("link", { name: "Monitor" }).click();
  await paul.getByText("The last five minutes").waitFor();
  await setStatus(olga, "away");
  await shows(olga, "paul", "online");
  await paul.getByRole("link", { name: "Demo" }).click();
  await shows(paul, "olga", "away");
  expect(await olga.locator(".event", { hasText: "paul went offline" }).count()).toBe(0);
  await setStatus(olga, "automatic");
});

test("names may contain any character", async () => {
  const [zoe, name] = await openBoth("zoë", "名前");
  await setStatus(name, "busy", { text: "話し中" });
  await shows(zoe, "名前", "busy");
  await zoe.getByRole("button", { name: "Block 名前" }).click();
  await shows(name, "zoë", "hidden");
  expect(await zoe.getByRole("alert").count()).toBe(0);
});

test("states stay visible, greyed, during a host outage", async () => {
  const outage = await Host.start();
  const page = await windows.open(outage, "/?as=quentin&with=ruth#/demo");
  await shows(page, "ruth", "offline");
  await outage.kill();
  await page.getByText("The host does not respond.").waitFor();
  await page.locator('.stale[data-user="ruth"]').waitFor();
  const back = await Host.start(["--listen", new URL(outage.base).host]);
  try {
    // The longer the outage, the longer the client's backoff: up to thirty seconds.
    await page.locator('[data-connection="online"]').waitFor({ timeout: 45_000 });
    await page.locator('[data-user="ruth"]:not(.stale)').waitFor();
    expect(await page.getByText("The host does not respond.").count()).toBe(0);
  } finally {
    await back.kill();
  }
}, 90_000);

test("the URL keeps the name and the users", async () => {
  const page = await windows.open(host, "/");
  await page.getByRole("button", { name: "carol" }).click();
  await page.getByLabel("Watch another user").fill("zoe");
  await page.getByRole("button", { name: "Watch", exact: true }).click();
  await shows(page, "zoe", "offline");
  expect(page.url()).toMatch(/\?as=carol&with=alice,bob,carol,dave,zoe#\/demo$/);
  await page.reload();
  await shows(page, "zoe", "offline");
  await page.getByRole("button", { name: "Stop watching zoe" }).click();
  await until("zoe is gone", async () => (await page.locator('[data-user="zoe"]').count()) === 0);
});

test("a second window opens as another user", async () => {
  const alice = await windows.open(host, "/?as=alice#/demo");
  const opened = alice.context().waitForEvent("page");
  await alice.getByRole("button", { name: "Open as dave" }).click();
  const dave = await opened;
  await dave.getByText("You are dave").waitFor();
  await shows(alice, "dave", "online");
  await shows(dave, "alice", "online");
});
