// How the console is built: into `dist`, with hashed names under `assets`, and nothing inline, because the host serves
// it with a Content-Security-Policy that allows scripts and styles only as files of its own.
//
// `npm run dev` serves it with a host's API behind it: the host at ROLLCALL_URL, or at http://127.0.0.1:8080.

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
