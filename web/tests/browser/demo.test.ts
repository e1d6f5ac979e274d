// Try it: windows as different people, on one host, see each other. Every test has people of its own.

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
  expect(windows.misdeeds.splice(0)).toEqual([]);
});

/** Two windows, as these two, which see each other online. */
async function together(one: string, other: string): Promise<[Page, Page]> {
  const people = `with=${one},${other}`;
  const first = await windows.open(host, `/?as=${one}&${people}#/try`);
  const second = await windows.open(host, `/?as=${other}&${people}#/try`);
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

test("two windows see each other come, and one sees the other go when it is killed", async () => {
  const alice = await windows.open(host, "/?as=alice#/try");
  await shows(alice, "bob", "offline");
  const bob = await windows.open(host, "/?as=bob#/try");
  await shows(alice, "bob", "online");
  await shows(bob, "alice", "online");
  await crash(bob);
  await shows(alice, "bob", "offline");
  await alice.getByText(/last seen/).first().waitFor();
});

test("a change is on the timeline with its latency", async () => {
  const [ada, bill] = await together("ada", "bill");
  await setStatus(bill, "busy");
  const event = ada.locator(".event", { hasText: "bill is busy" });
  await event.waitFor();
  expect(await event.locator(".latency").innerText()).toMatch(/^(< )?\d+ ms$/);
  expect(await event.locator(".latency").getAttribute("title")).toMatch(/event's version.*(within|±) \d+ ms/);
  await setStatus(bill, "as I am");
});

test("who is busy says so, with a note", async () => {
  const [cleo, dan] = await together("cleo", "dan");
  await setStatus(dan, "busy", { text: "in a meeting", emoji: "☕" });
  await shows(cleo, "dan", "busy");
  expect(await cleo.locator('[data-person="dan"] .note').innerText()).toBe("☕ in a meeting");
  await dan.locator('[data-you][data-state="busy"]').waitFor();
  await setStatus(dan, "as I am");
  await shows(cleo, "dan", "online");
});

test("who is invisible looks offline, and is told so", async () => {
  const [eve, finn] = await together("eve", "finn");
  await setStatus(finn, "invisible");
  await shows(eve, "finn", "offline");
  await finn.getByText("invisible: others see you offline").waitFor();
  await setStatus(finn, "as I am");
  await shows(eve, "finn", "online");
});

test("whom one blocks is not visible, to either", async () => {
  const [gina, hugo] = await together("gina", "hugo");
  const block = hugo.getByRole("button", { name: "Block gina" });
  await block.click();
  await shows(gina, "hugo", "hidden");
  await shows(hugo, "gina", "hidden");
  await gina.locator(".event", { hasText: "hugo is not visible to you" }).waitFor();
  expect(await block.getAttribute("aria-pressed")).toBe("true");
  await block.click();
  await shows(gina, "hugo", "online");
});

test("who lets only contacts see them is seen by contacts", async () => {
  const [ida, jack] = await together("ida", "jack");
  await jack.getByLabel("that I am here").selectOption("contacts");
  await shows(ida, "jack", "hidden");
  await jack.getByRole("button", { name: "Contact ida" }).click();
  await shows(ida, "jack", "online");
  await jack.getByLabel("that I am here").selectOption("everyone");
  await jack.getByRole("button", { name: "Contact ida" }).click();
});

test("who types is shown, until they stop", async () => {
  const [kate, liam] = await together("kate", "liam");
  await liam.getByPlaceholder("Hello…").pressSequentially("hi there");
  await kate.getByRole("status").filter({ hasText: "liam is typing" }).waitFor();
  await liam.getByPlaceholder("Hello…").fill("");
  await kate.locator(".event", { hasText: "liam stopped typing" }).waitFor();
  expect(await kate.getByRole("status").filter({ hasText: "typing" }).count()).toBe(0);
});

test("who leaves is gone at once, and may come back", async () => {
  const [mona, ned] = await together("mona", "ned");
  await ned.getByRole("button", { name: "Leave" }).click();
  await shows(mona, "ned", "offline");
  await ned.getByRole("button", { name: "Come back" }).click();
  await shows(mona, "ned", "online");
});

test("somebody stays in the room while they watch it run", async () => {
  const [olga, paul] = await together("olga", "paul");
  await paul.getByRole("link", { name: "Watch it run" }).click();
  await paul.getByText("The last five minutes").waitFor();
  await setStatus(olga, "away");
  await shows(olga, "paul", "online");
  await paul.getByRole("link", { name: "Try it" }).click();
  await shows(paul, "olga", "away");
  expect(await olga.locator(".event", { hasText: "paul went offline" }).count()).toBe(0);
  await setStatus(olga, "as I am");
});

test("a name may have any letters", async () => {
  const [zoe, name] = await together("zoë", "名前");
  await setStatus(name, "busy", { text: "話し中" });
  await shows(zoe, "名前", "busy");
  await zoe.getByRole("button", { name: "Block 名前" }).click();
  await shows(name, "zoë", "hidden");
  expect(await zoe.getByRole("alert").count()).toBe(0);
});

test("a host that goes away is said to be, and what was seen stays, greyed, until it is back", async () => {
  const mortal = await Host.start();
  const page = await windows.open(mortal, "/?as=quentin&with=ruth#/try");
  await shows(page, "ruth", "offline");
  await mortal.kill();
  await page.getByText("The host does not answer.").waitFor();
  await page.locator('.stale[data-person="ruth"]').waitFor();
  const back = await Host.start(["--listen", new URL(mortal.base).host]);
  try {
    await page.locator('[data-link="online"]').waitFor();
    await page.locator('[data-person="ruth"]:not(.stale)').waitFor();
    expect(await page.getByText("The host does not answer.").count()).toBe(0);
  } finally {
    await back.kill();
  }
});

test("a name is picked, somebody is added, and the address remembers both", async () => {
  const page = await windows.open(host, "/");
  await page.getByRole("button", { name: "carol" }).click();
  await page.getByLabel("Watch somebody else").fill("zoe");
  await page.getByRole("button", { name: "Watch", exact: true }).click();
  await shows(page, "zoe", "offline");
  expect(page.url()).toMatch(/\?as=carol&with=alice,bob,carol,dave,zoe#\/try$/);
  await page.reload();
  await shows(page, "zoe", "offline");
  await page.getByRole("button", { name: "Watch zoe no longer" }).click();
  await until("zoe is gone", async () => (await page.locator('[data-person="zoe"]').count()) === 0);
});

test("another window opens as somebody else", async () => {
  const alice = await windows.open(host, "/?as=alice#/try");
  const opened = alice.context().waitForEvent("page");
  await alice.getByRole("button", { name: "Open as dave" }).click();
  const dave = await opened;
  await dave.getByText("You are dave").waitFor();
  await shows(alice, "dave", "online");
  await shows(dave, "alice", "online");
});
