import { defineConfig } from 'vite';

export default defineConfig({
  root: import.meta.dirname,
  base: '/graphiql/',
  worker: { format: 'es' },
  build: {
    assetsInlineLimit: 0, // files instead of data: URLs
    chunkSizeWarningLimit: 2048, // Monaco's editor is a single chunk
    modulePreload: { polyfill: false },
    // GraphiQL's libraries contain "use client" directives, which have no effect here.
    rolldownOptions: { checks: { moduleLevelDirective: false } },
  },
});
