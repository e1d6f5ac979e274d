// Builds the package: `index.js`, one file without imports, and `react.js`, which imports React and `index.js`. tsc
// writes the declarations.

import { minify } from "terser";
import { defineConfig, transformWithEsbuild, type Plugin } from "vite";

import { INTERNAL } from "./internal.js";

/** Makes `react.js` import the built `index.js`. Otherwise Rollup would put shared code into a third file. */
const oneFileEach: Plugin = {
  name: "one-file-each",
  enforce: "pre",
  resolveId: (source, importer) =>
    source === "./index.js" && importer?.endsWith("react.ts") ? { id: source, external: true } : null,
};

/** Minifies. Vite's library mode keeps whitespace in ES modules, but pages import this file directly. */
const small: Plugin = {
  name: "small",
  async generateBundle(_, bundle) {
    const target = { minify: true, target: "es2022", format: "esm" } as const;
    const mangleProps = new RegExp(`^(${INTERNAL.join("|")})$`);
    for (const part of Object.values(bundle)) {
      if (part.type !== "chunk") continue;
      // esbuild shortens internal property names, terser compresses further: together they save 5 %.
      const { code } = await transformWithEsbuild(part.code, part.fileName, { ...target, mangleProps });
      part.code = (await minify(code, { module: true, ecma: 2022 })).code ?? code;
    }
  },
};

export default defineConfig({
  plugins: [oneFileEach, small],
  build: {
    target: "es2022",
    minify: false,
    lib: { entry: { index: "src/index.ts", react: "src/react.ts" }, formats: ["es"] },
    reportCompressedSize: false,
    rollupOptions: { external: ["react"] },
  },
});
