// Requests to the host. Every request has a timeout. There are two failures: the host rejected the request, or it did
// not respond.

import { authHeaders, withName, type Access } from "./credentials";

const TIMEOUT_MS = 5_000;

/** The host rejected the request: title and detail of an RFC 9457 problem. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
  ) {
    super(detail || title);
  }
}

/** The host did not respond, or the response was not the host's. */
export class Unreachable extends Error {}

/** Sends a request and returns the JSON of the response. Throws an {@link ApiError} or {@link Unreachable}. */
export async function request<Answer>(access: Access, method: string, path: string, body?: unknown): Promise<Answer> {
  const headers: Record<string, string> = authHeaders(access);
  if (body !== undefined) headers["content-type"] = "application/json";
  let response: Response;
  let text: string;
  try {
    const payload = body === undefined ? {} : { body: JSON.stringify(body) };
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const init = { method, headers, signal, ...payload };
    response = await fetch(withName(access, path), { ...init, cache: "no-store", credentials: "omit" });
    text = await response.text();
  } catch (failure) {
    throw new Unreachable(String(failure));
  }
  const answer = read(text);
  if (response.ok && answer !== undefined) return answer as Answer;
  throw responseError(response.status, answer);
}

/** The message to display for a failure. */
export function errorText(failure: unknown): string {
  if (failure instanceof ApiError) return failure.detail ? `${failure.title}: ${failure.detail}` : failure.title;
  if (failure instanceof Unreachable) return "The host does not respond.";
  return failure instanceof Error ? failure.message : String(failure);
}

function responseError(status: number, answer: unknown): Error {
  if (typeof answer === "object" && answer !== null && "title" in answer) {
    const problem = answer as { title: unknown; detail?: unknown };
    return new ApiError(status, String(problem.title), String(problem.detail ?? ""));
  }
  // A proxy responds 502 to 504 if the host is down.
  return status >= 500 ? new Unreachable(`status ${status}`) : new ApiError(status, `The host responded with status ${status}`, "");
}

function read(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
