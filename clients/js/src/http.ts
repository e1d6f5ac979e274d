// Calls: one request, one answer. A refused token is replaced once; everything else is for the caller to try again.

import { asError, RollcallError, type Problem } from "./error.js";
import type { Tokens } from "./token.js";

/** How long an answer may take. */
const TIMEOUT_MS = 15_000;

/** What calls need to know. */
export interface Access {
  url: string;
  as: string | undefined;
  tokens: Tokens;
  fetch: typeof fetch;
}

/** Calls the service. Rejects with a `RollcallError`. */
export type Ask = <Answer>(method: string, path: string, body?: object) => Promise<Answer>;

/** The headers that say who is asking: a token. A mere name is in the address, since no header carries every letter. */
export function identity(token: string | undefined): Record<string, string> {
  return token === undefined ? {} : { Authorization: `Bearer ${token}` };
}

/** What the service says went wrong. */
export async function refusal(answer: Response): Promise<RollcallError> {
  const said = (await answer.json().catch(() => ({}))) as Problem;
  const after = Number(answer.headers.get("Retry-After")) || undefined;
  return new RollcallError({ title: answer.statusText, retry_after_s: after, ...said, status: answer.status });
}

/** A request, once. */
function once(access: Access, token: string | undefined, method: string, path: string, body?: object) {
  const headers = identity(token);
  if (body) headers["Content-Type"] = "application/json";
  const request = { method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(TIMEOUT_MS) };
  // No path here has a query of its own.
  const as = access.as === undefined ? "" : `?as=${encodeURIComponent(access.as)}`;
  // What is said on leaving outlives the page.
  return access.fetch(access.url + path + as, { ...request, keepalive: path === "/v1/leave" });
}

/** Calls with a token that is replaced if it is refused. */
export function asker(access: Access): Ask {
  return async <Answer>(method: string, path: string, body?: object): Promise<Answer> => {
    try {
      const token = await access.tokens.get();
      let answer = await once(access, token, method, path, body);
      if (answer.status === 401) {
        const fresh = await access.tokens.get(token);
        if (fresh !== token) answer = await once(access, fresh, method, path, body);
      }
      if (!answer.ok) throw await refusal(answer);
      return (await answer.json()) as Answer;
    } catch (thrown) {
      throw asError(thrown);
    }
  };
}
