#!/usr/bin/env node
// Starts the program of this platform, which is in an optional dependency of this package.
"use strict";

const { spawn } = require("node:child_process");
const path = require("node:path");

const name = `@goondan/gdn-${process.platform}-${process.arch}`;

let directory;
try {
  directory = path.dirname(require.resolve(`${name}/package.json`));
} catch {
  console.error(`error: the package ${name} is not installed`);
  console.error(
    "hint: install again without `--omit=optional`; if the package does not exist, goondan has no programs for this " +
      "platform: https://github.com/goondan/goondan",
  );
  process.exit(1);
}

const program = path.join(directory, "bin", "gdn");
const words = process.argv.slice(2);
if (typeof process.execve === "function") {
  // The program replaces this process.
  process.execve(program, ["gdn", ...words], process.env);
}
const child = spawn(program, words, { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`error: cannot run ${program}: ${error.message}`);
  process.exit(1);
});
// A terminal sends its signals to both processes; others only reach this one.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) {
  process.on(signal, () => {
    if (!process.stdin.isTTY) child.kill(signal);
  });
}
child.on("exit", (code, signal) => {
  if (signal !== null) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  } else {
    process.exit(code);
  }
});
