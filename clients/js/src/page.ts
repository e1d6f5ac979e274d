// Events of the page: user activity, visibility, unloading and restoring, and the network coming back. Outside a page
// there are none.

/** Handlers of page events. */
export interface PageHandlers {
  /** The user moved a pointer, pressed a key or turned a wheel. Called often. */
  active(): void;
  visibilityChanged(isHidden: boolean): void;
  /** The page was left. The browser may keep it in the back/forward cache. */
  unloaded(): unknown;
  /** The page was restored from the back/forward cache. */
  restored(): unknown;
  networkUp(): void;
}

/** Touch raises pointer events too. Scrolling does not count: scripts scroll as well. */
const ACTIVITY_EVENTS = ["pointerdown", "pointermove", "keydown", "wheel"];

/** Whether the page is hidden; false outside a page. */
export function isHidden(): boolean {
  return globalThis.document?.visibilityState === "hidden";
}

/** Listens to page events until the returned function is called. */
export function listenToPage(handlers: PageHandlers): () => void {
  if (!globalThis.document) return () => {};
  const abort = new AbortController();
  const on = (target: EventTarget, name: string, then: (event: Event) => void) =>
    target.addEventListener(name, then, { signal: abort.signal, capture: true });
  // A hidden page is not in use, whatever events it receives.
  for (const name of ACTIVITY_EVENTS) on(window, name, () => isHidden() || handlers.active());
  on(document, "visibilitychange", () => handlers.visibilityChanged(isHidden()));
  on(window, "pagehide", () => handlers.unloaded());
  on(window, "pageshow", (event) => (event as PageTransitionEvent).persisted && handlers.restored());
  on(window, "online", () => handlers.networkUp());
  return () => abort.abort();
}

/** A random id: unique among one user's devices and tabs, for all practical purposes. */
export function randomId(): string {
  return Math.random().toString(36).slice(2);
}

/** The id of this device. Kept per browser if its tabs share a connection; otherwise per tab, so that a tab that leaves
 * does not end the presence of another. */
export function deviceId(isShared: boolean): string {
  const fresh = randomId();
  try {
    const store = isShared ? localStorage : sessionStorage;
    const id = store.getItem("rollcall:device") ?? fresh;
    store.setItem("rollcall:device", id);
    return id;
  } catch {
    return fresh;
  }
}

/** Whether tabs can share a connection. Reading an API that is missing or denied throws. */
export function canShare(): boolean {
  try {
    return !!(document && BroadcastChannel && navigator.locks && localStorage) && origin !== "null";
  } catch {
    return false;
  }
}
