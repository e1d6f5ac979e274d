// Test setup: units alone, and the built console in Chromium on a real host.

import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/**/*.test.ts"],
    // Each file starts a browser and a host; a small machine runs two of these.
    maxWorkers: 2,
    minWorkers: 1,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    reporters: [["default", { summary: false }]],
  },
});
