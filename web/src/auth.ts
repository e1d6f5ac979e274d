// Authentication: finds out whether the host requires a token, retrying until it responds.

import { useCallback, useEffect, useMemo, useState } from "react";

import { byToken, storeToken, storedToken, ANONYMOUS, type Access } from "./api/credentials";
import { request, ApiError, errorText } from "./api/request";

const RETRY_MS = 2_000;

/** Whether the host requires a token: it does if it has a key. */
export type AuthState = { kind: "checking" } | { kind: "unreachable"; reason: string } | { kind: "open" } | { kind: "token-required" };

export interface Auth {
  state: AuthState;
  /** The credentials for requests; null while a required token is missing. */
  access: Access | null;
  /** Signs in with a token. Returns false if it is not a JSON Web Token. */
  signIn: (token: string) => boolean;
  signOut: () => void;
}

/** Checks the host, and stores the token until the tab is closed. */
export function useAuth(): Auth {
  const [state, setState] = useState<AuthState>({ kind: "checking" });
  const [token, setToken] = useState<Access | null>(storedToken);

  useEffect(() => {
    let over = false;
    let timer: ReturnType<typeof setTimeout>;
    const check = async () => {
      const found = await checkHost();
      if (over) return;
      setState(found);
      if (found.kind === "unreachable") timer = setTimeout(check, RETRY_MS);
    };
    void check();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, []);

  const signIn = useCallback((text: string) => {
    const access = byToken(text);
    if (access?.kind !== "token") return false;
    storeToken(access.token);
    setToken(access);
    return true;
  }, []);
  const signOut = useCallback(() => {
    storeToken(null);
    setToken(null);
  }, []);
  const access = state.kind === "open" ? ANONYMOUS : state.kind === "token-required" ? token : null;
  return useMemo(() => ({ state, access, signIn, signOut }), [state, access, signIn, signOut]);
}

/** A host without a key accepts any name; one with a key responds 401 without a token. */
async function checkHost(): Promise<AuthState> {
  try {
    await request(ANONYMOUS, "GET", "/v1/stats");
    return { kind: "open" };
  } catch (failure) {
    if (failure instanceof ApiError && failure.status === 401) return { kind: "token-required" };
    return { kind: "unreachable", reason: errorText(failure) };
  }
}
