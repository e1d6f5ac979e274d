// Windows of a real browser, each of which is watched for what the console must never do: break its
// Content-Security-Policy, ask another origin for anything, or throw.

import { readFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { createRequire } from "node:module";

import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";

import { chromiumPath } from "../../chromium.mjs";
import { ROOT, type Host } from "./host";

/** How long anything on a page may take to show. */
export const SHOWS_WITHIN_MS = 15_000;

/** How a window looks. */
export interface Looks {
  scheme?: "light" | "dark";
  width?: number;
  height?: number;
}

/** A browser, and everything that went wrong in its windows. */
export class Windows {
  /** What the console must never do, and did. */
  readonly misdeeds: string[] = [];

  private constructor(private readonly browser: Browser) {}

  static async launch(): Promise<Windows> {
    const settings = { executablePath: chromiumPath(), args: ["--no-sandbox"], headless: true };
    return new Windows(await chromium.launch(settings));
  }

  /** A window of its own, with storage of its own, at this path of the host. */
  async open(host: Host, path: string, { scheme = "light", width = 1280, height = 860 }: Looks = {}): Promise<Page> {
    const context = await this.browser.newContext({ colorScheme: scheme, viewport: { width, height } });
    context.setDefaultTimeout(SHOWS_WITHIN_MS);
    this.guard(context, host.base);
    const page = await context.newPage();
    await page.goto(host.base + path);
    return page;
  }

  /** Closes every window. */
  async closeAll(): Promise<void> {
    for (const context of this.browser.contexts()) await context.close();
  }

  /** Ends the browser. */
  async close(): Promise<void> {
    await this.browser.close();
  }

  private guard(context: BrowserContext, base: string): void {
    const allowed = [base, base.replace("http", "ws")];
    context.on("request", (request) => {
      const own = allowed.some((origin) => request.url().startsWith(`${origin}/`));
      if (!own) this.misdeeds.push(`asked ${request.url()}`);
    });
    context.on("weberror", (error) => this.misdeeds.push(`threw ${error.error().stack}`));
    context.on("console", (message) => {
      // A refused or unanswered request is reported as an error by the browser, whatever the page makes of it.
      const expected = /^Failed to load resource|WebSocket connection to/.test(message.text());
      if (message.type() === "error" && !expected) this.misdeeds.push(`said ${message.text()}`);
      if (/Content.Security.Policy/i.test(message.text())) this.misdeeds.push(`broke its policy: ${message.text()}`);
    });
  }
}

/** The card of somebody, in this state: `online`, …, or `hidden`. */
export async function shows(page: Page, person: string, state: string): Promise<void> {
  await page.locator(`[data-person="${person}"] [data-state="${state}"]`).waitFor();
}

/** Waits until it is so. */
export async function until(what: string, holds: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + SHOWS_WITHIN_MS;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`it never came to be that ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Ends the process that draws this page: nothing in it can say good-bye. */
export async function crash(page: Page): Promise<void> {
  const session = await page.context().newCDPSession(page);
  const crashed = page.waitForEvent("crash");
  // The answer never comes, because who would answer is gone.
  session.send("Page.crash").catch(() => undefined);
  await crashed;
}

/** What axe finds serious or critical on a page. */
export async function violations(page: Page): Promise<string[]> {
  const source = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  await page.evaluate(source);
  const found = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: typeof import("axe-core") };
    return (await axe.run(document)).violations;
  });
  const grave = found.filter(({ impact }) => impact === "serious" || impact === "critical");
  return grave.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html} (${node.failureSummary})`));
}

/** A picture for a person to look at, in `target/screenshots`. */
export async function picture(page: Page, name: string): Promise<void> {
  await mkdir(`${ROOT}target/screenshots`, { recursive: true });
  await page.screenshot({ path: `${ROOT}target/screenshots/console-${name}.png`, fullPage: true });
}
