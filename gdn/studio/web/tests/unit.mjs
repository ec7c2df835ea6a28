// Runs the unit tests: each is bundled with what it tests, then run by Node.
import { build } from 'esbuild';
import { spawnSync } from 'node:child_process';
import { readdir, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, '../build/unit');
await rm(out, { recursive: true, force: true });
const names = (await readdir(join(here, 'unit'))).filter((name) => name.endsWith('.test.mjs'));
await build({
  entryPoints: names.map((name) => join(here, 'unit', name)),
  outdir: out,
  outExtension: { '.js': '.mjs' },
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node20',
  logLevel: 'warning',
});
const tests = names.map((name) => join(out, name));
process.exitCode = spawnSync(process.execPath, ['--test', '--test-timeout=30000', ...tests], { stdio: 'inherit' }).status ?? 1;
