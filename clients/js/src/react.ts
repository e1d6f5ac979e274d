// Presence in React: who is here and who types, as values that change.
//
// A component that is mounted, unmounted and mounted again at once, as under StrictMode, changes nothing on the wire.

import { createContext, createElement, useCallback, useContext, useEffect, useMemo, useRef, useState } from "react";
import { useSyncExternalStore, type ReactNode } from "react";

import { connect, type Options, type Presence, type Rollcall } from "./index.js";

/** By then a provider that took the place of another has its token, and the person is not seen to go. */
const LINGER_MS = 500;

const RollcallContext = createContext<Rollcall | undefined>(undefined);

/** Either a connection that somebody else keeps, or how to connect: then it lives as long as the provider. */
export type RollcallProviderProps = { children?: ReactNode } & (
  | { client: Rollcall; options?: undefined }
  | { client?: undefined; options: Options }
);

/** Gives a connection to everything within. `options` are read once: another `key` connects anew. */
export function RollcallProvider({ client, options, children }: RollcallProviderProps): ReactNode {
  // Made but not started: what React renders and throws away has connected to nothing.
  const [own] = useState(() => (options ? connect({ ...options, start: false }) : undefined));
  const closing = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => {
    if (!own) return;
    clearTimeout(closing.current);
    own.start();
    // Whoever is mounted again at once has not been gone, nor whoever takes over.
    return () => void (closing.current = setTimeout(() => void own.close(), LINGER_MS));
  }, [own]);
  return createElement(RollcallContext.Provider, { value: client ?? own }, children);
}

/** The connection. */
export function useRollcall(): Rollcall {
  const rollcall = useContext(RollcallContext);
  if (!rollcall) throw new Error("useRollcall, usePresence and useTyping belong inside a <RollcallProvider>");
  return rollcall;
}

const NOBODY: ReadonlyMap<string, Presence> = new Map();
const NO_TYPISTS: string[] = [];

/** How these stand, as far as is known. The same map until one of them changes. */
export function usePresence(users: readonly string[]): ReadonlyMap<string, Presence> {
  const rollcall = useRollcall();
  // Arrays are compared by what is in them: a new one with the same people is no change.
  const key = JSON.stringify(users);
  const [subscribe, read] = useMemo(() => {
    const wanted = JSON.parse(key) as string[];
    let known = NOBODY;
    const isSame = (user: string) => rollcall.get(user) === known.get(user);
    const found = () => wanted.flatMap((user): [string, Presence][] => {
      const presence = rollcall.get(user);
      return presence ? [[user, presence]] : [];
    });
    return [
      (changed: () => void) => (wanted.length > 0 ? rollcall.watch(wanted, changed) : () => {}),
      () => (wanted.every(isSame) ? known : (known = new Map(found()))),
    ];
  }, [rollcall, key]);
  return useSyncExternalStore(subscribe, read, () => NOBODY);
}

/** Who else types in a conversation, and what to call on every keystroke and when the message is sent. */
export function useTyping(conversation: string): { typists: string[]; type: () => void; stop: () => void } {
  const rollcall = useRollcall();
  const subscribe = useCallback(
    (changed: () => void) => rollcall.watchTyping(conversation, changed),
    [rollcall, conversation],
  );
  const read = () => rollcall.typists(conversation);
  const typists = useSyncExternalStore(subscribe, read, () => NO_TYPISTS);
  const type = useCallback(() => rollcall.typing(conversation), [rollcall, conversation]);
  const stop = useCallback(() => rollcall.stopTyping(conversation), [rollcall, conversation]);
  return useMemo(() => ({ typists, type, stop }), [typists, type, stop]);
}
