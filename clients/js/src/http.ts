// Requests to the service. A rejected token is replaced once; every other failure is returned to the caller.

import { asError, RollcallError, type Problem } from "./error.js";
import type { TokenSource } from "./token.js";

const TIMEOUT_MS = 15_000;

/** Where the service is, and how to authenticate. */
export interface Access {
  url: string;
  as: string | undefined;
  tokens: TokenSource;
  fetch: typeof fetch;
}

/** Sends a request and returns the JSON of the response. Rejects with a `RollcallError`. */
export type SendRequest = <Answer>(method: string, path: string, body?: object) => Promise<Answer>;

/** The header for a token. A plain name goes into the URL, because a header cannot carry every character. */
export function authHeaders(token: string | undefined): Record<string, string> {
  return token === undefined ? {} : { Authorization: `Bearer ${token}` };
}

/** The error that a failed response describes. */
export async function responseError(response: Response): Promise<RollcallError> {
  const problem = (await response.json().catch(() => ({}))) as Problem;
  const after = Number(response.headers.get("Retry-After")) || undefined;
  return new RollcallError({ title: response.statusText, retry_after_s: after, ...problem, status: response.status });
}

function sendOnce(access: Access, token: string | undefined, method: string, path: string, body?: object) {
  const headers = authHeaders(token);
  if (body) headers["Content-Type"] = "application/json";
  const init = { method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(TIMEOUT_MS) };
  // No path passed here has a query string.
  const as = access.as === undefined ? "" : `?as=${encodeURIComponent(access.as)}`;
  // `keepalive` lets the leave request outlive the page.
  return access.fetch(access.url + path + as, { ...init, keepalive: path === "/v1/leave" });
}

/** Sends requests, and repeats one with a fresh token if the token was rejected. */
export function requestSender(access: Access): SendRequest {
  return async <Answer>(method: string, path: string, body?: object): Promise<Answer> => {
    try {
      const token = await access.tokens.get();
      let response = await sendOnce(access, token, method, path, body);
      if (response.status === 401) {
        const fresh = await access.tokens.get(token);
        if (fresh !== token) response = await sendOnce(access, fresh, method, path, body);
      }
      if (!response.ok) throw await responseError(response);
      return (await response.json()) as Answer;
    } catch (thrown) {
      throw asError(thrown);
    }
  };
}
