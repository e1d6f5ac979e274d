// Credentials: a name where the host has no key, a token where it has one.
//
// The token is in `sessionStorage`: it ends with the tab, and no other site can read it. Its claims are only displayed;
// the host verifies them.

export type Access = { kind: "name"; name: string } | { kind: "token"; token: string; claims: Claims };

/** The unverified claims of a token. */
export interface Claims {
  user: string | null;
  scopes: string[];
  /** The conversations in which the user may type and see typists; `*` for all. */
  conversations: string[];
  expires: number | null;
}

/** The credentials before the user picked a name. */
export const ANONYMOUS: Access = { kind: "name", name: "console" };

const STORAGE_KEY = "rollcall.token";

/** The header for a token. A name goes into the URL. */
export function authHeaders(access: Access): Record<string, string> {
  return access.kind === "token" ? { authorization: `Bearer ${access.token}` } : {};
}

/** The path, with the name if there is no token: a header cannot carry every character. */
export function withName(access: Access, path: string): string {
  if (access.kind === "token") return path;
  return `${path}${path.includes("?") ? "&" : "?"}as=${encodeURIComponent(access.name)}`;
}

/** Whether the credentials allow typing in this conversation. */
export function mayType(access: Access, conversation: string): boolean {
  if (access.kind === "name" || access.claims.scopes.includes("service")) return true;
  return access.claims.conversations.some((one) => one === "*" || one === conversation);
}

/** Credentials from a token; null if it is not a JSON Web Token. */
export function byToken(token: string): Access | null {
  const claims = claimsOf(token.trim());
  return claims && { kind: "token", token: token.trim(), claims };
}

/** The stored token of this tab. */
export function storedToken(): Access | null {
  const token = sessionStorage.getItem(STORAGE_KEY);
  return token === null ? null : byToken(token);
}

/** Stores the token until the tab is closed; null removes it. */
export function storeToken(token: string | null): void {
  if (token === null) sessionStorage.removeItem(STORAGE_KEY);
  else sessionStorage.setItem(STORAGE_KEY, token);
}

/** Decodes a token's claims without verifying them. */
export function claimsOf(token: string): Claims | null {
  const parts = token.split(".");
  const payload = parts[1];
  if (parts.length !== 3 || !payload) return null;
  try {
    const bytes = Uint8Array.from(atob(payload.replace(/-/g, "+").replace(/_/g, "/")), (one) => one.charCodeAt(0));
    const claims = JSON.parse(new TextDecoder().decode(bytes)) as Record<string, unknown>;
    return {
      user: typeof claims.sub === "string" ? claims.sub : null,
      scopes: typeof claims.scope === "string" ? claims.scope.split(" ").filter(Boolean) : [],
      conversations: Array.isArray(claims.conversations) ? claims.conversations.map(String) : [],
      expires: typeof claims.exp === "number" ? claims.exp * 1_000 : null,
    };
  } catch {
    return null;
  }
}
