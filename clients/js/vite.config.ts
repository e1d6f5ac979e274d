// Builds the package: `index.js`, which is one file and imports nothing, and `react.js`, which imports React and the
// first. The declarations are made by tsc.

import { minify } from "terser";
import { defineConfig, transformWithEsbuild, type Plugin } from "vite";

import { INTERNAL } from "./internal.js";

/**
 * `react.js` imports `index.js` as it is built: a part that both share would be one more file for whoever needs
 * one.
 */
const oneFileEach: Plugin = {
  name: "one-file-each",
  enforce: "pre",
  resolveId: (source, importer) =>
    source === "./index.js" && importer?.endsWith("react.ts") ? { id: source, external: true } : null,
};

/** Library mode leaves white space in ES modules; a page that imports the file as it is has no other build. */
const small: Plugin = {
  name: "small",
  async generateBundle(_, bundle) {
    const target = { minify: true, target: "es2022", format: "esm" } as const;
    const mangleProps = new RegExp(`^(${INTERNAL.join("|")})$`);
    for (const part of Object.values(bundle)) {
      if (part.type !== "chunk") continue;
      // One shortens the names that only this package uses, the other writes less: together they save a twentieth.
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
