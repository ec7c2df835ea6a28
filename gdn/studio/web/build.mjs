// Builds the pages into `dist/`, with the same bytes from the same sources: `node build.mjs`.
// `node build.mjs --check` builds, and fails if what is committed is different.
import { build } from 'esbuild';
import { mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The most that the whole page may take, in bytes, compressed by gzip. */
const PAGE_GZIP_BYTES_MAX = 60_000;

const here = dirname(fileURLToPath(import.meta.url));
const isCheck = process.argv.includes('--check');

/** What `dist/` is to hold, by path. */
async function files() {
  const result = await build({
    absWorkingDir: here,
    entryPoints: { 'assets/studio': 'src/main.ts', 'assets/style': 'src/style.css' },
    outdir: 'dist',
    bundle: true,
    minify: true,
    format: 'esm',
    target: 'es2022',
    charset: 'utf8',
    legalComments: 'eof',
    conditions: ['production'],
    write: false,
  });
  const out = new Map(result.outputFiles.map((file) => [file.path.slice(join(here, 'dist').length + 1), file.contents]));
  for (const [from, to] of [['src/index.html', 'index.html'], ['src/icon.svg', 'assets/icon.svg']]) {
    out.set(to, await readFile(join(here, from)));
  }
  return out;
}

const made = await files();
let total = 0;
for (const [path, bytes] of made) {
  const size = gzipSync(bytes, { level: 9 }).length;
  total += size;
  console.log(`${path}: ${bytes.length} bytes, ${size} by gzip`);
}
console.log(`in all: ${total} by gzip`);
if (total > PAGE_GZIP_BYTES_MAX) {
  console.error(`the page takes ${total} bytes by gzip, and may take ${PAGE_GZIP_BYTES_MAX}`);
  process.exit(1);
}
if (isCheck) {
  for (const [path, bytes] of made) {
    const old = await readFile(join(here, 'dist', path)).catch(() => null);
    if (old === null || Buffer.compare(old, bytes) !== 0) {
      console.error(`dist/${path} is not what the sources make: run \`npm run build\` and commit it`);
      process.exit(1);
    }
  }
} else {
  await rm(join(here, 'dist'), { recursive: true, force: true });
  await mkdir(join(here, 'dist/assets'), { recursive: true });
  for (const [path, bytes] of made) await writeFile(join(here, 'dist', path), bytes);
  console.log(`written: ${(await readdir(join(here, 'dist/assets'))).join(', ')} and index.html`);
}
