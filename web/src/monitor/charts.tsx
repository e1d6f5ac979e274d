// Which charts there are: rows of three of about the same height, where there is room for three. Lines that share a
// chart differ in their dash, too.

import { useMemo } from "react";

import type { Sample } from "../stats/sample";
import { count, milliseconds, rate } from "../format";
import { Chart, type ChartPlan, type Line } from "./chart";

const SOLID = undefined;
const DASHES: readonly (readonly number[] | undefined)[] = [SOLID, [6, 3], [2, 2], [8, 3, 2, 3], [1, 3], [12, 4]];
const HUES = ["--hue-1", "--hue-2", "--hue-3", "--hue-4", "--hue-5", "--hue-6"];

const FIXED: readonly ChartPlan[] = [
  {
    title: "People here",
    hint: "Whoever is not offline, in the whole store; on Redis with the invisible who are connected",
    format: count,
    whole: true,
    lines: [line("here", 0, (sample) => sample.here)],
  },
  {
    title: "Heartbeats",
    hint: "Per second, those of open connections included",
    format: rate,
    lines: [line("heartbeats/s", 0, (sample) => sample.heartbeats)],
  },
  {
    title: "Requests",
    hint: "Answered per second, and those of them that failed",
    format: rate,
    lines: [line("requests/s", 0, (sample) => sample.requests), line("failures/s", 1, (sample) => sample.failures)],
  },
  {
    title: "Settle lag",
    hint: "From when a change became true until it was published",
    format: milliseconds,
    lines: [line("p50", 0, (sample) => sample.settle.p50), line("p99", 1, (sample) => sample.settle.p99)],
  },
  {
    title: "Notification lag",
    hint: "From a decision until a worker with watchers heard of it",
    format: milliseconds,
    lines: [line("p50", 0, (sample) => sample.topic.p50), line("p99", 1, (sample) => sample.topic.p99)],
  },
  {
    title: "Watchers",
    hint: "Connections that watch, of all that are open on this host",
    format: count,
    whole: true,
    lines: [line("watchers", 0, (sample) => sample.watchers), line("connections", 1, (sample) => sample.connections)],
  },
  {
    title: "Store",
    hint: "One look-up, made for each answer",
    format: milliseconds,
    lines: [line("look-up", 0, (sample) => sample.store_ms)],
  },
  {
    title: "Transitions",
    hint: "Changes of state published per second, by the new state",
    format: rate,
    lines: [
      { ...line("online", 0, (sample) => sample.transitions_to.online), colour: "--online" },
      { ...line("away", 1, (sample) => sample.transitions_to.away), colour: "--away" },
      { ...line("busy", 2, (sample) => sample.transitions_to.busy), colour: "--busy" },
      { ...line("offline", 3, (sample) => sample.transitions_to.offline), colour: "--offline" },
    ],
  },
];

/** All charts. */
export function Charts({ samples }: { samples: readonly Sample[] }) {
  const names = Object.keys(samples.at(-1)?.work ?? {}).sort().join();
  const work = useMemo(() => workPlan(names.split(",").filter(Boolean)), [names]);
  return (
    <div className="charts">
      {[...FIXED, work].map((plan) => (
        <Chart key={plan.title} plan={plan} samples={samples} />
      ))}
    </div>
  );
}

function workPlan(functions: readonly string[]): ChartPlan {
  return {
    title: "Time in functions",
    hint: "Per second in WebAssembly calls, their store calls included",
    format: milliseconds,
    lines: functions.map((name, place) => line(name, place, (sample) => sample.work[name] ?? null)),
  };
}

function line(label: string, place: number, of: Line["of"]): Line {
  const dash = DASHES[place % DASHES.length];
  return { label, colour: HUES[place % HUES.length] ?? "--hue-1", of, ...(dash && { dash }) };
}
