// The timeline: events, newest first, with their latency.

import type { Offset } from "../stats/clock";
import { Dot } from "../ui/state-dot";
import { clock, count } from "../format";
import type { ShownState } from "./presence-text";

export const MAX_ENTRIES = 200;

export interface Entry {
  id: number;
  at: number;
  user: string | null;
  icon: ShownState | "typing" | null;
  text: string;
  /** From the decision to the arrival; null if unknown. */
  latency_ms: number | null;
}

export function Timeline({ entries, offset }: { entries: readonly Entry[]; offset: Offset | null }) {
  return (
    <section className="panel timeline" aria-labelledby="timeline-title">
      <h2 id="timeline-title">Timeline</h2>
      <p className="hint">{howMeasured(offset)}</p>
      <div className="log" role="log" aria-live="polite" aria-label="Events, newest first" tabIndex={0}>
        {entries.length === 0 && <p className="empty">No events yet. Open a window as another user.</p>}
        <ol>
          {entries.map((entry) => (
            <TimelineEntry key={entry.id} entry={entry} offset={offset} />
          ))}
        </ol>
      </div>
    </section>
  );
}

function TimelineEntry({ entry, offset }: { entry: Entry; offset: Offset | null }) {
  return (
    <li className="event" data-user={entry.user ?? ""}>
      <time dateTime={new Date(entry.at).toISOString()}>{clock(entry.at)}</time>
      {entry.icon === "typing" ? <TypingIcon /> : <Dot state={entry.icon ?? "unknown"} />}
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

/** How the latency is measured, and how precise it is. */
export function howMeasured(offset: Offset | null): string {
  const measured = "Latency: from the decision (the event's version) to the arrival in this page";
  if (!offset) return `${measured}, assuming that both clocks agree.`;
  const error = `${count(Math.max(1, Math.ceil(offset.error_ms)))} ms`;
  if (offset.offset_ms === 0) return `${measured}; the clocks agree within ${error}.`;
  return `${measured}, corrected for the clock offset (± ${error}).`;
}

function TypingIcon() {
  return (
    <svg className="dot dot-typing" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <circle cx="3.5" cy="8" r="1.7" fill="currentColor" />
      <circle cx="8" cy="8" r="1.7" fill="currentColor" />
      <circle cx="12.5" cy="8" r="1.7" fill="currentColor" />
    </svg>
  );
}
