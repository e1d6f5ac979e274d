// Light or dark theme: the system's preference, until the user chooses one, which is stored in the browser.
//
// Styles follow `color-scheme` on the root through `light-dark()`. A canvas cannot, so charts use `useTheme`.

import { useSyncExternalStore } from "react";

export type Theme = "light" | "dark";

const STORAGE_KEY = "rollcall.theme";
const PREFERS_DARK = matchMedia("(prefers-color-scheme: dark)");
const CHANGED = "rollcall-theme";

/** Applies the stored choice. */
export function restoreTheme(): void {
  const chosen = localStorage.getItem(STORAGE_KEY);
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}

/** Applies and stores a theme. */
export function chooseTheme(theme: Theme): void {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem(STORAGE_KEY, theme);
  dispatchEvent(new Event(CHANGED));
}

/** The current theme. */
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
