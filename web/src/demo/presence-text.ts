// Text for states, and for the change between two presences of a user.

import type { Presence } from "@rollcall/client";

/** The icon of a state. `unknown` is before the first answer. */
export type ShownState = "online" | "away" | "busy" | "offline" | "hidden" | "unknown";

export function shownState(presence: Presence | undefined): ShownState {
  if (!presence) return "unknown";
  return presence.state ?? "hidden";
}

/** The text beside every icon. */
export const STATE_TEXT: Record<ShownState, string> = {
  online: "online",
  away: "away",
  busy: "busy",
  offline: "offline",
  hidden: "not visible to you",
  unknown: "loading…",
};

/** What changed, as the predicate after the user's name; null if nothing visible did. */
export function changed(before: Presence | undefined, after: Presence): string | null {
  const [was, is] = [shownState(before), shownState(after)];
  const note = noteOf(after);
  if (was !== is) return note && note !== noteOf(before) ? `${transition(was, is)}: ${note}` : transition(was, is);
  if (note !== noteOf(before)) return note ? `set a note: ${note}` : "removed the note";
  return null;
}

/** Emoji and text of a note, or nothing. */
export function noteOf(presence: Presence | undefined): string {
  const note = presence?.note;
  return [note?.emoji, note?.text].filter(Boolean).join(" ");
}

function transition(was: ShownState, is: ShownState): string {
  if (was === "hidden") return `is visible to you again, ${is}`;
  if (is === "offline" && was !== "unknown") return "went offline";
  return is === "online" && was === "offline" ? "came online" : `is ${STATE_TEXT[is]}`;
}
