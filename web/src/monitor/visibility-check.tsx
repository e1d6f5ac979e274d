// "Why can A not see B?": asks the rule itself, and says what it says in a sentence.

import { useState, type FormEvent } from "react";

import type { Access } from "../api/credentials";
import { ask, words } from "../api/request";
import type { Person, Verdicts } from "../api/types";
import { sentence, type Case, type Sentence } from "./explain";

/** The form and its answer. */
export function Why({ access }: { access: Access }) {
  const [answer, setAnswer] = useState<Sentence | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const [viewer, subject] = [String(form.get("viewer")).trim(), String(form.get("subject")).trim()];
    setAnswer(null);
    setFailure(null);
    try {
      setAnswer(sentence(await look(access, viewer, subject)));
    } catch (refused) {
      setFailure(words(refused));
    }
  };
  return (
    <section className="panel" aria-labelledby="why-title">
      <h3 id="why-title">Who sees whom, and why</h3>
      <p className="hint">The rule that every answer and event goes through</p>
      <form className="inline" onSubmit={submit}>
        <span>Why can</span>
        <label>
          <span className="visually-hidden">Who looks</span>
          <input name="viewer" placeholder="alice" required maxLength={128} autoComplete="off" />
        </label>
        <span>(not) see</span>
        <label>
          <span className="visually-hidden">Who is looked at</span>
          <input name="subject" placeholder="bob" required maxLength={128} autoComplete="off" />
        </label>
        <button type="submit">Ask</button>
      </form>
      <div role="status">
        {answer && (
          <div className="verdict">
            <p>
              <strong>{answer.answer}</strong> {answer.reason}
            </p>
            <p className="remedy">{answer.remedy}</p>
          </div>
        )}
        {failure && <p className="problem">{failure}</p>}
      </div>
    </section>
  );
}

/** Asks for the verdict and for what explains it. */
async function look(access: Access, viewer: string, subject: string): Promise<Case> {
  const { verdicts, last_seen } = await ask<Verdicts>(access, "POST", "/v1/restrictions/check", {
    viewer,
    subjects: [subject],
  });
  const ruling = verdicts[0] ?? "allowed";
  // The verdict stands, also where what explains it cannot be had.
  const person = await ask<Person>(access, "GET", `/v1/people/${encodeURIComponent(subject)}`).catch(() => null);
  const { privacy = null, state = null, choice = null } = person ?? {};
  const blocked_by = ruling === "blocked" ? await blockers(access, viewer, subject) : null;
  const known = { privacy, choice: choice?.choice ?? null, state, blocked_by };
  return { viewer, subject, ruling, last_seen: last_seen[0] ?? false, ...known };
}

/** Who of the two blocked the other; null if the lists cannot be read, which takes the scope `service`. */
async function blockers(access: Access, viewer: string, subject: string): Promise<string[] | null> {
  const blocks = async (user: string, other: string) => {
    const list = await ask<{ blocks: string[] }>(access, "GET", `/v1/blocks?user=${encodeURIComponent(user)}`);
    return list.blocks.includes(other) ? [user] : [];
  };
  try {
    return [...(await blocks(viewer, subject)), ...(await blocks(subject, viewer))];
  } catch {
    return null;
  }
}
