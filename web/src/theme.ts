// Light or dark: as the system prefers, until somebody chooses, and then as chosen, on this machine.
//
// The styles follow `color-scheme` on the root by `light-dark()`; a canvas cannot, so the charts ask which it is.

import { useSyncExternalStore } from "react";

/** A theme. */
export type Theme = "light" | "dark";

const KEPT_AS = "rollcall.theme";
const PREFERS_DARK = matchMedia("(prefers-color-scheme: dark)");
const CHANGED = "rollcall-theme";

/** Takes up what was chosen before. */
export function restoreTheme(): void {
  const chosen = localStorage.getItem(KEPT_AS);
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}

/** Chooses a theme, for this visit and the next. */
export function chooseTheme(theme: Theme): void {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem(KEPT_AS, theme);
  dispatchEvent(new Event(CHANGED));
}

/** The theme as it is now. */
export function useTheme(): Theme {
  return useSyncExternalStore(follow, current);
}

function current(): Theme {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return PREFERS_DARK.matches ? "dark" : "light";
}

function follow(changed: () => void): () => void {
  PREFERS_DARK.addEventListener("change", changed);
  addEventListener(CHANGED, changed);
  return () => {
    PREFERS_DARK.removeEventListener("change", changed);
    removeEventListener(CHANGED, changed);
  };
}
