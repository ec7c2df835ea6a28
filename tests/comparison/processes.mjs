// Processes of a system: their start, tree, memory, and end.
import { spawn } from "node:child_process";
import fs from "node:fs";
import net from "node:net";

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Starts a program whose output goes to a file, and which ends with the comparison. */
export function start(program, args, { env = {}, log, cwd } = {}) {
  const output = fs.openSync(log, "a");
  const child = spawn(program, args, {
    cwd,
    env: { PATH: process.env.PATH, HOME: process.env.HOME, TZ: "UTC", ...env },
    stdio: ["ignore", output, output],
  });
  fs.closeSync(output);
  child.on("error", (error) => {
    throw error;
  });
  started.add(child.pid);
  child.on("exit", () => started.delete(child.pid));
  return child.pid;
}

const started = new Set();
process.on("exit", () => {
  for (const pid of started) for (const each of treeOf(pid)) end(each);
});
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));

function parents() {
  const parents = new Map();
  for (const name of fs.readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const stat = fs.readFileSync(`/proc/${name}/stat`, "utf8");
      const [, parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      parents.set(Number(name), Number(parent));
    } catch {
      // It has ended meanwhile.
    }
  }
  return parents;
}

/** A process and its descendants. */
export function treeOf(root) {
  const known = parents();
  const tree = known.has(root) ? [root] : [];
  for (const at of tree) for (const [pid, parent] of known) if (parent === at) tree.push(pid);
  return tree;
}

function end(pid) {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended meanwhile.
  }
}

/** Kills processes with all descendants, and waits until none is left. */
export async function killAll(roots) {
  const all = roots.flatMap(treeOf);
  for (const pid of all) end(pid);
  const isLeft = (pid) => {
    try {
      const stat = fs.readFileSync(`/proc/${pid}/stat`, "utf8");
      // The other threads may outlive the first one, and hold locks.
      const isZombie = stat.slice(stat.lastIndexOf(")") + 2)[0] === "Z";
      return !isZombie || fs.readdirSync(`/proc/${pid}/task`).length > 1;
    } catch {
      return false;
    }
  };
  while (all.some(isLeft)) await sleep(2);
}

/** Proportional set size of processes with all descendants, in bytes. */
export function memoryOf(roots) {
  let bytes = 0;
  for (const pid of new Set(roots.flatMap(treeOf))) {
    try {
      const rollup = fs.readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
      bytes += Number(/^Pss:\s+(\d+)/m.exec(rollup)[1]) * 1024;
    } catch {
      // It has ended meanwhile.
    }
  }
  return bytes;
}

/** Disk space of a directory, in bytes. */
export function diskOf(dir) {
  let bytes = 0;
  const seen = new Set();
  const visit = (path) => {
    let stat;
    try {
      stat = fs.lstatSync(path);
    } catch {
      return;
    }
    if (seen.has(stat.ino)) return;
    seen.add(stat.ino);
    bytes += stat.blocks * 512;
    if (stat.isDirectory()) for (const name of fs.readdirSync(path)) visit(`${path}/${name}`);
  };
  visit(dir);
  return bytes;
}

let port = 20_000 + Math.floor(Math.random() * 10_000);

/** A free port, also after a restart: below those that the kernel gives to clients. */
export function freePort() {
  port += 1;
  return new Promise((resolve) => {
    const server = net.createServer();
    server.on("error", () => resolve(freePort()));
    const at = port;
    server.listen(at, "127.0.0.1", () => server.close(() => resolve(at)));
  });
}

/** Repeats a condition until it returns a value. */
export async function until(what, seconds, condition) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await condition().catch(() => undefined);
    if (value) return value;
    if (Date.now() > end) throw new Error(`waited ${seconds} s in vain: ${what}`);
    await sleep(20);
  }
}
