import { defineConfig } from 'vite';

export default defineConfig({
  root: import.meta.dirname,
  base: '/graphiql/',
  worker: { format: 'es' },
  build: {
    assetsInlineLimit: 0, // files instead of data: addresses
    chunkSizeWarningLimit: 2048, // Monaco's editor is one piece
    modulePreload: { polyfill: false },
    // GraphiQL's libraries carry "use client" marks, which mean nothing here.
    rolldownOptions: { checks: { moduleLevelDirective: false } },
  },
});
