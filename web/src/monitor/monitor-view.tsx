// The monitor: live stats of the host, and tools to look up users.
//
// While the host does not respond, its last stats stay on the page, greyed, below a banner.

import { useState, useSyncExternalStore } from "react";

import type { Access } from "../api/credentials";
import type { StatsPoller, StatsState } from "../stats/poller";
import { window as currentWindow } from "../stats/history";
import { useNow } from "../ui/use-now";
import { clock, span } from "../format";
import { Charts } from "./charts";
import { UserLookup } from "./user-lookup";
import { Functions, MostWatched, StoreOperations } from "./tables";
import { Tiles } from "./tiles";
import { VisibilityCheck } from "./visibility-check";

export function MonitorView({ access, source }: { access: Access; source: StatsPoller }) {
  const stats = useSyncExternalStore(source.subscribe, source.current);
  const [user, setUser] = useState("");
  const shown = currentWindow(stats.history);
  const sample = stats.history.samples.at(-1);
  return (
    <>
      <h1 className="visually-hidden">Monitor</h1>
      <ErrorBanner stats={stats} />
      {shown && sample ? (
        <div className={stats.silent_since === null && !stats.error ? "monitor" : "monitor stale"}>
          <section aria-label="Current stats">
            <Tiles stats={shown.current} sample={sample} />
          </section>
          <section aria-labelledby="charts-title">
            <h2 id="charts-title">The last five minutes</h2>
            <Charts samples={stats.history.samples} />
          </section>
          <section aria-labelledby="users-title">
            <h2 id="users-title">Users</h2>
            <div className="user-tools">
              <UserLookup access={access} user={user} onPick={setUser} />
              <div className="stack">
                <VisibilityCheck access={access} />
                <MostWatched users={shown.current.connections.most_watched} onPick={setUser} />
              </div>
            </div>
          </section>
          <section aria-labelledby="time-title">
            <h2 id="time-title">Where the time goes</h2>
            <div className="tables">
              <Functions {...shown} />
              <StoreOperations {...shown} />
            </div>
          </section>
          <HostSummary stats={stats} />
        </div>
      ) : (
        !stats.error && stats.silent_since === null && <p className="empty">Loading…</p>
      )}
    </>
  );
}

/** Reports that the host does not respond, or rejects the request. */
function ErrorBanner({ stats }: { stats: StatsState }) {
  const now = useNow();
  const { error, silent_since, history } = stats;
  if (error) {
    const scope = error.status === 403 ? "The monitor needs a token with the scope admin. " : "";
    return (
      <p className="banner" role="alert">
        {scope}
        {error.title}: {error.detail}
      </p>
    );
  }
  if (silent_since === null) return null;
  const last = history.answers.at(-1);
  return (
    <p className="banner" role="alert">
      The host has not responded for <span aria-hidden="true">{span(now - silent_since)}</span>
      <span className="visually-hidden">a while</span>. {last && `The stats below are from ${clock(last.host.now)}. `}
      Retrying.
    </p>
  );
}

/** Version, uptime and settings of the host. */
function HostSummary({ stats }: { stats: StatsState }) {
  const last = stats.history.answers.at(-1);
  if (!last) return null;
  const { host, rules } = last;
  const archive = host.archive === "none" ? "no archive" : `archive in ${host.archive}`;
  return (
    <p className="foot">
      rollcall {host.version}, up for {span(host.now - host.started)}; store {host.store}, {archive}. Heartbeat
      interval {span(rules.interval_ms)}, offline {span(rules.interval_ms + rules.tolerance_ms)} after the last
      heartbeat, away after {span(rules.idle_after_ms)} idle, grace after a dropped connection {span(rules.grace_ms)}.
    </p>
  );
}
