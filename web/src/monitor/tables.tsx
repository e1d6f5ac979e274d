// Tables: time by function and by store operation, and the most watched users.

import type { ReactNode } from "react";

import type { Stats } from "../api/types";
import { breakdown, type Row } from "../stats/breakdown";
import { count, milliseconds, percent, rate } from "../format";

/** Functions by descending time. */
export function Functions({ current, opening }: { current: Stats; opening: Stats | null }) {
  const rows = breakdown(current.times.functions, opening?.times.functions ?? {}, duration(current, opening));
  return (
    <Panel title="Functions" hint="WebAssembly calls in the last 10 s; one call may hold a batch">
      <TimeTable rows={rows} noun="function" />
    </Panel>
  );
}

/** Store operations by descending time. */
export function StoreOperations({ current, opening }: { current: Stats; opening: Stats | null }) {
  const rows = breakdown(current.times.store, opening?.times.store ?? {}, duration(current, opening));
  return (
    <Panel title="Store operations" hint="Store calls of the functions in the last 10 s">
      <TimeTable rows={rows.filter((row) => row.p50 !== null)} noun="operation" />
    </Panel>
  );
}

/** The users that most connections of this host watch. */
export function MostWatched({ users, onPick }: {
  users: Stats["connections"]["most_watched"];
  onPick: (user: string) => void;
}) {
  return (
    <Panel title="Most watched" hint="By connections of this host; click a user to look them up">
      {users.length === 0 ? (
        <p className="empty">No user is watched on this host.</p>
      ) : (
        <ol className="most-watched">
          {users.map(({ user, watchers }) => (
            <li key={user}>
              <button type="button" className="link" onClick={() => onPick(user)}>
                {user}
              </button>
              <meter min={0} max={users[0]?.watchers ?? 1} value={watchers} aria-label={`watchers of ${user}`} />
              <span className="number">{count(watchers)}</span>
            </li>
          ))}
        </ol>
      )}
    </Panel>
  );
}

function Panel({ title, hint, children }: { title: string; hint: string; children: ReactNode }) {
  return (
    <section className="panel">
      <h3>{title}</h3>
      <p className="hint">{hint}</p>
      {children}
    </section>
  );
}

function TimeTable({ rows, noun }: { rows: readonly Row[]; noun: string }) {
  if (rows.length === 0) return <p className="empty">No calls.</p>;
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label={`Time by ${noun}`}>
      <table className="numbers">
        <thead>
          <tr>
            <th scope="col">{noun}</th>
            <th scope="col">calls/s</th>
            <th scope="col">p50</th>
            <th scope="col">p99</th>
            <th scope="col">share of time</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name}>
              <th scope="row">{row.name}</th>
              <td>{rate(row.calls_per_s)}</td>
              <td>{milliseconds(row.p50)}</td>
              <td>{milliseconds(row.p99)}</td>
              <td className="share">
                <meter min={0} max={1} value={row.share} aria-label={`share of ${row.name}`} />
                <span className="number">{percent(row.share)}</span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function duration(current: Stats, opening: Stats | null): number {
  return current.host.now - (opening ? opening.host.now : current.host.started);
}
