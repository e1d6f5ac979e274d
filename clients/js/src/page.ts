// What a page tells of its person: that they are active, that it is shown or hidden, that it is left and come back to,
// and that the network is there again. Outside a page there is nothing to hear.

/** What happens on a page. */
export interface PageEars {
  /** The person used a pointer, a key, their finger or a wheel. Often. */
  active(): void;
  /** The page was shown or hidden. */
  visibility(isHidden: boolean): void;
  /** The page is left. The browser may keep it, for the button that goes back. */
  left(): unknown;
  /** The page was kept and is back. */
  back(): unknown;
  /** The network is back. */
  network(): void;
}

/** A finger is a pointer too. That a page scrolls is no sign: programs do that. */
const SIGNS = ["pointerdown", "pointermove", "keydown", "wheel"];

/** Whether the page is hidden; false where there is none. */
export function isHidden(): boolean {
  return globalThis.document?.visibilityState === "hidden";
}

/** Listens. Answers its own end. */
export function listen(ears: PageEars): () => void {
  if (!globalThis.document) return () => {};
  const ending = new AbortController();
  const on = (target: EventTarget, name: string, then: (event: Event) => void) =>
    target.addEventListener(name, then, { signal: ending.signal, capture: true });
  // What nobody sees, nobody uses.
  for (const sign of SIGNS) on(window, sign, () => isHidden() || ears.active());
  on(document, "visibilitychange", () => ears.visibility(isHidden()));
  on(window, "pagehide", () => ears.left());
  on(window, "pageshow", (event) => (event as PageTransitionEvent).persisted && ears.back());
  on(window, "online", () => ears.network());
  return () => ending.abort();
}

/** A name that hardly anybody else has, and nobody else of the same person. */
export function randomName(): string {
  return Math.random().toString(36).slice(2);
}

/** A name by which this device is known again: by the whole browser if its tabs share a connection, and by this tab
 * otherwise, so that one that leaves does not take another with it. */
export function deviceName(isShared: boolean): string {
  const fresh = randomName();
  try {
    const store = isShared ? localStorage : sessionStorage;
    const kept = store.getItem("rollcall:device") ?? fresh;
    store.setItem("rollcall:device", kept);
    return kept;
  } catch {
    return fresh;
  }
}

/** Whether the tabs of this browser can find each other. To ask for what there is not, or is denied, throws. */
export function canShare(): boolean {
  try {
    return !!(document && BroadcastChannel && navigator.locks && localStorage) && origin !== "null";
  } catch {
    return false;
  }
}
