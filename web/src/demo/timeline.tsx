// The timeline: what was heard, newest first, and how long after its decision.

import type { Offset } from "../stats/clock";
import { Dot } from "../ui/state-dot";
import { clock, count } from "../format";
import type { Mark } from "./presence-text";

/** The most entries that are kept. */
export const MOST_ENTRIES = 200;

/** One entry. */
export interface Entry {
  id: number;
  at: number;
  user: string | null;
  mark: Mark | "typing" | null;
  text: string;
  /** From the decision to the arrival; null where that cannot be known. */
  latency_ms: number | null;
}

/** The list. */
export function Timeline({ entries, offset }: { entries: readonly Entry[]; offset: Offset | null }) {
  return (
    <section className="panel timeline" aria-labelledby="timeline-title">
      <h2 id="timeline-title">Timeline</h2>
      <p className="hint">{howMeasured(offset)}</p>
      <div className="log" role="log" aria-live="polite" aria-label="Events, newest first" tabIndex={0}>
        {entries.length === 0 && <p className="empty">Nothing has changed yet. Open a window as somebody else.</p>}
        <ol>
          {entries.map((entry) => (
            <Line key={entry.id} entry={entry} offset={offset} />
          ))}
        </ol>
      </div>
    </section>
  );
}

function Line({ entry, offset }: { entry: Entry; offset: Offset | null }) {
  return (
    <li className="event" data-user={entry.user ?? ""}>
      <time dateTime={new Date(entry.at).toISOString()}>{clock(entry.at)}</time>
      {entry.mark === "typing" ? <Pencil /> : <Dot mark={entry.mark ?? "unknown"} />}
      <span className="what">
        {entry.user && <strong>{entry.user}</strong>} {entry.text}
      </span>
      {entry.latency_ms !== null && (
        <span className="latency" title={howMeasured(offset)}>
          {entry.latency_ms < 1 ? "< 1 ms" : `${count(Math.round(entry.latency_ms))} ms`}
        </span>
      )}
    </li>
  );
}

/** How the latency is measured, so that nobody takes it for more than it is. */
export function howMeasured(offset: Offset | null): string {
  const measured = "Latency: from the decision, whose time is in the event's version, to its arrival in this page";
  if (!offset) return `${measured}, both clocks taken to agree.`;
  const error = `${count(Math.max(1, Math.ceil(offset.error_ms)))} ms`;
  if (offset.offset_ms === 0) return `${measured}; the two clocks agree within ${error}.`;
  return `${measured}, the clocks' difference taken out (± ${error}).`;
}

function Pencil() {
  return (
    <svg className="dot dot-typing" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <circle cx="3.5" cy="8" r="1.7" fill="currentColor" />
      <circle cx="8" cy="8" r="1.7" fill="currentColor" />
      <circle cx="12.5" cy="8" r="1.7" fill="currentColor" />
    </svg>
  );
}
