// What changed between two presences of one person, in a few words for the timeline.

import type { Presence } from "@rollcall/client";

/** How a card, or an entry of the timeline, marks somebody. `unknown` is before the first answer. */
export type Mark = "online" | "away" | "busy" | "offline" | "hidden" | "unknown";

/** The mark of a presence. */
export function mark(presence: Presence | undefined): Mark {
  if (!presence) return "unknown";
  return presence.state ?? "hidden";
}

/** The mark in words: what stands beside every dot, because colour alone says nothing to some. */
export const IN_WORDS: Record<Mark, string> = {
  online: "online",
  away: "away",
  busy: "busy",
  offline: "offline",
  hidden: "not visible to you",
  unknown: "asking…",
};

/** What changed, as a sentence goes on after the name; null if nothing that anybody would see did. */
export function changed(before: Presence | undefined, after: Presence): string | null {
  const [was, is] = [mark(before), mark(after)];
  const note = noteOf(after);
  if (was !== is) return note && note !== noteOf(before) ? `${turned(was, is)}: ${note}` : turned(was, is);
  if (note !== noteOf(before)) return note ? `says: ${note}` : "took the note back";
  return null;
}

/** Emoji and text of a note, or nothing. */
export function noteOf(presence: Presence | undefined): string {
  const note = presence?.note;
  return [note?.emoji, note?.text].filter(Boolean).join(" ");
}

function turned(was: Mark, is: Mark): string {
  if (was === "hidden") return `is visible to you again, ${is}`;
  if (is === "offline" && was !== "unknown") return "went offline";
  return is === "online" && was === "offline" ? "came online" : `is ${IN_WORDS[is]}`;
}
