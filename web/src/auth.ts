// How the console gets in: it asks the host once whether it has a key, and again until it answers.

import { useCallback, useEffect, useMemo, useState } from "react";

import { byToken, keepToken, keptToken, NOBODY, type Access } from "./api/credentials";
import { ask, Refusal, words } from "./api/request";

const AGAIN_MS = 2_000;

/** Whether the host has a key, as far as is known. */
export type Door = { kind: "asking" } | { kind: "gone"; why: string } | { kind: "open" } | { kind: "locked" };

/** What the door is, and how to go through. */
export interface Entry {
  door: Door;
  /** Who looks at the figures; null where that takes a token which nobody gave. */
  access: Access | null;
  /** Signs in with a token; false if it is none. */
  signIn: (token: string) => boolean;
  signOut: () => void;
}

/** Finds out, and remembers a token for as long as the tab is open. */
export function useEntry(): Entry {
  const [door, setDoor] = useState<Door>({ kind: "asking" });
  const [token, setToken] = useState<Access | null>(keptToken);

  useEffect(() => {
    let over = false;
    let timer: ReturnType<typeof setTimeout>;
    const turn = async () => {
      const found = await knock();
      if (over) return;
      setDoor(found);
      if (found.kind === "gone") timer = setTimeout(turn, AGAIN_MS);
    };
    void turn();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, []);

  const signIn = useCallback((text: string) => {
    const access = byToken(text);
    if (access?.kind !== "token") return false;
    keepToken(access.token);
    setToken(access);
    return true;
  }, []);
  const signOut = useCallback(() => {
    keepToken(null);
    setToken(null);
  }, []);
  const access = door.kind === "open" ? NOBODY : door.kind === "locked" ? token : null;
  return useMemo(() => ({ door, access, signIn, signOut }), [door, access, signIn, signOut]);
}

/** A host without a key answers whoever gives a name; one with a key asks for a token. */
async function knock(): Promise<Door> {
  try {
    await ask(NOBODY, "GET", "/v1/stats");
    return { kind: "open" };
  } catch (failure) {
    if (failure instanceof Refusal && failure.status === 401) return { kind: "locked" };
    return { kind: "gone", why: words(failure) };
  }
}
