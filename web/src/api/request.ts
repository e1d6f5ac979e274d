// Asking the host over HTTP. Every question has a deadline, and every failure is one of two: the host refused and said
// why, or it did not answer.

import { credentials, named, type Access } from "./credentials";

/** How long the host has to answer anything. */
const DEADLINE_MS = 5_000;

/** The host answered, and said no: the words of an RFC 9457 problem. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
  ) {
    super(detail || title);
  }
}

/** The host did not answer, or something that is no host of ours did. */
export class Unreachable extends Error {}

/** Asks for something and reads the answer, which is JSON. Throws a {@link Refusal} or {@link Unreachable}. */
export async function ask<Answer>(access: Access, method: string, path: string, body?: unknown): Promise<Answer> {
  const headers: Record<string, string> = credentials(access);
  if (body !== undefined) headers["content-type"] = "application/json";
  let response: Response;
  let text: string;
  try {
    const payload = body === undefined ? {} : { body: JSON.stringify(body) };
    const signal = AbortSignal.timeout(DEADLINE_MS);
    const request = { method, headers, signal, ...payload };
    response = await fetch(named(access, path), { ...request, cache: "no-store", credentials: "omit" });
    text = await response.text();
  } catch (failure) {
    throw new Unreachable(String(failure));
  }
  const answer = read(text);
  if (response.ok && answer !== undefined) return answer as Answer;
  throw refusal(response.status, answer);
}

/** What went wrong, in words for a person. */
export function words(failure: unknown): string {
  if (failure instanceof Refusal) return failure.detail ? `${failure.title}: ${failure.detail}` : failure.title;
  if (failure instanceof Unreachable) return "The host does not answer.";
  return failure instanceof Error ? failure.message : String(failure);
}

function refusal(status: number, answer: unknown): Error {
  if (typeof answer === "object" && answer !== null && "title" in answer) {
    const problem = answer as { title: unknown; detail?: unknown };
    return new Refusal(status, String(problem.title), String(problem.detail ?? ""));
  }
  // A proxy in between says 502 to 504 for a host that is gone.
  return status >= 500 ? new Unreachable(`status ${status}`) : new Refusal(status, `The host answered ${status}`, "");
}

function read(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
