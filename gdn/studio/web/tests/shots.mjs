// Makes the pictures of the documentation: `node tests/shots.mjs FOLDER`. Runs the browser suite `shots` against the
// fake server as `example-data.mjs` has it.
import { spawn } from 'node:child_process';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { asInTheDocs } from './example-data.mjs';
import { startFake } from './fake.mjs';

const [folder] = process.argv.slice(2);
if (folder === undefined) {
  console.error('say where the pictures go: node tests/shots.mjs FOLDER');
  process.exit(2);
}
const fake = await startFake();
asInTheDocs(fake.daemon);
const env = { ...process.env, STUDIO_URL: fake.ticket(), STUDIO_SHOTS: resolve(folder) };
const suite = fileURLToPath(new URL('browser/shots.mjs', import.meta.url));
const child = spawn(process.execPath, [suite], { env, stdio: ['pipe', 'inherit', 'inherit'] });
child.stdin.end('go\n');
process.exitCode = await new Promise((done) => child.on('close', done));
fake.close();
