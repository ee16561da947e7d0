import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { defineConfig } from 'vite';

const EMBEDDED_FONT = /url\(["']?data:font\/(\w+);[^,]*base64,([^)"']+)["']?\)/g;
const COMPRESSED = /\.(css|js|svg|ttf)$/;
// The server sends smaller files as they are.
const MIN_BYTES = 1024;

/** Move fonts out of the style sheets: a browser loads only those whose characters a page shows. */
function fontFiles() {
  return {
    name: 'font-files',
    generateBundle(_options, bundle) {
      for (const sheet of Object.values(bundle).filter(({ fileName }) => fileName.endsWith('.css'))) {
        sheet.source = String(sheet.source).replace(EMBEDDED_FONT, (_whole, format, content) => {
          const file = this.emitFile({ type: 'asset', name: `font.${format}`, source: Buffer.from(content, 'base64') });
          return `url(/graphiql/${this.getFileName(file)})`;
        });
      }
    },
  };
}

/** Write a file compressed with brotli and one with gzip beside each large file. */
function compressedFiles() {
  return {
    name: 'compressed-files',
    writeBundle({ dir }) {
      for (const name of readdirSync(join(dir, 'assets')).filter((name) => COMPRESSED.test(name))) {
        const path = join(dir, 'assets', name);
        const content = readFileSync(path);
        if (content.length < MIN_BYTES) continue;
        const params = { [constants.BROTLI_PARAM_SIZE_HINT]: content.length }; // the quality is the best by default
        writeFileSync(`${path}.br`, brotliCompressSync(content, { params }));
        writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  root: import.meta.dirname,
  base: '/graphiql/',
  worker: { format: 'es' },
  plugins: [fontFiles(), compressedFiles()],
  build: {
    assetsInlineLimit: 0, // files instead of data: URLs
    chunkSizeWarningLimit: 2048, // Monaco's editor is a single chunk
    modulePreload: { polyfill: false },
    // GraphiQL's libraries contain "use client" directives, which have no effect here.
    rolldownOptions: { checks: { moduleLevelDirective: false } },
  },
});
