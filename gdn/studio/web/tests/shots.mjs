// Makes the pictures of the documentation: `node tests/shots.mjs FOLDER`. Runs the browser suite `shots` against the
// fake server as `example-data.mjs` has it. `node tests/shots.mjs FOLDER --check` compares what it makes with the
// pictures in the folder, and fails if a page looks different; its picture is then in `build/gallery`.
import { spawn } from 'node:child_process';
import { cp, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import pixelmatch from 'pixelmatch';
import { PNG } from 'pngjs';
import { asInTheDocs } from './example-data.mjs';
import { startFake } from './fake.mjs';

/** The part of all pixels that may be different: fonts are drawn a little differently elsewhere. */
const PART_MAX = 0.02;
/** How different a pixel has to be, from 0 to 1. */
const THRESHOLD = 0.25;
/** A new, missing or moved word changes the mean color of squares of so many pixels. */
const SQUARE_PX = 24;
/** How different the mean of a square has to be, of 255. Letters that are drawn a little differently do not change it. */
const MEAN_MAX = 10;
/** So many squares may be different. */
const SQUARES_MAX = 3;

const [folder, check] = process.argv.slice(2);
if (folder === undefined || (check !== undefined && check !== '--check')) {
  console.error('say where the pictures are: node tests/shots.mjs FOLDER [--check]');
  process.exit(2);
}

/** Makes the pictures; the exit code of the suite. */
async function make(into) {
  const fake = await startFake();
  asInTheDocs(fake.daemon);
  const env = { ...process.env, STUDIO_URL: fake.ticket(), STUDIO_SHOTS: into };
  const suite = fileURLToPath(new URL('browser/shots.mjs', import.meta.url));
  const child = spawn(process.execPath, [suite], { env, stdio: ['pipe', 'inherit', 'inherit'] });
  child.stdin.end('go\n');
  const code = await new Promise((done) => child.on('close', done));
  fake.close();
  return code;
}

/** The mean colors of the squares of a picture. */
function meansOf({ width, height, data }) {
  const means = [];
  for (let top = 0; top < height; top += SQUARE_PX) {
    for (let left = 0; left < width; left += SQUARE_PX) {
      const sums = [0, 0, 0];
      const [bottom, right] = [Math.min(top + SQUARE_PX, height), Math.min(left + SQUARE_PX, width)];
      for (let y = top; y < bottom; y += 1) {
        for (let x = left; x < right; x += 1) for (const channel of [0, 1, 2]) sums[channel] += data[(y * width + x) * 4 + channel];
      }
      means.push(sums.map((sum) => sum / ((bottom - top) * (right - left))));
    }
  }
  return means;
}

/** How two pictures are different: the part of their pixels, and the number of squares. */
async function difference(one, other) {
  const [a, b] = await Promise.all([one, other].map(async (path) => PNG.sync.read(await readFile(path))));
  if (a.width !== b.width || a.height !== b.height) return { part: 1, squares: Number.POSITIVE_INFINITY };
  const part = pixelmatch(a.data, b.data, null, a.width, a.height, { threshold: THRESHOLD }) / (a.width * a.height);
  const before = meansOf(b);
  const isOther = (mean, at) => mean.some((value, channel) => Math.abs(value - before[at][channel]) > MEAN_MAX);
  return { part, squares: meansOf(a).filter(isOther).length };
}

async function compare() {
  const made = await mkdtemp(join(tmpdir(), 'goondan-shots-'));
  const code = await make(made);
  const kept = fileURLToPath(new URL('../build/gallery', import.meta.url));
  await rm(kept, { recursive: true, force: true });
  let failed = code;
  for (const name of code === 0 ? await readdir(made, { recursive: true }) : []) {
    if (!name.endsWith('.png')) continue;
    const { part, squares } = await difference(join(made, name), join(resolve(folder), name)).catch(() => ({ part: 1, squares: Number.POSITIVE_INFINITY }));
    if (part <= PART_MAX && squares <= SQUARES_MAX) continue;
    console.error(`${name}: ${(part * 100).toFixed(1)} % of the pixels and ${squares} squares are different`);
    await cp(join(made, name), join(kept, name));
    failed = 1;
  }
  await rm(made, { recursive: true });
  if (failed !== 0 && code === 0) console.error(`if that is intended: node tests/shots.mjs ${folder}; the new pictures are in ${kept}`);
  return failed;
}

process.exitCode = check === undefined ? await make(resolve(folder)) : await compare();
