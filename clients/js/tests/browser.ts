// A real browser with pages that the tests serve: Chromium without a screen, started by playwright-core.

import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { build } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/**
 * What a test answers in place of the host came from no network, of which a browser does not let a page into this
 * one.
 */
const ARGUMENTS = ["--no-sandbox", "--disable-features=LocalNetworkAccessChecks"];

/** Chromium: CHROMIUM, or that of the PATH. */
function installed(): string {
  const folders = (process.env.PATH ?? "").split(delimiter);
  const found = process.env.CHROMIUM ?? folders.map((folder) => join(folder, "chromium")).find(existsSync);
  if (!found) throw new Error("there is no Chromium: install it, or name it by CHROMIUM");
  return found;
}

/** The bundle of the page that uses the hooks. */
async function strictBundle(): Promise<string> {
  const built = await build({
    configFile: false,
    logLevel: "error",
    define: { "process.env.NODE_ENV": '"development"' },
    esbuild: { jsx: "automatic" },
    build: {
      write: false,
      minify: false,
      lib: { entry: here("strict-mode.tsx"), formats: ["es"], fileName: "strict-mode" },
    },
  });
  const [bundle] = Array.isArray(built) ? built : [built];
  const chunk = bundle && "output" in bundle ? bundle.output[0] : undefined;
  if (!chunk) throw new Error("the page was not built");
  return chunk.code;
}

/** A browser and a server of pages. */
export class Pages {
  private constructor(
    readonly browser: Browser,
    private readonly server: Server,
    readonly url: string,
  ) {}

  static async start(): Promise<Pages> {
    const strict = await strictBundle();
    const files: Record<string, () => Promise<string>> = {
      "/index.js": () => readFile(here("../dist/index.js"), "utf8"),
      "/page.html": () => readFile(here("page.html"), "utf8"),
      "/strict-mode.html": () => readFile(here("strict-mode.html"), "utf8"),
      "/strict-mode.js": async () => strict,
      "/blank.html": async () => "<!doctype html><title>elsewhere</title>",
    };
    const server = createServer(async (request, response) => {
      const path = new URL(request.url ?? "/", "http://localhost").pathname;
      const file = files[path];
      const type = path.endsWith(".js") ? "text/javascript" : "text/html";
      response.writeHead(file ? 200 : 404, { "Content-Type": `${type}; charset=utf-8` });
      response.end(await file?.());
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    const port = typeof address === "object" ? address?.port : 0;
    const browser = await chromium.launch({ executablePath: installed(), args: ARGUMENTS, headless: true });
    return new Pages(browser, server, `http://127.0.0.1:${port}`);
  }

  /** Somebody's page, connected, in a browser of its own or in this one. */
  async open(host: string, as: string, options: object = {}, context?: BrowserContext): Promise<Page> {
    const page = await (context ?? (await this.browser.newContext())).newPage();
    await page.goto(`${this.url}/page.html?host=${encodeURIComponent(host)}&as=${as}`);
    await page.waitForFunction("window.ready");
    await page.evaluate((given) => void (window as unknown as { open(options: object): void }).open(given), options);
    return page;
  }

  async stop(): Promise<void> {
    await this.browser.close();
    this.server.close();
  }
}
