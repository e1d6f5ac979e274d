// A running host: the real binary on a free loopback port, and what tests ask of it.

import { spawn, execFileSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** The built binary: ROLLCALL_BIN, or the workspace's own. */
const BUILT = fileURLToPath(new URL("../../../target/debug/rollcall", import.meta.url));
export const BINARY = process.env.ROLLCALL_BIN ?? BUILT;

/**
 * Short beats, so that a test sees in seconds what a person sees in a minute; but a tolerance and a grace that a busy
 * machine does not use up.
 */
const BRISK = ["--interval", "1s", "--tolerance", "5s", "--grace", "5s", "--evict-after", "200ms"];

/** Our environment, without what is meant for the binary of somebody else. */
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

  /** Starts a host with these further flags; a flag that is given twice counts as it is given last. */
  static async start(further: string[] = [], folder = mkdtempSync(join(tmpdir(), "rollcall-client-"))): Promise<Host> {
    const flags = ["--listen", "127.0.0.1:0", "--log", "error", "--data", join(folder, "data"), ...BRISK];
    const given = [...flags];
    for (let at = 0; at < further.length; at += 2) {
      const place = given.indexOf(further[at] ?? "");
      if (place >= 0 && further[at] !== "--origins") given.splice(place, 2);
    }
    const words = ["serve", ...given, ...further];
    const child = spawn(BINARY, words, { env: environment(), stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    child.stderr?.on("data", (text) => (said += String(text)));
    const lines = createInterface({ input: child.stdout ?? process.stdin });
    const first = await Promise.race([
      once(lines, "line").then(([line]) => String(line)),
      once(child, "exit").then(() => Promise.reject(new Error(`the host did not start:\n${said}`))),
    ]);
    const url = /http:\/\/\S+/.exec(first)?.[0];
    if (!url) throw new Error(`the host says no address, but: ${first}`);
    return new Host(child, url, folder);
  }

  /** A file with a secret, for `--token-key`. */
  static key(folder: string): string {
    const file = join(folder, "key");
    writeFileSync(file, "a secret that is long enough for HS256, and known to tests\n");
    return file;
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  /** Ends it: `SIGTERM` in good order, `SIGKILL` at once. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const ended = once(this.#process, "exit");
    this.#process.kill(signal);
    await ended;
  }

  /** Ends it and forgets what it kept. */
  async remove(): Promise<void> {
    await this.stop("SIGKILL");
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** One of its metrics, by its name with its labels; all that begin so are added up. */
  async metric(name: string): Promise<number> {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    const lines = text.split("\n").filter((line) => line.startsWith(name));
    return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
  }

  /** Asks as this person, in the way of `curl`. */
  async ask(user: string, method: string, path: string, body?: object): Promise<Record<string, unknown>> {
    const headers = { "Rollcall-User": user, "Content-Type": "application/json" };
    const answer = await fetch(this.url + path, { method, headers, body: body && JSON.stringify(body) });
    const said = (await answer.json()) as Record<string, unknown>;
    if (!answer.ok) throw new Error(`${method} ${path}: ${JSON.stringify(said)}`);
    return said;
  }

  beat(user: string, device = "phone"): Promise<Record<string, unknown>> {
    return this.ask(user, "POST", "/v1/heartbeat", { device });
  }
}

/** Mints a token as an application would. */
export function mint(key: string, user: string, ttl: string, conversations: string[] = []): string {
  const named = conversations.flatMap((conversation) => ["--conversation", conversation]);
  const flags = ["token", "--key", key, "--user", user, "--ttl", ttl, ...named];
  return execFileSync(BINARY, flags, { encoding: "utf8", env: environment() }).trim();
}
