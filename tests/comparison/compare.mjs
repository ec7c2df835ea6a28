// Runs the same work on goondan and others, side by side; docs/comparison.md describes it. Started by `run`.
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

import { call, connections } from "./http.mjs";
import { diskOf, killAll, memoryOf, sleep, until } from "./processes.mjs";
import { runningPostgres } from "./postgres.mjs";
import * as systems from "./systems.mjs";

const setting = (name, byDefault) => Number(process.env[`GOONDAN_COMPARE_${name}`] ?? byDefault);
const SECONDS = setting("SECONDS", 10);
const IDLE = setting("IDLE", 1000);
const KILL_SECONDS = setting("KILL_SECONDS", 60);
// Slow systems get fewer idle conversations.
const FILL_SECONDS = 120;
const FILL_CONNECTIONS = 8;
const BUSY_CONVERSATIONS = 20;
const CONNECTIONS = [1, 20, 60];
const SENDERS = 4;
const KILL_EVERY_MS = 1000;
// Longest wait for a system that makes no progress.
const SETTLED_S = 60;
// Memory and disk space are steady if they change by less than this part for this long.
const STEADY_CHANGE = 0.01;
const STEADY_MS = 2000;

const [packages, programs, ...wanted] = process.argv.slice(2);
const names = wanted.length > 0 ? wanted : ["goondan", "restate", "dbos", "openclaw"];
const work = fs.mkdtempSync(path.join(process.env.GOONDAN_COMPARE_DIR ?? os.tmpdir(), "goondan-comparison-"));
const note = (text) => process.stderr.write(`${text}\n`);

async function startModel() {
  const child = spawn(process.execPath, [path.join(import.meta.dirname, "model.mjs")], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  process.on("exit", () => child.kill());
  const port = await new Promise((resolve, reject) => {
    child.stdout.once("data", (data) => resolve(String(data).trim()));
    child.once("exit", (code) => reject(new Error(`the model ended with ${code}`)));
  });
  return `http://127.0.0.1:${port}`;
}

let inputs = 0;
const nextId = () => `input-${(inputs += 1)}-${process.pid}`;

/** Sends a turn; throws if the answer is not the model's. */
async function answered(request, agent) {
  const { status, body } = await call(request, agent);
  if (status !== 200 || !body.includes("Done.")) throw new Error(`${request.url}: ${status} ${body.slice(0, 500)}`);
}

/** Turns per second with replies awaited, and quantiles of their times. */
async function rate(system, count) {
  const agent = connections(count);
  const times = [];
  let next = 0;
  const end = performance.now() + SECONDS * 1000;
  const began = performance.now();
  const client = async () => {
    while (performance.now() < end) {
      const id = nextId();
      const request = system.turn(`busy-${(next += 1) % BUSY_CONVERSATIONS}`, id, id);
      const at = performance.now();
      await answered(request, agent);
      times.push(performance.now() - at);
    }
  };
  await Promise.all(Array.from({ length: count }, client));
  const took = (performance.now() - began) / 1000;
  agent.destroy();
  times.sort((a, b) => a - b);
  const quantile = (of) => times[Math.min(times.length - 1, Math.floor(times.length * of))];
  return { perSecond: times.length / took, p50: quantile(0.5), p99: quantile(0.99) };
}

/** Memory and disk space of a system once both are steady. */
async function steady(system) {
  const read = () => ({ memory: memoryOf([...system.roots, ...system.kept]), disk: diskOf(system.data) });
  const isNear = (now, then) => Math.abs(now - then) <= then * STEADY_CHANGE;
  const began = Date.now();
  let [then, since] = [read(), began];
  for (;;) {
    await sleep(500);
    const now = read();
    if (!isNear(now.memory, then.memory) || !isNear(now.disk, then.disk)) [then, since] = [now, Date.now()];
    if (Date.now() - since >= STEADY_MS) return now;
    if (Date.now() - began > SETTLED_S * 1000) {
      note(`memory or disk space still changes after ${SETTLED_S} s`);
      return now;
    }
  }
}

/** Memory for idle conversations with one turn each, and the disk space of a turn. */
async function idle(system) {
  const agent = connections(FILL_CONNECTIONS);
  const before = diskOf(system.data);
  const left = Array.from({ length: IDLE }, (_, at) => `idle-${at}`);
  const end = performance.now() + FILL_SECONDS * 1000;
  const client = async () => {
    while (left.length > 0 && performance.now() < end) {
      const id = nextId();
      await answered(system.turn(left.pop(), id, id), agent);
    }
  };
  await Promise.all(Array.from({ length: FILL_CONNECTIONS }, client));
  agent.destroy();
  const conversations = IDLE - left.length;
  const { memory, disk } = await steady(system);
  return { conversations, memory, diskPerTurn: (disk - before) / conversations };
}

/** Milliseconds from the start after a kill to the next answered turn. */
async function restart(system) {
  await killAll(system.roots);
  const at = performance.now();
  await system.start();
  const id = nextId();
  await until("a turn after the restart", SETTLED_S, async () => {
    await answered(system.turn("restart", id, id));
    return true;
  });
  return performance.now() - at;
}

/** Sends inputs while all processes are killed again and again, and compares them with the histories. */
async function kills(system) {
  const acknowledged = new Map();
  const end = Date.now() + KILL_SECONDS * 1000;
  const sender = async (_, at) => {
    const key = `killed-${at}`;
    acknowledged.set(key, []);
    while (Date.now() < end) {
      const id = nextId();
      await acknowledge(() => system.accept(key, id, id), end + SETTLED_S * 1000);
      acknowledged.get(key).push(id);
      await sleep(5);
    }
  };
  let killed = 0;
  const killer = async () => {
    while (Date.now() < end) {
      await sleep(KILL_EVERY_MS);
      await killAll(system.roots);
      killed += 1;
      await system.start();
    }
  };
  await Promise.all([...Array.from({ length: SENDERS }, sender), killer()]);
  return { killed, ...(await settled(() => compared(system, acknowledged))) };
}

/** Repeats a request until it is acknowledged, as a careful client does. A restart can change the URL. */
async function acknowledge(request, end) {
  for (;;) {
    const answer = await call(request()).catch((error) => ({ error }));
    if (answer.status < 300) return;
    if (Date.now() > end) throw new Error(`not acknowledged: ${answer.error ?? `${answer.status} ${answer.body}`}`);
    await sleep(20);
  }
}

/** Acknowledged inputs that histories lack, and those that they contain more than once. */
async function compared(system, acknowledged) {
  const sum = { acknowledged: 0, lost: 0, doubled: 0 };
  for (const [key, ids] of acknowledged) {
    const times = new Map();
    for (const text of await system.history(key)) {
      const id = /input-\d+-\d+/.exec(text)?.[0];
      if (id) times.set(id, (times.get(id) ?? 0) + 1);
    }
    sum.acknowledged += ids.length;
    sum.lost += ids.filter((id) => !times.has(id)).length;
    sum.doubled += ids.filter((id) => times.get(id) > 1).length;
  }
  return sum;
}

/** Compares until no input is missing, or until the number of missing ones has not changed for a while. */
async function settled(compare) {
  let [last, failure, since] = [undefined, undefined, Date.now()];
  for (;;) {
    try {
      const now = await compare();
      if (now.lost === 0) return now;
      if (now.lost !== last?.lost) since = Date.now();
      [last, failure] = [now, undefined];
    } catch (error) {
      // A system that recovers may refuse a request.
      failure = error;
    }
    if (Date.now() - since > SETTLED_S * 1000) {
      if (failure) throw failure;
      return last;
    }
    await sleep(1000);
  }
}

/** Measures a system into `result`, which has what was measured also if a later measurement fails. */
async function measure(name, model, result) {
  const dir = path.join(work, name);
  const postgres = () => runningPostgres(path.join(work, "postgres"));
  const system = await systems[name]({ dir, model, packages, programs, postgres });
  result.version = system.version();
  note(`${name}: ${result.version}`);
  await system.start();
  const id = nextId();
  await answered(system.turn("first", id, id));
  result.rates = {};
  for (const count of CONNECTIONS) {
    result.rates[count] = await rate(system, count);
    note(`${name}: ${count} connections: ${JSON.stringify(result.rates[count])}`);
  }
  Object.assign(result, await idle(system));
  note(`${name}: ${result.memory} bytes with ${result.conversations} conversations, ${result.diskPerTurn} bytes of disk a turn`);
  result.restart = await restart(system);
  note(`${name}: ${result.restart} ms after a kill`);
  result.kills = await kills(system);
  note(`${name}: ${JSON.stringify(result.kills)}`);
  await killAll([...system.roots, ...system.kept]);
}

function table(results) {
  const row = (label, value, show) => {
    const cells = Object.values(results).map((result) => {
      const it = value(result);
      return it === undefined ? "not measured" : show(it, result);
    });
    return `| ${[label, ...cells].join(" | ")} |`;
  };
  const rates = (label, show) =>
    CONNECTIONS.map((count) => row(`${label}, ${count} ${count === 1 ? "connection" : "connections"}`, (it) => it.rates?.[count], show));
  const kills = (label, show) => row(label, (it) => it.kills, show);
  const lines = [
    `| Measurement | ${Object.keys(results).join(" | ")} |`,
    `| --- |${" --- |".repeat(Object.keys(results).length)}`,
    ...rates("Turns a second", (it) => it.perSecond.toFixed(0)),
    ...rates("A turn, p50 / p99 in ms", (it) => `${it.p50.toFixed(1)} / ${it.p99.toFixed(1)}`),
    row("Memory in MB (idle conversations)", (it) => it.memory, (it, { conversations }) => `${(it / 1e6).toFixed(0)} (${conversations})`),
    row("Disk space of a first turn, kB", (it) => it.diskPerTurn, (it) => (it / 1e3).toFixed(1)),
    row("Kill to the next answered turn, s", (it) => it.restart, (it) => (it / 1e3).toFixed(2)),
    kills(`Inputs acknowledged in ${KILL_SECONDS} s of kills (kills)`, (it) => `${it.acknowledged} (${it.killed})`),
    kills("… lost / doubled", (it) => `${it.lost} / ${it.doubled}`),
  ];
  return lines.join("\n");
}

const results = {};
let failure;
try {
  const model = await startModel();
  for (const name of names) await measure(name, model, (results[name] = {}));
} catch (error) {
  failure = error;
}
note(`${os.cpus().length} × ${os.cpus()[0].model}, Linux ${os.release()}, Node ${process.version}`);
console.log(process.env.GOONDAN_COMPARE_JSON ? JSON.stringify(results, null, 2) : table(results));
if (failure) console.error(failure);
// The logs explain a failure.
if (failure || process.env.GOONDAN_COMPARE_KEEP) note(`kept: ${work}`);
else fs.rmSync(work, { recursive: true });
process.exit(failure ? 1 : 0);
