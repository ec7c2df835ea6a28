// Runs the browser suites against the fake server: `node tests/browser.mjs [SUITE…]`.
import { spawn } from 'node:child_process';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { laterApproval, largeProposal, manyItems, message } from './fake-data.mjs';
import { startFake } from './fake.mjs';
import { startProxy } from './proxy.mjs';

/** How many pieces a reply comes in. */
const PIECES = 400;

const here = dirname(fileURLToPath(import.meta.url));

/** So long is a killed daemon down: longer than a page needs to notice it. */
const DOWN_MS = 600;

/** Kills the daemon, and starts it again after what happened in the meantime. */
async function restart(daemon, meanwhile = () => {}) {
  daemon.kill();
  meanwhile();
  await new Promise((resolve) => setTimeout(resolve, DOWN_MS));
  daemon.restart();
}

/** What the driver does when a suite says that it is ready. */
const DRIVERS = {
  approve: async () => 'go',
  kill: async (fake, round) => {
    const { daemon } = fake;
    if (round === 3) return 'end';
    await restart(daemon, () => daemon.append('main', message(`k${round}:u`, 'user', `after kill ${round}`, 5000 + round)));
    if (round === 1) for (let n = 0; n < 120; n += 1) daemon.append('main', message(`x${n}`, 'assistant', `many ${n}`, 6000 + n));
    if (round === 2) daemon.histories.get('main').splice(2, 1);
    return JSON.stringify({ messages: daemon.histories.get('main'), pending: [] });
  },
  live: async ({ daemon }, round, said) => {
    const place = { turnId: 'l', stepId: 'l.1' };
    const happens = (type) => daemon.tellTurn('turn.progress', { event: { type, ...place, instanceKey: 'main' } });
    if (round === 1) {
      daemon.append('main', message('l:a', 'assistant', said));
      happens('step.completed');
      return 'go';
    }
    let text = '';
    happens('step.started');
    for (let n = 0; n < PIECES; n += 1) {
      const piece = `word ${n} @${Date.now()}; `;
      text += piece;
      daemon.tellTurn('turn.piece', { place, piece: { type: 'text', text: piece } });
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    return JSON.stringify({ pieces: PIECES, messages: 1 });
  },
  task: async ({ daemon }, round) => {
    if (round === 0) {
      daemon.tellTask([{ type: 'text', text: 'The rest.' }]);
      return 'go';
    }
    await restart(daemon);
    return 'go';
  },
  inbox: async ({ daemon }) => {
    daemon.approvals.push(laterApproval());
    daemon.tell({ type: 'approval.asked', instanceKey: 'main', approvalId: 'a-33333333', toolName: 'shell__run' });
    return 'go';
  },
  schedules: async ({ daemon }, round) => {
    if (round === 2) daemon.call('schedule.remove', { scheduleId: 's-0000000000000002' });
    return 's-0000000000000001 s-0000000000000002';
  },
  search: async (fake) => {
    await new Promise((resolve) => setTimeout(resolve, 300));
    return String(fake.daemon.searches);
  },
  tabs: async (fake) => {
    fake.daemon.tell({ type: 'event.parked', instanceKey: 'main', eventId: 'e9', reason: 'test' });
    return 'go';
  },
};

async function run(name, behind, port) {
  const fake = await startFake({ write: name !== 'readonly', ...(behind === undefined ? {} : { behind, port }) });
  if (name === 'decisions') fake.daemon.addDecisions();
  if (name === 'inbox' || name === 'search') fake.daemon.addWorkspace();
  if (name === 'long' || name === 'interactive' || name === 'search' || name === 'traces') fake.daemon.addLongConversation(2500);
  if (name === 'large' || name === 'interactive') {
    fake.daemon.proposals.push(largeProposal());
    fake.daemon.taskItems = manyItems();
  }
  const extra = '#/conversation/main #/tasks/fix-the-login #/tasks/broken #/tasks/fix #/proposals/fix%2Fcoder #/proposals/r1%2Fcoder #/conversation/no-such-one';
  const env = { ...process.env, STUDIO_URL: fake.ticket(), STUDIO_EXTRA: extra, STUDIO_TASK: 'fix-the-login' };
  const child = spawn(process.execPath, [join(here, 'browser', `${name}.mjs`)], { env, stdio: ['pipe', 'pipe', 'inherit'] });
  let round = 0;
  createInterface({ input: child.stdout }).on('line', async (line) => {
    console.log(`  ${line.slice(0, 200)}`);
    if (!line.startsWith('ready ')) return;
    const answer = await (DRIVERS[name] ?? (async () => 'go'))(fake, round, line.replace(/^ready \S+ ?/, ''));
    round += 1;
    child.stdin.write(`${answer}\n`);
  });
  const code = await new Promise((resolve) => child.on('close', resolve));
  const streams = fake.daemon.streamsMax;
  fake.close();
  if (name === 'tabs' && streams !== 1) {
    console.error(`the server saw ${streams} streams at once`);
    return false;
  }
  return code === 0;
}

/** Runs suites through nginx with TLS and a base path, configured as the documentation shows. */
async function runBehindProxy() {
  const proxy = await startProxy();
  if (proxy === null) {
    console.log('  left out: there is no nginx or no openssl');
    return true;
  }
  try {
    for (const name of ['approve', 'live']) if (!(await run(name, proxy.address, proxy.studioPort))) return false;
    return true;
  } finally {
    proxy.stop();
  }
}

const asked = process.argv.slice(2);
const names = asked.length > 0 ? asked : ['pages', 'readonly', 'approve', 'needs', 'decisions', 'whole', 'scale', 'hostile', 'kill', 'tabs', 'send', 'schedules', 'live', 'task', 'review', 'inbox', 'search', 'traces', 'large', 'long', 'reads', 'proxy'];
const failed = [];
for (const name of names) {
  console.log(name);
  if (!(await (name === 'proxy' ? runBehindProxy() : run(name)))) failed.push(name);
}
if (failed.length > 0) console.error(`failed: ${failed.join(', ')}`);
process.exitCode = failed.length > 0 ? 1 : 0;
