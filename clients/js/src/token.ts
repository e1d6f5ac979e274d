// Caches the program's token until shortly before it expires. Tokens are read but not verified; the service does that.

import { asError } from "./error.js";
import type { Options } from "./types.js";

/** A token is renewed this long before it expires, or when 20 % of its lifetime is left if that is later. */
const MARGIN_MS = 60_000;

/** The claims that the client reads. */
interface Claims {
  sub?: string;
  exp?: number;
  conversations?: unknown;
}

/** Provides tokens. */
export interface TokenSource {
  /** The current token; a fresh one if it is the one that was `refused`. Rejects with a `RollcallError`. */
  get(refused?: string): Promise<string | undefined>;
  /** The user named by the current token. */
  subject(): string | undefined;
  /** Milliseconds until the current token is to be renewed; infinite for never. */
  renewIn(): number;
}

/** The unverified claims of a token; empty if it is not a JSON Web Token. */
export function claims(token: string): Claims {
  try {
    const payload = (token.split(".")[1] ?? "").replace(/-/g, "+").replace(/_/g, "/");
    const bytes = Uint8Array.from(atob(payload), (char) => char.charCodeAt(0));
    return JSON.parse(new TextDecoder().decode(bytes)) as Claims;
  } catch {
    return {};
  }
}

/** Milliseconds until a token is to be renewed. A token that looks expired may be valid by the service's clock, so it
 * is renewed only when the service rejects it. */
export function renewDelay({ exp = 0 }: Claims, now: number): number {
  const left = exp * 1000 - now;
  return left > 0 ? left - Math.min(MARGIN_MS, left / 5) : Infinity;
}

/** A token source for the `token` option. */
export function tokenSource(source: Options["token"]): TokenSource {
  let current: string | undefined;
  let pending: Promise<string> | undefined;
  let renewAt = Infinity;

  async function load(getToken: () => string | Promise<string>): Promise<string> {
    try {
      current = await getToken();
      renewAt = Date.now() + renewDelay(claims(current), Date.now());
      return current;
    } catch (thrown) {
      throw asError(thrown, "No token");
    }
  }

  return {
    async get(refused) {
      if (typeof source !== "function") return (current = source);
      if (current !== undefined && current !== refused && Date.now() < renewAt) return current;
      // Concurrent callers share one call of the program's callback.
      return (pending ??= load(source).finally(() => (pending = undefined)));
    },
    subject: () => claims(current ?? "").sub,
    renewIn: () => renewAt - Date.now(),
  };
}
