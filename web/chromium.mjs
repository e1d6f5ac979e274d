// Where Chromium is, for the tests and the screenshot: at CHROMIUM, or on the path.

import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";

/**
 * The file to start.
 * @returns {string}
 */
export function chromiumPath() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  const folders = (process.env.PATH ?? "").split(delimiter);
  const found = folders.map((folder) => join(folder, "chromium")).find((path) => existsSync(path));
  if (!found) throw new Error("there is no chromium on the path: install it, or name it in CHROMIUM");
  return found;
}
