// The figures of this moment, one tile each.

import type { Stats } from "../api/types";
import type { Sample } from "../stats/sample";
import { count, milliseconds, NOTHING, rate, things } from "../format";

interface Tile {
  name: string;
  value: string;
  beside?: string;
  /** Worth a look: shown by a word and a colour. */
  alarm?: boolean;
}

/** All tiles. */
export function Tiles({ stats, sample }: { stats: Stats; sample: Sample }) {
  return (
    <dl className="tiles">
      {tiles(stats, sample).map((tile) => (
        <div className={tile.alarm ? "tile panel alarm" : "tile panel"} key={tile.name}>
          <dt>{tile.name}</dt>
          <dd className="value" data-figure={tile.name}>
            {tile.value}
          </dd>
          {tile.beside && <dd className="beside">{tile.beside}</dd>}
        </div>
      ))}
    </dl>
  );
}

function tiles({ host, gateway, store, totals }: Stats, sample: Sample): Tile[] {
  return [
    { name: "Online now", value: count(sample.here), beside: whoIsHere(host.store) },
    { name: "Heartbeats", value: perSecond(sample.heartbeats), beside: `${count(totals.heartbeats)} since the start` },
    { name: "Transitions", value: perSecond(sample.transitions), beside: `${perSecond(sample.told)} told to watchers` },
    { name: "Settle lag", value: milliseconds(sample.settle.p50), beside: lagBeside(sample.settle.p99) },
    { name: "Notification lag", value: milliseconds(sample.topic.p50), beside: lagBeside(sample.topic.p99) },
    {
      name: "Watchers",
      value: count(gateway.watchers),
      beside: `${watched(gateway)}, counted per worker`,
    },
    {
      name: "Connections",
      value: count(gateway.connections),
      beside: `${things(gateway.sockets, "socket")}, ${things(gateway.streams, "stream")}`,
    },
    {
      name: "Store",
      value: store.answers ? milliseconds(store.took_ms) : "silent",
      beside: store.answers ? `answers; ${things(totals.store_errors, "error")} so far` : "does not answer",
      alarm: !store.answers,
    },
    { name: "Requests", value: perSecond(sample.requests), beside: `p99 ${milliseconds(sample.request.p99)}` },
    {
      name: "Failures",
      value: perSecond(sample.failures),
      beside: `${count(totals.failures)} since the start`,
      alarm: (sample.failures ?? 0) > 0,
    },
  ];
}

/** Redis counts by deadlines, and the invisible have one while they are connected. */
function whoIsHere(store: string): string {
  const invisible = store.startsWith("redis") ? ", with the invisible who are connected" : "";
  return `not offline, on all hosts${invisible}`;
}

function watched({ people, conversations }: Stats["gateway"]): string {
  return `${things(people, "person", "people")}, ${things(conversations, "conversation")}`;
}

function perSecond(value: number | null): string {
  return value === null ? NOTHING : `${rate(value)}/s`;
}

function lagBeside(p99: number | null): string {
  return p99 === null ? "none in the last 10 s" : `p50; p99 ${milliseconds(p99)}`;
}
