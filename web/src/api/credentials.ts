// Who is asking: a name where the host has no key, a token where it has one.
//
// The token is kept in the session's storage: it ends with the tab, and no other site can read it. What is read out of
// a token here is only shown; the host is who checks it.

/** How the console introduces itself. */
export type Access = { kind: "name"; name: string } | { kind: "token"; token: string; claims: Claims };

/** What a token says of itself. */
export interface Claims {
  user: string | null;
  scopes: string[];
  /** Where the person may type and see who does; `*` is anywhere. */
  conversations: string[];
  expires: number | null;
}

/** The name under which the console looks at figures before anybody picked one. */
export const NOBODY: Access = { kind: "name", name: "console" };

const KEPT_AS = "rollcall.token";

/** The headers that say who is asking: a token. A name is in the address. */
export function credentials(access: Access): Record<string, string> {
  return access.kind === "token" ? { authorization: `Bearer ${access.token}` } : {};
}

/** The path, with the name of who is asking if there is no token: a header cannot carry every letter. */
export function named(access: Access, path: string): string {
  if (access.kind === "token") return path;
  return `${path}${path.includes("?") ? "&" : "?"}as=${encodeURIComponent(access.name)}`;
}

/** Whether whoever asks takes part in this conversation, as far as can be told without asking. */
export function takesPart(access: Access, conversation: string): boolean {
  if (access.kind === "name" || access.claims.scopes.includes("service")) return true;
  return access.claims.conversations.some((one) => one === "*" || one === conversation);
}

/** Access by this token, or null if it is no JSON Web Token. */
export function byToken(token: string): Access | null {
  const claims = claimsOf(token.trim());
  return claims && { kind: "token", token: token.trim(), claims };
}

/** The token of this tab's session, if there is one. */
export function keptToken(): Access | null {
  const token = sessionStorage.getItem(KEPT_AS);
  return token === null ? null : byToken(token);
}

/** Keeps the token until the tab is closed; null forgets it. */
export function keepToken(token: string | null): void {
  if (token === null) sessionStorage.removeItem(KEPT_AS);
  else sessionStorage.setItem(KEPT_AS, token);
}

/** Reads what a token says, without checking it. */
export function claimsOf(token: string): Claims | null {
  const parts = token.split(".");
  const payload = parts[1];
  if (parts.length !== 3 || !payload) return null;
  try {
    const bytes = Uint8Array.from(atob(payload.replace(/-/g, "+").replace(/_/g, "/")), (one) => one.charCodeAt(0));
    const said = JSON.parse(new TextDecoder().decode(bytes)) as Record<string, unknown>;
    return {
      user: typeof said.sub === "string" ? said.sub : null,
      scopes: typeof said.scope === "string" ? said.scope.split(" ").filter(Boolean) : [],
      conversations: Array.isArray(said.conversations) ? said.conversations.map(String) : [],
      expires: typeof said.exp === "number" ? said.exp * 1_000 : null,
    };
  } catch {
    return null;
  }
}
