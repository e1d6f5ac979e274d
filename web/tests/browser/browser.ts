// Browser windows that record what the console must never do: violate its Content-Security-Policy, send a request to
// another origin, or throw.

import { readFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { createRequire } from "node:module";

import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";

import { chromiumPath } from "../../chromium.mjs";
import { ROOT, type Host } from "./host";

/** How long a page may take to show something. */
export const SHOWS_WITHIN_MS = 15_000;

/** Theme and size of a window. */
export interface Appearance {
  scheme?: "light" | "dark";
  width?: number;
  height?: number;
}

/** A browser, and the violations in its windows. */
export class Windows {
  readonly violations: string[] = [];

  private constructor(private readonly browser: Browser) {}

  static async launch(): Promise<Windows> {
    const settings = { executablePath: chromiumPath(), args: ["--no-sandbox"], headless: true };
    return new Windows(await chromium.launch(settings));
  }

  /** Opens a window with its own storage at this path of the host. */
  async open(host: Host, path: string, { scheme = "light", width = 1280, height = 860 }: Appearance = {}): Promise<Page> {
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
      if (!own) this.violations.push(`requested ${request.url()}`);
    });
    context.on("weberror", (error) => this.violations.push(`threw ${error.error().stack}`));
    context.on("console", (message) => {
      // The browser logs failed requests as errors, even if the page handles them.
      const expected = /^Failed to load resource|WebSocket connection to/.test(message.text());
      if (message.type() === "error" && !expected) this.violations.push(`logged ${message.text()}`);
      if (/Content.Security.Policy/i.test(message.text())) this.violations.push(`violated its policy: ${message.text()}`);
    });
  }
}

/** Waits until a user's card shows this state: `online`, …, or `hidden`. */
export async function shows(page: Page, user: string, state: string): Promise<void> {
  await page.locator(`[data-user="${user}"] [data-state="${state}"]`).waitFor();
}

/** Waits for a condition. */
export async function until(what: string, holds: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + SHOWS_WITHIN_MS;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`timed out waiting until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Crashes the page's renderer, so that no unload handler runs. */
export async function crash(page: Page): Promise<void> {
  const session = await page.context().newCDPSession(page);
  const crashed = page.waitForEvent("crash");
  // The crashed renderer never answers.
  session.send("Page.crash").catch(() => undefined);
  await crashed;
}

/** The serious and critical findings of axe. */
export async function axeFindings(page: Page): Promise<string[]> {
  const source = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  await page.evaluate(source);
  const found = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: typeof import("axe-core") };
    return (await axe.run(document)).violations;
  });
  const grave = found.filter(({ impact }) => impact === "serious" || impact === "critical");
  return grave.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html} (${node.failureSummary})`));
}

/** Writes a screenshot to `target/screenshots`, to be looked at by hand. */
export async function screenshot(page: Page, name: string): Promise<void> {
  await mkdir(`${ROOT}target/screenshots`, { recursive: true });
  await page.screenshot({ path: `${ROOT}target/screenshots/console-${name}.png`, fullPage: true });
}
