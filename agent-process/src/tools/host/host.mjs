// The host of an agent's JavaScript and TypeScript tool modules, for bun, deno and node.
// It speaks the protocol of tool hosts (docs/tools.md) and is given to the runtime as an argument.
import { AsyncLocalStorage } from "node:async_hooks";
import process from "node:process";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { format } from "node:util";

const write = process.stdout.write.bind(process.stdout);
const send = (message) => write(JSON.stringify(message) + "\n");
const running = new AsyncLocalStorage();
const signals = new Map();
const modules = new Map();

const log = (level, ...parts) =>
  send({ type: "log", level, message: format(...parts), id: running.getStore() });
const logger = {
  debug: (...parts) => log("debug", ...parts),
  info: (...parts) => log("info", ...parts),
  warn: (...parts) => log("warn", ...parts),
  error: (...parts) => log("error", ...parts),
};
// Standard output is the protocol's: what a module prints there is logged.
Object.assign(console, logger, { log: logger.info, trace: logger.debug });
process.stdout.write = (text) => {
  const lines = String(text).replace(/\n$/, "");
  if (lines !== "") log("info", lines);
  return true;
};

const load = async (path) => {
  if (!modules.has(path)) modules.set(path, await import(pathToFileURL(path).href));
  return modules.get(path);
};

// Of errors that say little by themselves.
const hint = (error) =>
  error instanceof SyntaxError && /'export'|import statement/.test(error.message)
    ? "; name the file .mjs or .mts, or write \"type\": \"module\" into package.json"
    : "";

const handlersOf = async (module) => {
  const loaded = await load(module);
  const handlers = loaded.handlers ?? loaded.default?.handlers;
  if (handlers === null || typeof handlers !== "object") {
    throw new Error("the module exports no `handlers`");
  }
  return handlers;
};

const handlerOf = (handlers, name) => {
  const handler = Object.hasOwn(handlers, name) ? handlers[name] : undefined;
  if (typeof handler !== "function") {
    const there = Object.keys(handlers).join(", ");
    throw new Error(`\`handlers\` has no function \`${name}\`; it has ${there || "none"}`);
  }
  return handler;
};

const brief = (error) =>
  error instanceof Error ? `${error.name}: ${error.message}${hint(error)}` : format(error);

// A module is only loaded, to see whether it can be.
const check = async ({ id, module, exports }) => {
  try {
    const handlers = await handlersOf(module);
    for (const name of exports) handlerOf(handlers, name);
    send({ type: "result", id, output: null });
  } catch (error) {
    send({ type: "error", id, message: brief(error) });
  }
};

const run = async ({ id, module, export: name, input, config, context }) => {
  const controller = new AbortController();
  signals.set(id, controller);
  try {
    const handler = handlerOf(await handlersOf(module), name);
    const { signal } = controller;
    const output = await handler({ ...context, input, config, logger, signal });
    send({ type: "result", id, output: output ?? null });
  } catch (error) {
    const message = error instanceof Error ? (error.stack ?? error.message) : format(error);
    const code = typeof error?.code === "string" ? error.code : undefined;
    log("error", "the handler failed:", message);
    send({ type: "error", id, code, message: brief(error) });
  } finally {
    signals.delete(id);
  }
};

process.on("unhandledRejection", (reason) => log("error", "nobody caught this rejection:", reason));

createInterface({ input: process.stdin, crlfDelay: Infinity })
  .on("line", (line) => {
    const message = JSON.parse(line);
    if (message.type === "call") running.run(message.id, run, message);
    else if (message.type === "load") running.run(message.id, check, message);
    else if (message.type === "cancel") signals.get(message.id)?.abort(new Error(message.reason));
  })
  .on("close", () => process.exit(0));
