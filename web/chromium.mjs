// Path of Chromium for the tests and the screenshot: CHROMIUM, or `chromium` on the PATH.

import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";

/**
 * @returns {string}
 */
export function chromiumPath() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  const folders = (process.env.PATH ?? "").split(delimiter);
  const found = folders.map((folder) => join(folder, "chromium")).find((path) => existsSync(path));
  if (!found) throw new Error("no chromium on the PATH: install it, or set CHROMIUM to its path");
  return found;
}
