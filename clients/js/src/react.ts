// React hooks for presence and typing.
//
// A component that is mounted, unmounted and mounted again at once, as under StrictMode, causes no traffic.

import { createContext, createElement, useCallback, useContext, useEffect, useMemo, useRef, useState } from "react";
import { useSyncExternalStore, type ReactNode } from "react";

import { connect, type Options, type Presence, type Rollcall } from "./index.js";

/** Delay before an unmounted provider closes: long enough for a provider that replaces it to connect, so that the user
 * does not go offline in between. */
const CLOSE_DELAY_MS = 500;

const RollcallContext = createContext<Rollcall | undefined>(undefined);

/** Either a client that the program manages, or the options of one that lives as long as the provider. */
export type RollcallProviderProps = { children?: ReactNode } & (
  | { client: Rollcall; options?: undefined }
  | { client?: undefined; options: Options }
);

/** Provides a client to the hooks inside it. `options` are read once; change the `key` to connect anew. */
export function RollcallProvider({ client, options, children }: RollcallProviderProps): ReactNode {
  // Not started yet: React may render a component and discard it.
  const [own] = useState(() => (options ? connect({ ...options, start: false }) : undefined));
  const closing = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => {
    if (!own) return;
    clearTimeout(closing.current);
    own.start();
    // Mounting again within the delay cancels the close.
    return () => void (closing.current = setTimeout(() => void own.close(), CLOSE_DELAY_MS));
  }, [own]);
  return createElement(RollcallContext.Provider, { value: client ?? own }, children);
}

/** The client of the nearest provider. */
export function useRollcall(): Rollcall {
  const rollcall = useContext(RollcallContext);
  if (!rollcall) throw new Error("useRollcall, usePresence and useTyping must be used inside a <RollcallProvider>");
  return rollcall;
}

const NO_PRESENCES: ReadonlyMap<string, Presence> = new Map();
const NO_TYPISTS: string[] = [];

/** The known presences of these users. The same map until one of them changes. */
export function usePresence(users: readonly string[]): ReadonlyMap<string, Presence> {
  const rollcall = useRollcall();
  // Arrays are compared by content: a new array with the same users changes nothing.
  const key = JSON.stringify(users);
  const [subscribe, read] = useMemo(() => {
    const wanted = JSON.parse(key) as string[];
    let known = NO_PRESENCES;
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
  return useSyncExternalStore(subscribe, read, () => NO_PRESENCES);
}

/** The other users who type in a conversation. Call `type` on every keystroke, and `stop` when the message is sent. */
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
