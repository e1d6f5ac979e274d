// Builds the console into `dist`, with hashed file names and nothing inline: the host's Content-Security-Policy allows
// scripts and styles only from its own files.
//
// `npm run dev` proxies the API to the host at ROLLCALL_URL, or at http://127.0.0.1:8080.

import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const host = process.env.ROLLCALL_URL ?? "http://127.0.0.1:8080";

export default defineConfig({
  plugins: [react()],
  build: {
    target: "es2022",
    cssTarget: ["chrome123", "firefox121", "safari17.5"],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: { proxy: { "/v1": { target: host, ws: true } } },
});
