// "Why can Alice not see Bob?": a ruling in a sentence, with what would change it.
//
// Of a block the rule only says that there is one; who made it is known if the lists could be read, which takes the
// scope `service`.

import type { Audience, Ruling, Stance, State } from "../api/types";

/** What is known about a viewer and a subject. */
export interface Case {
  viewer: string;
  subject: string;
  ruling: Ruling;
  /** Whether the viewer may see when the subject was last here. */
  last_seen: boolean;
  /** What the subject lets others see; null if that is not known. */
  privacy: { presence: Audience; last_seen: Audience } | null;
  /** What the subject chose to be; null if that is nothing, or not known. */
  choice: Stance | null;
  /** How the subject is; null if that is not known. */
  state: State | null;
  /** Who blocked the other; null if the lists cannot be read. */
  blocked_by: readonly string[] | null;
}

/** The answer, why it is so, and what would change it. */
export interface Sentence {
  answer: string;
  reason: string;
  remedy: string;
}

/** A case in words. */
export function sentence(it: Case): Sentence {
  const { viewer, subject } = it;
  if (viewer === subject) {
    const answer = `${viewer} sees ${subject}.`;
    return { answer, reason: "Everybody sees themselves.", remedy: "Nothing changes that." };
  }
  const answer = `${viewer} ${it.ruling === "allowed" ? "can" : "cannot"} see ${subject}.`;
  switch (it.ruling) {
    case "allowed":
      return { answer, ...allowed(it) };
    case "restricted":
      return {
        answer,
        reason: `An administrator restricted the account of ${subject}: nobody but ${subject} sees it.`,
        remedy: `Lift it with DELETE /v1/restrictions/${encodeURIComponent(subject)}, in the scope admin.`,
      };
    case "blocked":
      return { answer, ...blocked(it) };
    case "private":
      return { answer, ...excluded(it) };
  }
}

function allowed(it: Case): Omit<Sentence, "answer"> {
  const { viewer, subject, last_seen, privacy } = it;
  const listed = privacy?.presence === "contacts";
  const open = listed ? `${subject} listed ${viewer} as a contact` : "Nobody blocked the other";
  if (last_seen) {
    const reason = `${open}, and no setting of ${subject} excludes ${viewer}: state, note and last seen are visible.`;
    return { reason: reason + absence(it), remedy: `A block by either, or a narrower privacy of ${subject}, would hide ${subject}.` };
  }
  const whom = privacy?.last_seen === "contacts" ? "only contacts" : "nobody";
  return {
    reason: `State and note are visible, but ${subject} lets ${whom} see when they were last here.${absence(it)}`,
    remedy:
      privacy?.last_seen === "contacts"
        ? `Last seen shows once ${subject} lists ${viewer} as a contact.`
        : `Last seen shows once ${subject} sets its privacy to contacts or everyone.`,
  };
}

/** Why somebody who may be seen looks gone all the same. */
function absence({ subject, choice, state }: Case): string {
  if (choice === "invisible") return ` ${subject} chose to be invisible, which looks like offline to everybody else.`;
  return state === "offline" ? ` ${subject} is offline.` : "";
}

function blocked({ viewer, subject, blocked_by }: Case): Omit<Sentence, "answer"> {
  if (blocked_by === null || blocked_by.length === 0) {
    return {
      reason: `One of the two, ${viewer} or ${subject}, blocked the other; neither is told so.`,
      remedy: "They see each other again when whoever did takes the block back.",
    };
  }
  if (blocked_by.length > 1) {
    return {
      reason: `${viewer} and ${subject} blocked each other.`,
      remedy: "They see each other again when both have taken their blocks back.",
    };
  }
  const [by] = blocked_by;
  const whom = by === viewer ? subject : viewer;
  const both = by === viewer ? " A block hides both from each other." : "";
  return { reason: `${by} blocked ${whom}.${both}`, remedy: `They see each other again when ${by} unblocks ${whom}.` };
}

function excluded({ viewer, subject, privacy }: Case): Omit<Sentence, "answer"> {
  switch (privacy?.presence) {
    case "contacts":
      return {
        reason: `${subject} lets only contacts see them, and ${viewer} is not on ${subject}'s list.`,
        remedy: `${subject} lists ${viewer} as a contact, or lets everyone see them.`,
      };
    case "nobody":
      return {
        reason: `${subject} lets nobody see them.`,
        remedy: `${subject} lets contacts see them and lists ${viewer}, or lets everyone see them.`,
      };
    default:
      return {
        reason: `A privacy setting of ${subject} excludes ${viewer}.`,
        remedy: `${subject} widens it, or lists ${viewer} as a contact.`,
      };
  }
}
