// What the address says: which view, as whom, and who else is in the room.
//
// The view is after the `#`, so that the host serves one page; the name and the people are in the query, so that a
// window that is copied, kept or reloaded is the same again.

import { useSyncExternalStore } from "react";

/** The two views. */
export type View = "try" | "run";

/** Who is in the room of a window that does not say. */
export const REGULARS: readonly string[] = ["alice", "bob", "carol", "dave"];

/** What an address says. */
export interface Address {
  view: View;
  name: string | null;
  people: readonly string[];
}

/** Reads an address. What makes no sense is passed over. */
export function read(address: URL): Address {
  const view = address.hash === "#/run" ? "run" : "try";
  const name = address.searchParams.get("as")?.trim() || null;
  const people = listed(address.search).map((one) => one.trim()).filter(Boolean);
  return { view, name, people: people.length > 0 ? [...new Set(people)] : REGULARS };
}

/** Writes an address, relative to the page. */
export function write({ view, name, people }: Address): string {
  const query: string[] = [];
  if (name !== null) query.push(`as=${encodeURIComponent(name)}`);
  const list = people.map(encodeURIComponent).join();
  if (list !== REGULARS.join()) query.push(`with=${list}`);
  return `${query.length > 0 ? `?${query.join("&")}` : ""}#/${view}`;
}

/** The people that a query lists. It is split first and unescaped then, so that a comma within a name is no separator. */
function listed(search: string): string[] {
  const lists = search.slice(1).split("&").filter((pair) => pair.startsWith("with="));
  const names = lists.flatMap((pair) => pair.slice("with=".length).split(","));
  return names.map((one) => new URLSearchParams(`one=${one}`).get("one") ?? "");
}

/** Changes what the address says, and thereby what the page shows. */
export function go(change: Partial<Address>): void {
  history.pushState(null, "", location.pathname + write({ ...read(new URL(location.href)), ...change }));
  dispatchEvent(new PopStateEvent("popstate"));
}

/** What the address says now. */
export function useAddress(): Address {
  const href = useSyncExternalStore(follow, () => location.href);
  return read(new URL(href));
}

function follow(changed: () => void): () => void {
  addEventListener("popstate", changed);
  addEventListener("hashchange", changed);
  return () => {
    removeEventListener("popstate", changed);
    removeEventListener("hashchange", changed);
  };
}
