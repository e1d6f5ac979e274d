// Checks whether one user can see another, and explains the verdict.

import { useState, type FormEvent } from "react";

import type { Access } from "../api/credentials";
import { request, errorText } from "../api/request";
import type { Person, CheckAnswer } from "../api/types";
import { explain, type Case, type Explanation } from "./explain";

export function VisibilityCheck({ access }: { access: Access }) {
  const [answer, setAnswer] = useState<Explanation | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const [viewer, subject] = [String(form.get("viewer")).trim(), String(form.get("subject")).trim()];
    setAnswer(null);
    setFailure(null);
    try {
      setAnswer(explain(await loadCase(access, viewer, subject)));
    } catch (refused) {
      setFailure(errorText(refused));
    }
  };
  return (
    <section className="panel" aria-labelledby="why-title">
      <h3 id="why-title">Visibility check</h3>
      <p className="hint">The verdict that applies to every answer and event</p>
      <form className="inline" onSubmit={submit}>
        <span>Can</span>
        <label>
          <span className="visually-hidden">Viewer</span>
          <input name="viewer" placeholder="alice" required maxLength={128} autoComplete="off" />
        </label>
        <span>see</span>
        <label>
          <span className="visually-hidden">Subject</span>
          <input name="subject" placeholder="bob" required maxLength={128} autoComplete="off" />
        </label>
        <button type="submit">Check</button>
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

/** Loads the verdict and what explains it. */
async function loadCase(access: Access, viewer: string, subject: string): Promise<Case> {
  const { verdicts, last_seen } = await request<CheckAnswer>(access, "POST", "/v1/restrictions/check", {
    viewer,
    subjects: [subject],
  });
  const ruling = verdicts[0] ?? "allowed";
  // The verdict is shown even if the rest cannot be loaded.
  const person = await request<Person>(access, "GET", `/v1/people/${encodeURIComponent(subject)}`).catch(() => null);
  const { privacy = null, state = null, choice = null } = person ?? {};
  const blocked_by = ruling === "blocked" ? await blockers(access, viewer, subject) : null;
  const known = { privacy, choice: choice?.choice ?? null, state, blocked_by };
  return { viewer, subject, ruling, last_seen: last_seen[0] ?? false, ...known };
}

/** Which of the two blocked the other; null if the lists cannot be read, which needs the scope `service`. */
async function blockers(access: Access, viewer: string, subject: string): Promise<string[] | null> {
  const blocks = async (user: string, other: string) => {
    const list = await request<{ blocks: string[] }>(access, "GET", `/v1/blocks?user=${encodeURIComponent(user)}`);
    return list.blocks.includes(other) ? [user] : [];
  };
  try {
    return [...(await blocks(viewer, subject)), ...(await blocks(subject, viewer))];
  } catch {
    return null;
  }
}
