// Starts the real host binary on a free loopback port, and sends requests to it.

import { spawn, execFileSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** The binary: ROLLCALL_BIN, or the debug build of the workspace. */
const BUILT = fileURLToPath(new URL("../../../target/debug/rollcall", import.meta.url));
export const BINARY = process.env.ROLLCALL_BIN ?? BUILT;

/** A short interval, so that tests take seconds; but a tolerance and a grace that a busy machine does not exceed. */
const TIMES = ["--interval", "1s", "--tolerance", "5s", "--grace", "5s", "--evict-after", "200ms"];

/** The environment without `ROLLCALL_` variables, which the host would read as settings. */
function environment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("ROLLCALL_")));
}

/** A host process. */
export class Host {
  readonly #process: ChildProcess;

  private constructor(
    process: ChildProcess,
    readonly url: string,
    readonly folder: string,
  ) {
    this.#process = process;
  }

  /** Starts a host. The given flags override the defaults. */
  static async start(further: string[] = [], folder = mkdtempSync(join(tmpdir(), "rollcall-client-"))): Promise<Host> {
    const flags = ["--listen", "127.0.0.1:0", "--log", "error", "--data", join(folder, "data"), ...TIMES];
    const given = [...flags];
    for (let at = 0; at < further.length; at += 2) {
      const place = given.indexOf(further[at] ?? "");
      if (place >= 0 && further[at] !== "--origins") given.splice(place, 2);
    }
    const words = ["serve", ...given, ...further];
    const child = spawn(BINARY, words, { env: environment(), stdio: ["ignore", "pipe", "pipe"] });
    let stderr = "";
    child.stderr?.on("data", (text) => (stderr += String(text)));
    const lines = createInterface({ input: child.stdout ?? process.stdin });
    const first = await Promise.race([
      once(lines, "line").then(([line]) => String(line)),
      once(child, "exit").then(() => Promise.reject(new Error(`the host did not start:\n${stderr}`))),
    ]);
    const url = /http:\/\/\S+/.exec(first)?.[0];
    if (!url) throw new Error(`the host's first line has no address: ${first}`);
    return new Host(child, url, folder);
  }

  /** Writes a key file for `--token-key`. */
  static key(folder: string): string {
    const file = join(folder, "key");
    writeFileSync(file, "a secret that is long enough for HS256, and known to tests\n");
    return file;
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  /** Stops the host: `SIGTERM` gracefully, `SIGKILL` at once. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const ended = once(this.#process, "exit");
    this.#process.kill(signal);
    await ended;
  }

  /** Kills the host and removes its data. */
  async remove(): Promise<void> {
    await this.stop("SIGKILL");
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** The sum of the metrics whose name and labels begin with this. */
  async metric(name: string): Promise<number> {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    const lines = text.split("\n").filter((line) => line.startsWith(name));
    return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
  }

  /** Sends a request as this user. */
  async request(user: string, method: string, path: string, body?: object): Promise<Record<string, unknown>> {
    const headers = { "Rollcall-User": user, "Content-Type": "application/json" };
    const response = await fetch(this.url + path, { method, headers, body: body && JSON.stringify(body) });
    const answer = (await response.json()) as Record<string, unknown>;
    if (!response.ok) throw new Error(`${method} ${path}: ${JSON.stringify(answer)}`);
    return answer;
  }

  beat(user: string, device = "phone"): Promise<Record<string, unknown>> {
    return this.request(user, "POST", "/v1/heartbeat", { device });
  }
}

/** Mints a token. */
export function mint(key: string, user: string, ttl: string, conversations: string[] = []): string {
  const named = conversations.flatMap((conversation) => ["--conversation", conversation]);
  const flags = ["token", "--key", key, "--user", user, "--ttl", ttl, ...named];
  return execFileSync(BINARY, flags, { encoding: "utf8", env: environment() }).trim();
}
