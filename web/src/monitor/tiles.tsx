// The current stats, one tile each.

import type { Stats } from "../api/types";
import type { Sample } from "../stats/sample";
import { count, milliseconds, NOTHING, rate, plural } from "../format";

interface Tile {
  name: string;
  value: string;
  beside?: string;
  /** Highlights the tile. */
  alarm?: boolean;
}

export function Tiles({ stats, sample }: { stats: Stats; sample: Sample }) {
  return (
    <dl className="tiles">
      {tiles(stats, sample).map((tile) => (
        <div className={tile.alarm ? "tile panel alarm" : "tile panel"} key={tile.name}>
          <dt>{tile.name}</dt>
          <dd className="value" data-stat={tile.name}>
            {tile.value}
          </dd>
          {tile.beside && <dd className="beside">{tile.beside}</dd>}
        </div>
      ))}
    </dl>
  );
}

function tiles({ host, connections, store, totals }: Stats, sample: Sample): Tile[] {
  return [
    { name: "Online now", value: count(sample.online), beside: onlineHint(host.store) },
    { name: "Heartbeats", value: perSecond(sample.heartbeats), beside: `${count(totals.heartbeats)} since start` },
    { name: "Transitions", value: perSecond(sample.transitions), beside: `${perSecond(sample.sent)} sent to watchers` },
    { name: "Settle lag", value: milliseconds(sample.settle.p50), beside: lagHint(sample.settle.p99) },
    { name: "Topic lag", value: milliseconds(sample.topic.p50), beside: lagHint(sample.topic.p99) },
    {
      name: "Watchers",
      value: count(connections.watchers),
      beside: `${watchedHint(connections)}, counted per worker`,
    },
    {
      name: "Connections",
      value: count(connections.open),
      beside: `${plural(connections.sockets, "socket")}, ${plural(connections.streams, "stream")}`,
    },
    {
      name: "Store",
      value: store.answers ? milliseconds(store.took_ms) : "down",
      beside: store.answers ? `up; ${plural(totals.store_errors, "error")} since start` : "does not respond",
      alarm: !store.answers,
    },
    { name: "Requests", value: perSecond(sample.requests), beside: `p99 ${milliseconds(sample.request.p99)}` },
    {
      name: "Failures",
      value: perSecond(sample.failures),
      beside: `${count(totals.failures)} since start`,
      alarm: (sample.failures ?? 0) > 0,
    },
  ];
}

/** Redis counts users with a deadline, which connected invisible users have too. */
function onlineHint(store: string): string {
  const invisible = store.startsWith("redis") ? ", including connected invisible users" : "";
  return `not offline, on all hosts${invisible}`;
}

function watchedHint({ watched_users, watched_conversations }: Stats["connections"]): string {
  return `${plural(watched_users, "user")}, ${plural(watched_conversations, "conversation")}`;
}

function perSecond(value: number | null): string {
  return value === null ? NOTHING : `${rate(value)}/s`;
}

function lagHint(p99: number | null): string {
  return p99 === null ? "none in the last 10 s" : `p50; p99 ${milliseconds(p99)}`;
}
