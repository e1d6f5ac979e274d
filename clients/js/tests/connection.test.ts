// The connection against a fake service and a fake clock: what takes minutes or hours.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

import { connect, type Options, type RollcallError } from "../src/index.js";
import { FakeService } from "./fake-service.js";

const MINUTE_MS = 60_000;
const cleanup: (() => unknown)[] = [];
let service: FakeService;

beforeEach(() => {
  vi.useFakeTimers();
  service = new FakeService();
});

afterEach(async () => {
  for (const end of cleanup.splice(0).reverse()) await end();
  vi.useRealTimers();
});

function connected(options: Partial<Options> = {}) {
  const rollcall = connect({ ...service.options, ...options });
  const errors: RollcallError[] = [];
  rollcall.on("error", (error) => errors.push(error));
  cleanup.push(() => rollcall.close());
  return { rollcall, errors };
}

/** A token that is due for renewal after 80 s. */
function token(conversations: string[]): string {
  const claims = { sub: "alice", exp: Date.now() / 1000 + 100, conversations };
  return `x.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.y`;
}

describe("a token", () => {
  test.each(["arrives", "fails"])("that %s after close is the last requested", async (how) => {
    let asked = 0;
    let end = () => {};
    const late = () =>
      new Promise<string>((resolve, reject) => {
        end = () => (how === "arrives" ? resolve(token([])) : reject(new Error("logged out")));
      });
    const { rollcall, errors } = connected({ token: () => (++asked === 1 ? token([]) : late()) });
    await vi.advanceTimersByTimeAsync(90_000);
    expect([rollcall.status, asked]).toEqual(["online", 2]);
    await rollcall.close();
    end();
    await vi.advanceTimersByTimeAsync(60 * MINUTE_MS);
    expect([asked, errors]).toEqual([2, []]);
    expect(vi.getTimerCount(), "no timer is left").toBe(0);
  });

  test("retries refused conversations if it lists others", async () => {
    let conversations = ["ours"];
    let asked = 0;
    service.refuses = ["theirs"];
    const { rollcall, errors } = connected({ token: () => (asked++, token(conversations)) });
    rollcall.watchTyping("theirs", () => {});
    rollcall.watchTyping("ours", () => {});
    await vi.advanceTimersByTimeAsync(10 * MINUTE_MS);
    expect([asked > 5, errors.length]).toEqual([true, 1]);
    conversations = ["ours", "theirs"];
    service.refuses = [];
    await vi.advanceTimersByTimeAsync(2 * MINUTE_MS);
    expect(service.received.filter(({ op }) => op === "watch").at(-1)?.conversations).toContain("theirs");
    expect([rollcall.status, errors.length, service.sockets]).toEqual(["online", 1, 1]);
  });
});

test("retry delays double until the client is closed", async () => {
  vi.spyOn(Math, "random").mockReturnValue(1);
  cleanup.push(() => vi.restoreAllMocks());
  service.isAway = true;
  const { rollcall } = connected();
  const begun = Date.now();
  const times: number[] = [];
  for (let tick = 0; times.length < 9 && tick < 2000; tick++) {
    await vi.advanceTimersByTimeAsync(tick === 0 ? 0 : 100);
    if (service.sockets > times.length) times.push((Date.now() - begun) / 1000);
  }
  expect(times.map((at, place) => at - (times[place - 1] ?? 0))).toEqual([0, 0.5, 1, 2, 4, 8, 16, 30, 30]);
  await rollcall.close();
  await vi.advanceTimersByTimeAsync(10 * MINUTE_MS);
  expect(service.sockets).toBe(9);
});

test("blocked sockets are retried every five minutes", async () => {
  service.isBlocked = true;
  const { rollcall } = connected();
  rollcall.watch(["bob"], () => {});
  await vi.advanceTimersByTimeAsync(MINUTE_MS);
  expect([rollcall.status, service.sockets, service.streams]).toEqual(["online", 2, 1]);
  for (let minute = 1; minute < 9; minute++) {
    service.cutStream();
    await vi.advanceTimersByTimeAsync(MINUTE_MS);
    expect([rollcall.status, service.streams]).toEqual(["online", minute + 1]);
  }
  expect(service.sockets).toBe(3);
  service.isBlocked = false;
  await vi.advanceTimersByTimeAsync(2 * MINUTE_MS);
  expect([rollcall.status, service.sockets]).toEqual(["online", 4]);
  await vi.advanceTimersByTimeAsync(20 * MINUTE_MS);
  expect(service.sockets, "one socket is enough").toBe(4);
});
