// How the console is tested: the pure parts alone, and the built console in Chromium on a real host.

import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/**/*.test.ts"],
    // A browser and a host per file are what a small machine carries.
    maxWorkers: 2,
    minWorkers: 1,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    reporters: [["default", { summary: false }]],
  },
});
