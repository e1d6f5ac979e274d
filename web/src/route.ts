// The page's URL: which view, as which user, and which users the demo shows.
//
// The view is in the fragment, so that the host serves one page. Name and users are in the query, so that a copied,
// bookmarked or reloaded window is the same.

import { useSyncExternalStore } from "react";

export type View = "demo" | "monitor";

/** The users of a demo whose URL names none. */
export const DEFAULT_USERS: readonly string[] = ["alice", "bob", "carol", "dave"];

/** The content of a URL. */
export interface Route {
  view: View;
  name: string | null;
  users: readonly string[];
}

/** Parses a URL. Invalid parts are ignored. */
export function read(address: URL): Route {
  const view = address.hash === "#/monitor" ? "monitor" : "demo";
  const name = address.searchParams.get("as")?.trim() || null;
  const users = listed(address.search).map((one) => one.trim()).filter(Boolean);
  return { view, name, users: users.length > 0 ? [...new Set(users)] : DEFAULT_USERS };
}

/** Formats a URL, relative to the page. */
export function write({ view, name, users }: Route): string {
  const query: string[] = [];
  if (name !== null) query.push(`as=${encodeURIComponent(name)}`);
  const list = users.map(encodeURIComponent).join();
  if (list !== DEFAULT_USERS.join()) query.push(`with=${list}`);
  return `${query.length > 0 ? `?${query.join("&")}` : ""}#/${view}`;
}

/** The users that a query lists. Split before decoding, so that an escaped comma within a name is not a separator. */
function listed(search: string): string[] {
  const lists = search.slice(1).split("&").filter((pair) => pair.startsWith("with="));
  const names = lists.flatMap((pair) => pair.slice("with=".length).split(","));
  return names.map((one) => new URLSearchParams(`one=${one}`).get("one") ?? "");
}

/** Changes the URL, and so what the page shows. */
export function go(change: Partial<Route>): void {
  history.pushState(null, "", location.pathname + write({ ...read(new URL(location.href)), ...change }));
  dispatchEvent(new PopStateEvent("popstate"));
}

/** The current route. */
export function useRoute(): Route {
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
