// Headless Chromium, started by playwright-core, with pages served by the tests.

import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { build } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Chromium treats responses that a test fulfils as coming from a public network, which may not access loopback. */
const ARGUMENTS = ["--no-sandbox", "--disable-features=LocalNetworkAccessChecks"];

/** Path of Chromium: CHROMIUM, or `chromium` on the PATH. */
function chromiumPath(): string {
  const folders = (process.env.PATH ?? "").split(delimiter);
  const found = process.env.CHROMIUM ?? folders.map((folder) => join(folder, "chromium")).find(existsSync);
  if (!found) throw new Error("no chromium on the PATH: install it, or set CHROMIUM to its path");
  return found;
}

/** Bundles the page that uses the hooks. */
async function strictModeBundle(): Promise<string> {
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
  if (!chunk) throw new Error("Vite returned no bundle of strict-mode.tsx");
  return chunk.code;
}

/** A browser, and a server for its pages. */
export class Pages {
  private constructor(
    readonly browser: Browser,
    private readonly server: Server,
    readonly url: string,
  ) {}

  static async start(): Promise<Pages> {
    const strictMode = await strictModeBundle();
    const files: Record<string, () => Promise<string>> = {
      "/index.js": () => readFile(here("../dist/index.js"), "utf8"),
      "/page.html": () => readFile(here("page.html"), "utf8"),
      "/strict-mode.html": () => readFile(here("strict-mode.html"), "utf8"),
      "/strict-mode.js": async () => strictMode,
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
    const browser = await chromium.launch({ executablePath: chromiumPath(), args: ARGUMENTS, headless: true });
    return new Pages(browser, server, `http://127.0.0.1:${port}`);
  }

  /** A page connected as a user, in this context or a new one. */
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
