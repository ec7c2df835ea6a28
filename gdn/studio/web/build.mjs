// Builds the pages into `dist/`, with the same bytes from the same sources: `node build.mjs`.
// `node build.mjs --check` builds, and fails if what is committed is different.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The most that the whole page may take, in bytes, compressed by gzip. */
const PAGE_GZIP_BYTES_MAX = 200_000;
/** The most that the first file of the page may take: what is loaded before anything is shown. */
const FIRST_GZIP_BYTES_MAX = 75_000;

const here = dirname(fileURLToPath(import.meta.url));
const isCheck = process.argv.includes('--check');

/** Where the style sheet stands in the page: the page is painted without waiting for another file. */
const STYLE_PLACE = '/* style.css */';
/** The digest by which the Content Security Policy allows that style sheet, and no other. */
const STYLE_DIGEST = 'style.sha256';

/** What `dist/` is to hold, by path. */
async function files() {
  const result = await build({
    absWorkingDir: here,
    // The second program is loaded by the first one when the page is shown.
    entryPoints: { 'assets/studio': 'src/main.ts', 'assets/rich': 'src/rich.ts', 'assets/style': 'src/style.css' },
    external: ['./rich.js'],
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
  const style = Buffer.from(out.get('assets/style.css')).toString('utf8').trim();
  out.delete('assets/style.css');
  const page = await readFile(join(here, 'src/index.html'), 'utf8');
  if (!page.includes(STYLE_PLACE) || style.includes('</')) throw new Error('the style sheet has no place in the page');
  out.set('index.html', Buffer.from(page.replace(STYLE_PLACE, () => style)));
  out.set(STYLE_DIGEST, Buffer.from(`sha256-${createHash('sha256').update(style).digest('base64')}`));
  out.set('assets/icon.svg', await readFile(join(here, 'src/icon.svg')));
  return out;
}

const made = await files();
let total = 0;
for (const [path, bytes] of made) {
  if (path === STYLE_DIGEST) continue;
  const size = gzipSync(bytes, { level: 9 }).length;
  total += size;
  if (path === 'assets/studio.js' && size > FIRST_GZIP_BYTES_MAX) {
    console.error(`${path} takes ${size} bytes by gzip, and may take ${FIRST_GZIP_BYTES_MAX}`);
    process.exit(1);
  }
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
