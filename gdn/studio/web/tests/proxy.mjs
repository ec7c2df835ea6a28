// nginx in front of Studio, with TLS and a base path: its `location` is the one of docs/how-to/steer-in-a-browser.md.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const GUIDE = fileURLToPath(new URL('../../../../docs/how-to/steer-in-a-browser.md', import.meta.url));
const NGINX = ['/usr/sbin/nginx', '/usr/bin/nginx'].find((path) => existsSync(path));
const START_MS = 10_000;

/** A port that is free now. */
async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function isListening(port) {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => resolve(socket.destroy() && true));
    socket.on('error', () => resolve(false));
  });
}

/** Starts nginx. Its address, the port on which Studio has to listen, and how to stop it; null if nginx is not there. */
export async function startProxy() {
  const dir = await mkdtemp(join(tmpdir(), 'goondan-proxy-'));
  const key = join(dir, 'key.pem');
  const certificate = join(dir, 'certificate.pem');
  const made = spawnSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost', '-keyout', key, '-out', certificate]);
  if (NGINX === undefined || made.status !== 0) {
    await rm(dir, { recursive: true });
    return null;
  }
  const [port, studioPort] = [await freePort(), await freePort()];
  const [, location] = /```nginx not-run\n([^]*?)```/.exec(await readFile(GUIDE, 'utf8'));
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${join(dir, name)};`).join('\n');
  const configuration = `daemon off; worker_processes 1; pid ${join(dir, 'pid')}; error_log stderr warn;
events {}
http { access_log off; ${temporary}
server { listen 127.0.0.1:${port} ssl; ssl_certificate ${certificate}; ssl_certificate_key ${key};
${location.replace('127.0.0.1:8800', `127.0.0.1:${studioPort}`)} } }
`;
  await writeFile(join(dir, 'nginx.conf'), configuration);
  const child = spawn(NGINX, ['-p', dir, '-c', join(dir, 'nginx.conf')], { stdio: ['ignore', 'ignore', 'inherit'] });
  const stop = () => {
    child.kill();
    void rm(dir, { recursive: true, force: true });
  };
  const endsMs = Date.now() + START_MS;
  while (!(await isListening(port))) {
    if (Date.now() > endsMs || child.exitCode !== null) {
      stop();
      throw new Error('nginx does not listen');
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return { address: `https://localhost:${port}/studio/`, studioPort, stop };
}
