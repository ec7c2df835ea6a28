// Runs the same work on goondan and others, side by side; docs/comparison.md describes it. Started by `run`.
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

import { call, connections } from "./http.mjs";
import { diskOf, killAll, memoryOf, sleep, until } from "./processes.mjs";
import { runningPostgres } from "./postgres.mjs";
import * as systems from "./systems.mjs";

const number = (name, usual) => Number(process.env[`GOONDAN_COMPARE_${name}`] ?? usual);
const SECONDS = number("SECONDS", 10);
const IDLE = number("IDLE", 1000);
const KILL_SECONDS = number("KILL_SECONDS", 60);
// Slow systems get fewer idle conversations.
const FILL_SECONDS = 120;
const SENDERS = 4;
const CONVERSATIONS = 20;
const CONNECTIONS = [1, 20, 60];
const SETTLED_S = 60;

const [packages, programs, ...wanted] = process.argv.slice(2);
const names = wanted.length > 0 ? wanted : ["goondan", "restate", "dbos", "openclaw"];
const work = fs.mkdtempSync(path.join(process.env.GOONDAN_COMPARE_DIR ?? os.tmpdir(), "goondan-comparison-"));
const note = (text) => process.stderr.write(`${text}\n`);

async function startModel() {
  const child = spawn(process.execPath, [path.join(import.meta.dirname, "model.mjs")], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  process.on("exit", () => child.kill());
  const [port] = await new Promise((resolve) => child.stdout.once("data", (data) => resolve(String(data).split("\n"))));
  return `http://127.0.0.1:${port}`;
}

let inputs = 0;
const nextId = () => `input-${(inputs += 1)}-${process.pid}`;

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
      const request = system.turn(`busy-${(next += 1) % CONVERSATIONS}`, id, id);
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

/** Memory for idle conversations with one turn each, and the disk space of a turn. */
async function idle(system) {
  const agent = connections(8);
  const before = diskOf(system.data);
  const turns = Array.from({ length: IDLE }, (_, at) => `idle-${at}`);
  const end = performance.now() + FILL_SECONDS * 1000;
  const client = async () => {
    while (turns.length > 0 && performance.now() < end) {
      const id = nextId();
      await answered(system.turn(turns.pop(), id, id), agent);
    }
  };
  await Promise.all(Array.from({ length: 8 }, client));
  agent.destroy();
  await sleep(3000);
  const conversations = IDLE - turns.length;
  const diskPerTurn = (diskOf(system.data) - before) / conversations;
  return { conversations, memory: memoryOf([...system.roots, ...system.kept]), diskPerTurn };
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

/** Inputs that are acknowledged while all processes are killed each second, and their fate. */
async function kills(system) {
  const acknowledged = new Map();
  const end = Date.now() + KILL_SECONDS * 1000;
  const sender = async (_, at) => {
    const key = `killed-${at}`;
    acknowledged.set(key, []);
    while (Date.now() < end) {
      const id = nextId();
      // As a careful client: the same input again, until it is acknowledged.
      for (;;) {
        const answer = await call(system.accept(key, id, id)).catch(() => undefined);
        if (answer && answer.status < 300) break;
        if (Date.now() > end + SETTLED_S * 1000) throw new Error(`no answer: ${answer?.status} ${answer?.body}`);
        await sleep(20);
      }
      acknowledged.get(key).push(id);
      await sleep(5);
    }
  };
  let killed = 0;
  const killer = async () => {
    while (Date.now() < end) {
      await sleep(1000);
      await killAll(system.roots);
      killed += 1;
      await system.start();
    }
  };
  await Promise.all([...Array.from({ length: SENDERS }, sender), killer()]);
  const fate = async () => {
    let [lost, doubled, total] = [0, 0, 0];
    for (const [key, ids] of acknowledged) {
      const said = new Map();
      for (const text of await system.history(key)) {
        const id = /input-\d+-\d+/.exec(text)?.[0];
        if (id) said.set(id, (said.get(id) ?? 0) + 1);
      }
      total += ids.length;
      lost += ids.filter((id) => !said.has(id)).length;
      doubled += ids.filter((id) => said.get(id) > 1).length;
    }
    return { acknowledged: total, lost, doubled, killed };
  };
  // Until nothing is missing, or nothing has changed for a while.
  let [last, since] = [await fate(), Date.now()];
  while (last.lost > 0 && Date.now() - since < SETTLED_S * 1000) {
    await sleep(1000);
    const now = await fate();
    if (now.lost !== last.lost) since = Date.now();
    last = now;
  }
  return last;
}

async function measured(name, model) {
  const dir = path.join(work, name);
  const postgres = () => runningPostgres(path.join(work, "postgres"));
  const system = await systems[name]({ dir, model, packages, programs, postgres });
  const result = { version: system.version() };
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
  return result;
}

function table(results) {
  const of = (show) => Object.values(results).map(show).join(" | ");
  const lines = [
    `| Measurement | ${Object.keys(results).join(" | ")} |`,
    `| --- |${" --- |".repeat(names.length)}`,
    ...CONNECTIONS.map((count) => `| Turns a second, ${count} connections | ${of((it) => it.rates[count].perSecond.toFixed(0))} |`),
    ...CONNECTIONS.map(
      (count) =>
        `| A turn, p50 / p99 in ms, ${count} connections | ${of((it) => `${it.rates[count].p50.toFixed(2)} / ${it.rates[count].p99.toFixed(2)}`)} |`,
    ),
    `| Memory in MB (idle conversations) | ${of((it) => `${(it.memory / 1e6).toFixed(0)} (${it.conversations})`)} |`,
    `| Disk space of a turn, kB | ${of((it) => (it.diskPerTurn / 1e3).toFixed(1))} |`,
    `| Kill to the next answered turn, s | ${of((it) => (it.restart / 1e3).toFixed(2))} |`,
    `| Inputs acknowledged in ${KILL_SECONDS} s of kills (kills) | ${of((it) => `${it.kills.acknowledged} (${it.kills.killed})`)} |`,
    `| … lost / doubled | ${of((it) => `${it.kills.lost} / ${it.kills.doubled}`)} |`,
  ];
  return lines.join("\n");
}

const results = {};
const model = await startModel();
try {
  for (const name of names) results[name] = await measured(name, model);
} finally {
  if (process.env.GOONDAN_COMPARE_KEEP) note(`kept: ${work}`);
}
note(`${os.cpus().length} × ${os.cpus()[0].model}, Linux ${os.release()}, Node ${process.version}`);
console.log(process.env.GOONDAN_COMPARE_JSON ? JSON.stringify(results, null, 2) : table(results));
if (!process.env.GOONDAN_COMPARE_KEEP) execFileSync("rm", ["-rf", work]);
process.exit(0);
