// The token: asked of the program when it is needed, kept until it is nearly over, and never checked: the service does.

import { asError } from "./error.js";
import type { Options } from "./types.js";

/** A token is renewed this long before it expires, or when a fifth of its life is left if that is sooner. */
const MARGIN_MS = 60_000;

/** What a token says that matters here. */
interface Claims {
  sub?: string;
  exp?: number;
  conversations?: unknown;
}

/** Where tokens come from. */
export interface Tokens {
  /** The token, another than that which was refused. Rejects with a `RollcallError`. */
  get(refused?: string): Promise<string | undefined>;
  /** Whom the last token names. */
  subject(): string | undefined;
  /** In how many milliseconds to renew the last one; infinite: never. */
  renewIn(): number;
}

/** What a token claims, unverified; nothing if it is of another kind. */
export function claims(token: string): Claims {
  try {
    const payload = (token.split(".")[1] ?? "").replace(/-/g, "+").replace(/_/g, "/");
    const bytes = Uint8Array.from(atob(payload), (letter) => letter.charCodeAt(0));
    return JSON.parse(new TextDecoder().decode(bytes)) as Claims;
  } catch {
    return {};
  }
}

/** In how many milliseconds to renew a token. One that seems to be over already may be good by the service's clock: it
 * is renewed when it is refused. */
export function renewal({ exp = 0 }: Claims, now: number): number {
  const left = exp * 1000 - now;
  return left > 0 ? left - Math.min(MARGIN_MS, left / 5) : Infinity;
}

/** Tokens from what the program gave. */
export function tokens(source: Options["token"]): Tokens {
  let current: string | undefined;
  let pending: Promise<string> | undefined;
  let renewAt = Infinity;

  async function fetched(ask: () => string | Promise<string>): Promise<string> {
    try {
      current = await ask();
      renewAt = Date.now() + renewal(claims(current), Date.now());
      return current;
    } catch (thrown) {
      throw asError(thrown, "No token");
    }
  }

  return {
    async get(refused) {
      if (typeof source !== "function") return (current = source);
      if (current !== undefined && current !== refused && Date.now() < renewAt) return current;
      // However many ask at the same time, the program is asked once.
      return (pending ??= fetched(source).finally(() => (pending = undefined)));
    },
    subject: () => claims(current ?? "").sub,
    renewIn: () => renewAt - Date.now(),
  };
}
