// Builds the package: `index.js`, which is one file and imports nothing, and `react.js`, which imports React and the
// first. The declarations are made by tsc.

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
    const options = { minify: true, target: "es2022", format: "esm", treeShaking: true } as const;
    const mangleProps = new RegExp(`^(${INTERNAL.join("|")})$`);
    for (const part of Object.values(bundle)) {
      if (part.type !== "chunk") continue;
      const { code } = await transformWithEsbuild(part.code, part.fileName, { ...options, mangleProps });
      // Once more: the second time, names are given by how often they occur in what is left.
      part.code = (await transformWithEsbuild(code, part.fileName, options)).code;
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
