import { transformSync } from "@babel/core";
import { defineConfig } from "vite";

/** Replace the documents of Relay by the modules that its compiler wrote. */
function relay() {
  return {
    name: "relay",
    enforce: "pre",
    transform(code, id) {
      if (!id.endsWith("react-relay/main.jsx")) return null;
      const plugins = [["relay", { eagerEsModules: true }]];
      return transformSync(code, { filename: id, plugins, parserOpts: { plugins: ["jsx"] }, sourceMaps: true, configFile: false });
    },
  };
}

export default defineConfig({
  root: import.meta.dirname,
  plugins: [relay()],
  server: { port: 5173 },
  build: {
    outDir: "dist",
    rolldownOptions: { input: ["react-apollo/index.html", "react-relay/index.html"] },
  },
});
