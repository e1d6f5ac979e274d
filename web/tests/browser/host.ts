// Starts the real host binary on a free loopback port. It serves the console.

import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** Root of the repository. */
export const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

const STARTS_WITHIN_MS = 20_000;
/** Short times, so that tests are quick; but a tolerance that a machine busy with browsers does not exceed. */
const SETTINGS: readonly (readonly [flag: string, value: string])[] = [
  ["--listen", "127.0.0.1:0"],
  ["--data", "none"],
  ["--log", "error"],
  ["--interval", "2s"],
  ["--tolerance", "3s"],
  ["--grace", "1s"],
  ["--evict-after", "200ms"],
];

/** The built binary. */
export function binary(): string {
  const path = process.env.ROLLCALL_BIN ?? `${ROOT}target/debug/rollcall`;
  if (!existsSync(path)) throw new Error(`${path} is not built: run \`cargo xtask build\``);
  return path;
}

/** Mints a token for a user with the key in this file; further arguments add scopes and conversations. */
export function mint(key: string, user: string, ...further: string[]): string {
  const words = ["token", "--key", key, "--user", user, ...further];
  return execFileSync(binary(), words, { env: environment(), encoding: "utf8" }).trim();
}

/** The environment without `ROLLCALL_` variables, which the host would read as settings. */
function environment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("ROLLCALL_")));
}

/** A host process. */
export class Host {
  private constructor(
    private readonly child: ChildProcess,
    /** URL of the host. */
    readonly base: string,
  ) {}

  /** Starts a host and waits until it listens. The arguments override the defaults. */
  static async start(further: readonly string[] = []): Promise<Host> {
    const settings = SETTINGS.filter(([flag]) => !further.includes(flag)).flat();
    const child = spawn(binary(), ["serve", ...settings, ...further], {
      env: environment(),
      stdio: ["ignore", "pipe", "inherit"],
    });
    return new Host(child, await address(child));
  }

  /** Sends a request as a user. Throws unless it succeeds. */
  async request(user: string, method: string, path: string, body?: unknown): Promise<unknown> {
    const json = body === undefined ? {} : { body: JSON.stringify(body) };
    const headers = { "rollcall-user": user, "content-type": "application/json" };
    const response = await fetch(this.base + path, { method, headers, ...json });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }

  /** Kills the host. */
  async kill(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const ended = once(this.child, "exit");
    this.child.kill("SIGKILL");
    await ended;
  }
}

/** Reads the address from the host's first line of output. */
async function address(child: ChildProcess): Promise<string> {
  if (!child.stdout) throw new Error("the host has no output");
  const lines = createInterface({ input: child.stdout });
  const [line] = (await Promise.race([
    once(lines, "line", { signal: AbortSignal.timeout(STARTS_WITHIN_MS) }),
    once(child, "exit").then(() => [""]),
  ])) as [string];
  const base = line.split(" ").find((word) => word.startsWith("http://"));
  if (!base) throw new Error(`the host did not start: ${line}`);
  return base;
}
