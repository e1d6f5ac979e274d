// The definitions of the charts. The order keeps charts of similar height in one row of three. Series of one chart
// differ in dash as well as colour.

import { useMemo } from "react";

import type { Sample } from "../stats/sample";
import { count, milliseconds, rate } from "../format";
import { Chart, type ChartSpec, type Series } from "./chart";

const SOLID = undefined;
const DASHES: readonly (readonly number[] | undefined)[] = [SOLID, [6, 3], [2, 2], [8, 3, 2, 3], [1, 3], [12, 4]];
const HUES = ["--hue-1", "--hue-2", "--hue-3", "--hue-4", "--hue-5", "--hue-6"];

const FIXED: readonly ChartSpec[] = [
  {
    title: "Users online",
    hint: "Users who are not offline, in the whole store; on Redis including connected invisible users",
    format: count,
    whole: true,
    lines: [line("online", 0, (sample) => sample.online)],
  },
  {
    title: "Heartbeats",
    hint: "Per second, including those of open connections",
    format: rate,
    lines: [line("heartbeats/s", 0, (sample) => sample.heartbeats)],
  },
  {
    title: "Requests",
    hint: "Responses per second, and failures among them",
    format: rate,
    lines: [line("requests/s", 0, (sample) => sample.requests), line("failures/s", 1, (sample) => sample.failures)],
  },
  {
    title: "Settle lag",
    hint: "From the deadline of a change to its publication",
    format: milliseconds,
    lines: [line("p50", 0, (sample) => sample.settle.p50), line("p99", 1, (sample) => sample.settle.p99)],
  },
  {
    title: "Topic lag",
    hint: "From a decision to its arrival at a worker with watchers",
    format: milliseconds,
    lines: [line("p50", 0, (sample) => sample.topic.p50), line("p99", 1, (sample) => sample.topic.p99)],
  },
  {
    title: "Watchers",
    hint: "Connections that watch, and all open connections of this host",
    format: count,
    whole: true,
    lines: [line("watchers", 0, (sample) => sample.watchers), line("connections", 1, (sample) => sample.connections)],
  },
  {
    title: "Store",
    hint: "One read of the store per poll",
    format: milliseconds,
    lines: [line("read", 0, (sample) => sample.store_ms)],
  },
  {
    title: "Transitions",
    hint: "Published changes of state per second, by the new state",
    format: rate,
    lines: [
      { ...line("online", 0, (sample) => sample.transitions_to.online), colour: "--online" },
      { ...line("away", 1, (sample) => sample.transitions_to.away), colour: "--away" },
      { ...line("busy", 2, (sample) => sample.transitions_to.busy), colour: "--busy" },
      { ...line("offline", 3, (sample) => sample.transitions_to.offline), colour: "--offline" },
    ],
  },
];

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

function workPlan(functions: readonly string[]): ChartSpec {
  return {
    title: "Time in functions",
    hint: "Time per second in WebAssembly calls, including their store calls",
    format: milliseconds,
    lines: functions.map((name, place) => line(name, place, (sample) => sample.work[name] ?? null)),
  };
}

function line(label: string, place: number, of: Series["of"]): Series {
  const dash = DASHES[place % DASHES.length];
  return { label, colour: HUES[place % HUES.length] ?? "--hue-1", of, ...(dash && { dash }) };
}
