// Watch it run: the host's figures, live, and what can be asked about people.
//
// While the host does not answer, what it said last stays, greyed, under a line that says so.

import { useState, useSyncExternalStore } from "react";

import type { Access } from "../api/credentials";
import type { FigureSource, Figures } from "../stats/poller";
import { window as windowOf } from "../stats/history";
import { useNow } from "../ui/use-now";
import { clock, span } from "../format";
import { Charts } from "./charts";
import { PersonFinder } from "./user-lookup";
import { Functions, HotUsers, StoreOperations } from "./tables";
import { Tiles } from "./tiles";
import { Why } from "./visibility-check";

/** The view. */
export function RunView({ access, source }: { access: Access; source: FigureSource }) {
  const figures = useSyncExternalStore(source.follow, source.current);
  const [user, setUser] = useState("");
  const shown = windowOf(figures.history);
  const sample = figures.history.samples.at(-1);
  return (
    <>
      <h1 className="visually-hidden">Watch it run</h1>
      <Trouble figures={figures} />
      {shown && sample ? (
        <div className={figures.gone_since === null && !figures.refusal ? "run" : "run stale"}>
          <section aria-label="Figures of this moment">
            <Tiles stats={shown.current} sample={sample} />
          </section>
          <section aria-labelledby="charts-title">
            <h2 id="charts-title">The last five minutes</h2>
            <Charts samples={figures.history.samples} />
          </section>
          <section aria-labelledby="people-title">
            <h2 id="people-title">People</h2>
            <div className="people-tools">
              <PersonFinder access={access} user={user} onPick={setUser} />
              <div className="stack">
                <Why access={access} />
                <HotUsers hot={shown.current.gateway.hot} onPick={setUser} />
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
          <Foot figures={figures} />
        </div>
      ) : (
        !figures.refusal && figures.gone_since === null && <p className="empty">Asking the host…</p>
      )}
    </>
  );
}

/** Says what is wrong with the host, or with who is asking. */
function Trouble({ figures }: { figures: Figures }) {
  const now = useNow();
  const { refusal, gone_since, history } = figures;
  if (refusal) {
    const scope = refusal.status === 403 ? "Watching it run takes a token with the scope admin. " : "";
    return (
      <p className="banner" role="alert">
        {scope}
        {refusal.title}: {refusal.detail}
      </p>
    );
  }
  if (gone_since === null) return null;
  const last = history.answers.at(-1);
  return (
    <p className="banner" role="alert">
      The host has not answered for <span aria-hidden="true">{span(now - gone_since)}</span>
      <span className="visually-hidden">a while</span>. {last && `Below is what it said at ${clock(last.host.now)}. `}
      It is asked again until it does.
    </p>
  );
}

/** What the host is set to. */
function Foot({ figures }: { figures: Figures }) {
  const stats = figures.history.answers.at(-1);
  if (!stats) return null;
  const { host, rules } = stats;
  const archive = host.archive === "none" ? "no archive" : `archive in ${host.archive}`;
  return (
    <p className="foot">
      rollcall {host.version}, up for {span(host.now - host.started)}; store {host.store}, {archive}. A device beats
      every {span(rules.interval_ms)} and is gone {span(rules.interval_ms + rules.tolerance_ms)} after its last beat;
      idle after {span(rules.idle_after_ms)}; a broken connection has {span(rules.grace_ms)} of grace.
    </p>
  );
}
