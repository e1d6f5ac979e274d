// Formatting, routes, tokens, timeline texts and explanations.

import type { Presence } from "@rollcall/client";
import { describe, expect, test } from "vitest";

import { read, DEFAULT_USERS, write } from "../../src/route";
import { authHeaders, byToken, claimsOf, mayType, withName } from "../../src/api/credentials";
import { explain, type Case } from "../../src/monitor/explain";
import { changed } from "../../src/demo/presence-text";
import { ago, count, countdown, life, list, milliseconds, moment, percent, rate, span, plural } from "../../src/format";

/** In the local time zone, as displayed. */
const NOON = new Date(2026, 10, 16, 12).getTime();

describe("numbers", () => {
  test.each([
    [count(4_212), "4,212"],
    [count(null), "–"],
    [plural(1, "person", "people"), "1 person"],
    [plural(1_200, "socket"), "1,200 sockets"],
    [rate(0), "0"],
    [rate(12.34), "12.3"],
    [rate(1_234.5), "1,235"],
    [milliseconds(0.31), "0.31 ms"],
    [milliseconds(0.001), "< 0.01 ms"],
    [milliseconds(12.34), "12.3 ms"],
    [milliseconds(123.4), "123 ms"],
    [milliseconds(1_234), "1.2 s"],
    [milliseconds(12_345), "12 s"],
    [milliseconds(0), "0 ms"],
    [percent(0.126), "13 %"],
    [percent(0.001), "< 1 %"],
    [percent(0), "0 %"],
  ])("%s is written %s", (written, expected) => expect(written).toBe(expected));
});

describe("durations", () => {
  test.each([
    [span(12_400), "12 s"],
    [span(185_000), "3 min"],
    [span(7_200_000), "2 h"],
    [span(200_000_000), "2 d"],
    [span(-5), "0 s"],
    [ago(1_000, 13_500), "12 s ago"],
    [ago(1_000, 900), "just now"],
    [ago(null, 900), "never"],
    [countdown(4_240), "4.2 s"],
    [countdown(31_001), "32 s"],
    [countdown(185_000), "3 min 5 s"],
    [countdown(-1), "now"],
    [life(31_001, 0), "32 s"],
    [life(1_000, 1_000), "expired"],
    [moment(NOON, NOON + 1_000), "12:00:00"],
    [moment(NOON, NOON + 86_400_000), "16 Nov 2026, 12:00:00"],
    [list(["alice"]), "alice"],
    [list(["alice", "bob", "carol"]), "alice, bob and carol"],
    [list([]), ""],
  ])("%s is written %s", (written, expected) => expect(written).toBe(expected));
});

describe("a route", () => {
  const at = (rest: string) => read(new URL(`http://localhost:8080/${rest}`));

  test("holds the view, the name and the users", () => {
    expect(at("?as=carol&with=bob,zoe#/monitor")).toEqual({ view: "monitor", name: "carol", users: ["bob", "zoe"] });
  });

  test("defaults to the demo without a name", () => {
    expect(at("")).toEqual({ view: "demo", name: null, users: DEFAULT_USERS });
    expect(at("?as=%20&with=,#elsewhere")).toEqual({ view: "demo", name: null, users: DEFAULT_USERS });
  });

  test("round-trips through the URL", () => {
    const address = { view: "demo", name: "zoë & co", users: ["bob", "zoë, the second", "100 %", "a+b"] } as const;
    expect(at(write(address))).toEqual(address);
    expect(write({ ...address, name: "zoe", users: ["bob", "zoe"] })).toBe("?as=zoe&with=bob,zoe#/demo");
    expect(write({ view: "monitor", name: null, users: DEFAULT_USERS })).toBe("#/monitor");
  });
});

describe("a token", () => {
  const payload = (claims: object) => Buffer.from(JSON.stringify(claims)).toString("base64url");

  test("is decoded without verification", () => {
    const said = { sub: "zoë", scope: "admin  service", conversations: ["lobby"], exp: 1_800_000_000 };
    const token = `e30.${payload(said)}.c2ln`;
    const claims = { user: "zoë", scopes: ["admin", "service"], conversations: ["lobby"], expires: 1_800_000_000_000 };
    expect(claimsOf(token)).toEqual(claims);
  });

  test("is rejected if it is malformed", () => {
    for (const text of ["", "abc", "a.b", "a.!!.c", `a.${payload([1]).slice(1)}.c`]) expect(claimsOf(text)).toBeNull();
  });

  test("lists the conversations its user may type in", () => {
    const part = (conversations: string[], scope = "") =>
      byToken(`e30.${payload({ sub: "a", conversations, scope })}.c2ln`);
    for (const [listed, expected] of [[["lobby"], true], [["*"], true], [["other"], false], [[], false]] as const) {
      const access = part([...listed]);
      expect(access && mayType(access, "lobby")).toBe(expected);
    }
    const service = part([], "service");
    expect(service && mayType(service, "lobby")).toBe(true);
    expect(mayType({ kind: "name", name: "bob" }, "lobby")).toBe(true);
  });

  test("goes into a header, names into URLs", () => {
    const access = byToken(` e30.${payload({ sub: "a" })}.s \n`);
    expect(access && authHeaders(access)).toEqual({ authorization: `Bearer e30.${payload({ sub: "a" })}.s` });
    expect(access && withName(access, "/v1/stats")).toBe("/v1/stats");
    const zoe = { kind: "name", name: "zoë & 名" } as const;
    expect(authHeaders(zoe)).toEqual({});
    expect(withName(zoe, "/v1/stats")).toBe("/v1/stats?as=zo%C3%AB%20%26%20%E5%90%8D");
    expect(withName(zoe, "/v1/blocks?user=bob")).toBe("/v1/blocks?user=bob&as=zo%C3%AB%20%26%20%E5%90%8D");
  });
});

describe("the timeline", () => {
  const presence = (state: Presence["state"], text?: string): Presence => ({
    user: "bob",
    state,
    since: 1,
    last_seen: 1,
    version: 1,
    note: text === undefined ? null : { text, emoji: "☕", until: null },
  });

  test.each([
    ["came online", presence("offline"), presence("online")],
    ["went offline", presence("busy"), presence("offline")],
    ["is busy: ☕ lunch", presence("online"), presence("busy", "lunch")],
    ["is not visible to you", presence("online"), presence(null)],
    ["is visible to you again, online", presence(null), presence("online")],
    ["is online", presence("busy"), presence("online")],
    ["set a note: ☕ lunch", presence("online"), presence("online", "lunch")],
    ["removed the note", presence("online", "lunch"), presence("online")],
    ["is away", undefined, presence("away")],
    [null, presence("online"), { ...presence("online"), last_seen: 2 }],
  ])("describes the change: %s", (expected, before, after) => expect(changed(before, after)).toBe(expected));
});

describe("an explanation", () => {
  const open = { presence: "everyone", last_seen: "everyone" } as const;
  const seen: Case = {
    viewer: "alice",
    subject: "bob",
    ruling: "allowed",
    last_seen: true,
    privacy: open,
    choice: null,
    state: "online",
    blocked_by: null,
  };
  const of = (change: Partial<Case>) => explain({ ...seen, ...change });
  const whole = (change: Partial<Case>) => Object.values(of(change)).join(" ");

  test("of a restriction says how to lift it", () => {
    const said = whole({ ruling: "restricted" });
    expect(said).toMatch(/^alice cannot see bob\. An administrator .*\/v1\/restrictions\/bob/);
  });

  test("of a block names the blocker if known", () => {
    expect(of({ ruling: "blocked", blocked_by: ["bob"] }).reason).toBe("bob blocked alice.");
    expect(of({ ruling: "blocked", blocked_by: ["alice"] }).reason).toMatch(/^alice blocked bob\. A block hides both/);
    expect(of({ ruling: "blocked", blocked_by: ["alice", "bob"] }).remedy).toMatch(/once both blocks are removed/);
    expect(of({ ruling: "blocked" }).reason).toMatch(/^Either alice or bob/);
  });

  test("of privacy names the audience", () => {
    const contacts = { presence: "contacts", last_seen: "everyone" } as const;
    const said = whole({ ruling: "private", privacy: contacts });
    expect(said).toMatch(/bob is visible only to contacts.* bob adds alice as a contact/);
    const nobody = { presence: "nobody", last_seen: "nobody" } as const;
    expect(of({ ruling: "private", privacy: nobody }).reason).toBe("bob is visible to nobody.");
    expect(of({ ruling: "private", privacy: null }).reason).toMatch(/excludes alice/);
  });

  test("of an allowed view lists what is visible", () => {
    expect(of({}).answer).toBe("alice can see bob.");
    const contacts = { presence: "everyone", last_seen: "contacts" } as const;
    expect(of({ last_seen: false, privacy: contacts }).reason).toMatch(/shows last seen to only contacts/);
    expect(of({ subject: "alice" }).reason).toBe("Users always see themselves.");
  });

  test("of an allowed view explains the offline state", () => {
    expect(of({}).reason).toMatch(/last seen are visible\.$/);
    expect(of({ state: "offline" }).reason).toMatch(/last seen are visible\. bob is offline\.$/);
    expect(of({ state: "offline", last_seen: false }).reason).toMatch(/last seen to nobody\. bob is offline\.$/);
    const invisible = of({ choice: "invisible", state: "offline" }).reason;
    expect(invisible).toMatch(/\. bob is invisible, which others see as offline\.$/);
    expect(of({ choice: "busy", state: "busy" }).reason).toBe(of({}).reason);
    expect(of({ state: null, privacy: null }).reason, "unknown state adds nothing").toBe(of({}).reason);
  });
});
