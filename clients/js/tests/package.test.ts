// The package as published: size, imports, types and side effects.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";

import { describe, expect, test } from "vitest";

import { INTERNAL } from "../internal.js";

const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
const built = (name: string) => readFileSync(join(PACKAGE, "dist", name), "utf8");

describe("the built package", () => {
  test("is at most 8 KB compressed", () => {
    expect(gzipSync(built("index.js"), { level: 9 }).length).toBeLessThanOrEqual(8192);
  });

  test("imports nothing; hooks import it and React", () => {
    expect(built("index.js")).not.toMatch(/\bimport\b|\brequire\(/);
    const imported = [...built("react.js").matchAll(/from"([^"]*)"/g)].map(([, name]) => name);
    expect(imported.sort()).toEqual(["./index.js", "react"]);
    const files = readdirSync(join(PACKAGE, "dist")).filter((name) => name.endsWith(".js"));
    expect(files).toEqual(["index.js", "react.js"]);
  });

  test("has no side effects on a server", () => {
    const module = pathToFileURL(join(PACKAGE, "dist/index.js")).href;
    const program = `
      const before = Object.keys(globalThis).join();
      const { connect } = await import(${JSON.stringify(module)});
      const idle = connect({ url: "http://localhost:1", as: "alice", start: false });
      idle.watch(["bob"], () => {});
      console.log(typeof connect, idle.status, before === Object.keys(globalThis).join());`;
    // Node exits once no timer or socket is left.
    const output = execFileSync(process.execPath, ["--input-type=module", "-e", program], { timeout: 20_000 });
    expect(output.toString().trim()).toBe("function closed true");
  });

  test("has hooks that import as built", async () => {
    const hooks = (await import(pathToFileURL(join(PACKAGE, "dist/react.js")).href)) as Record<string, unknown>;
    expect(Object.keys(hooks).sort()).toEqual(["RollcallProvider", "usePresence", "useRollcall", "useTyping"]);
  });

  test("has types that compile in strict mode", () => {
    const folder = mkdtempSync(join(tmpdir(), "rollcall-consumer-"));
    try {
      mkdirSync(join(folder, "node_modules/@rollcall"), { recursive: true });
      symlinkSync(PACKAGE, join(folder, "node_modules/@rollcall/client"));
      const modules = join(PACKAGE, "../../node_modules");
      symlinkSync(join(modules, "@types"), join(folder, "node_modules/@types"));
      symlinkSync(join(modules, "react"), join(folder, "node_modules/react"));
      writeFileSync(join(folder, "program.tsx"), CONSUMER);
      const compiler = join(modules, "typescript/bin/tsc");
      const strict = "--noEmit --strict --noUncheckedIndexedAccess --exactOptionalPropertyTypes";
      const target = "--target es2022 --module nodenext --jsx react-jsx --types react --lib es2022,dom";
      const flags = [...strict.split(" "), ...target.split(" "), "program.tsx"];
      const output = execFileSync(process.execPath, [compiler, ...flags], { cwd: folder, encoding: "utf8" });
      expect(output).toBe("");
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  test("shortens no public property name", () => {
    const surface = ["types.d.ts", "error.d.ts", "index.d.ts", "react.d.ts"].map(built).join("\n");
    const code = surface.replace(/\/\*[\s\S]*?\*\//g, "");
    expect(INTERNAL.filter((name) => new RegExp(`\\b${name}\\b`).test(code))).toEqual([]);
  });
});

const CONSUMER = `
import { connect, RollcallError, type Presence, type Rollcall } from "@rollcall/client";
import { RollcallProvider, usePresence, useRollcall, useTyping } from "@rollcall/client/react";

const rollcall: Rollcall = connect({ url: "http://localhost:8080", token: async () => "token", WebSocket });
const stop: () => void = rollcall.watch(["bob"], (presence, context) => {
  const state: "online" | "away" | "busy" | "offline" | null = presence.state;
  console.log(state, presence.note?.text, context.stale);
});
rollcall.on("error", (error) => console.log(error.status, error.title, error.detail, error.retryAfterMs));
rollcall.on("status", (status) => status === "paused" && stop());
rollcall.on("event", (event) => event.event === "presence" && console.log(event.user));
const asked: Promise<Presence[]> = rollcall.presence(["bob"]);
asked.catch((error: unknown) => error instanceof RollcallError);
rollcall.setStatus({ choice: "busy", text: "lunch", emoji: "🍜", forSeconds: 60 });
rollcall.watchTyping("room", (typists: string[]) => typists.length);
// @ts-expect-error: there is no such choice.
rollcall.setStatus({ choice: "asleep" });

function Dots() {
  const { typists, type, stop } = useTyping("room");
  const presences = usePresence(["bob"]);
  return <i onKeyDown={type} onBlur={stop} title={useRollcall().status}>{presences.get("bob")?.state}{typists}</i>;
}
export const app = <RollcallProvider client={rollcall}><Dots /></RollcallProvider>;
`;
