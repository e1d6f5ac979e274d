// Explains a verdict: the reason, and what would change it.
//
// The ruling `blocked` does not say who blocked whom; that is known if the block lists can be read, which needs the
// scope `service`.

import type { Audience, Ruling, Stance, State } from "../api/types";

/** A verdict with what is known about viewer and subject. */
export interface Case {
  viewer: string;
  subject: string;
  ruling: Ruling;
  /** Whether the viewer may see the subject's last seen. */
  last_seen: boolean;
  /** The subject's privacy; null if unknown. */
  privacy: { presence: Audience; last_seen: Audience } | null;
  /** The subject's choice; null if there is none, or unknown. */
  choice: Stance | null;
  /** The subject's state; null if unknown. */
  state: State | null;
  /** Which of the two blocked the other; null if unknown. */
  blocked_by: readonly string[] | null;
}

export interface Explanation {
  answer: string;
  reason: string;
  remedy: string;
}

export function explain(it: Case): Explanation {
  const { viewer, subject } = it;
  if (viewer === subject) {
    const answer = `${viewer} sees ${subject}.`;
    return { answer, reason: "Users always see themselves.", remedy: "Nothing changes that." };
  }
  const answer = `${viewer} ${it.ruling === "allowed" ? "can" : "cannot"} see ${subject}.`;
  switch (it.ruling) {
    case "allowed":
      return { answer, ...allowed(it) };
    case "restricted":
      return {
        answer,
        reason: `An administrator restricted the account of ${subject}: it is hidden from all other users.`,
        remedy: `Lift the restriction with DELETE /v1/restrictions/${encodeURIComponent(subject)}, which needs the scope admin.`,
      };
    case "blocked":
      return { answer, ...blocked(it) };
    case "private":
      return { answer, ...excluded(it) };
  }
}

function allowed(it: Case): Omit<Explanation, "answer"> {
  const { viewer, subject, last_seen, privacy } = it;
  const listed = privacy?.presence === "contacts";
  const open = listed ? `${viewer} is a contact of ${subject}` : "Neither user blocked the other";
  if (last_seen) {
    const reason = `${open}, and the privacy of ${subject} does not exclude ${viewer}: state, note and last seen are visible.`;
    return { reason: reason + offlineReason(it), remedy: `A block by either user, or stricter privacy of ${subject}, would hide ${subject}.` };
  }
  const audience = privacy?.last_seen === "contacts" ? "only contacts" : "nobody";
  return {
    reason: `State and note are visible, but ${subject} shows last seen to ${audience}.${offlineReason(it)}`,
    remedy:
      privacy?.last_seen === "contacts"
        ? `Last seen becomes visible once ${subject} adds ${viewer} as a contact.`
        : `Last seen becomes visible once ${subject} sets its audience to contacts or everyone.`,
  };
}

/** Why a visible user still appears offline. */
function offlineReason({ subject, choice, state }: Case): string {
  if (choice === "invisible") return ` ${subject} is invisible, which others see as offline.`;
  return state === "offline" ? ` ${subject} is offline.` : "";
}

function blocked({ viewer, subject, blocked_by }: Case): Omit<Explanation, "answer"> {
  if (blocked_by === null || blocked_by.length === 0) {
    return {
      reason: `Either ${viewer} or ${subject} blocked the other. Viewers cannot see which.`,
      remedy: "They see each other again once that block is removed.",
    };
  }
  if (blocked_by.length > 1) {
    return {
      reason: `${viewer} and ${subject} blocked each other.`,
      remedy: "They see each other again once both blocks are removed.",
    };
  }
  const [by] = blocked_by;
  const other = by === viewer ? subject : viewer;
  const both = by === viewer ? " A block hides both users from each other." : "";
  return { reason: `${by} blocked ${other}.${both}`, remedy: `They see each other again once ${by} unblocks ${other}.` };
}

function excluded({ viewer, subject, privacy }: Case): Omit<Explanation, "answer"> {
  switch (privacy?.presence) {
    case "contacts":
      return {
        reason: `${subject} is visible only to contacts, and ${viewer} is not a contact of ${subject}.`,
        remedy: `${subject} adds ${viewer} as a contact, or sets the audience to everyone.`,
      };
    case "nobody":
      return {
        reason: `${subject} is visible to nobody.`,
        remedy: `${subject} sets the audience to contacts and adds ${viewer}, or sets it to everyone.`,
      };
    default:
      return {
        reason: `The privacy of ${subject} excludes ${viewer}.`,
        remedy: `${subject} widens the audience, or adds ${viewer} as a contact.`,
      };
  }
}
