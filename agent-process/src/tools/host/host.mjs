// The host of an agent's JavaScript and TypeScript tool modules, for bun, deno and node.
// It implements the protocol of tool hosts (docs/tools.md) and is passed to the runtime as an argument.
import { AsyncLocalStorage } from "node:async_hooks";
import { Buffer } from "node:buffer";
import { createReadStream, writeSync } from "node:fs";
import { Socket } from "node:net";
import process from "node:process";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { format } from "node:util";

// Calls and answers have their own descriptors, because programs that a module starts inherit standard input and output.
const channel = process.env.GOONDAN_HOST_CHANNEL?.split(" ").map(Number);
delete process.env.GOONDAN_HOST_CHANNEL;
const openInput = () => {
  if (channel === undefined) return process.stdin;
  // Node reads a pipe as a socket without a thread.
  return process.versions.bun === undefined
    ? new Socket({ fd: channel[0], writable: false })
    : createReadStream(null, { fd: channel[0] });
};
const writeToChannel = (text) => {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; ) at += writeSync(channel[1], bytes, at);
};
const write = channel === undefined ? process.stdout.write.bind(process.stdout) : writeToChannel;
const send = (message) => write(JSON.stringify(message) + "\n");
const running = new AsyncLocalStorage();
const signals = new Map();
const modules = new Map();

const log = (level, ...parts) =>
  send({ type: "log", level, message: format(...parts), id: running.getStore() });
// All methods of a `console`, because modules use it as one.
const logger = {
  log: (...parts) => log("info", ...parts),
  trace: (...parts) => log("debug", ...parts),
  debug: (...parts) => log("debug", ...parts),
  info: (...parts) => log("info", ...parts),
  warn: (...parts) => log("warn", ...parts),
  error: (...parts) => log("error", ...parts),
};
// Standard output can carry the protocol, so output of modules is logged instead.
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

// Adds advice to unclear errors.
const hint = (error) =>
  error instanceof SyntaxError && /'export'|import statement/.test(error.message)
    ? "; name the file .mjs or .mts, or write \"type\": \"module\" into package.json"
    : "";

const looksLike = ({ register, default: main }) => {
  if (typeof (register ?? main?.register) === "function") return "; it looks like an extension (`register`)";
  if (typeof main === "function") return "; it looks like a connector (`export default`)";
  return "";
};

const handlersOf = async (module) => {
  const loaded = await load(module);
  const handlers = loaded.handlers ?? loaded.default?.handlers;
  if (handlers === null || typeof handlers !== "object") {
    throw new Error(`the module exports no \`handlers\`${looksLike(loaded)}`);
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

// Loads a module only to check that it loads.
const check = async ({ id, module, exports }) => {
  try {
    const handlers = await handlersOf(module);
    for (const name of exports) handlerOf(handlers, name);
    send({ type: "result", id, output: null });
  } catch (error) {
    send({ type: "error", id, message: brief(error) });
  }
};

// Open questions to other agents.
let lastAsk = 0;
const asks = new Map();
const fault = (code, message) => Object.assign(new Error(message), { code });
const askFor = (id) => async (question) => {
  lastAsk += 1;
  send({ type: "ask", id, ask: lastAsk, question });
  const answer = await new Promise((resolve) => asks.set(lastAsk, resolve));
  if (answer === undefined) throw fault("E_UNAVAILABLE", "other agents cannot be reached from here");
  const { status, code, message, reason, outcome } = answer;
  if (status === "refused") throw fault(code, message);
  if (status === "pending") throw fault("E_AGENT_PENDING", reason);
  if (outcome?.status === "failed") throw fault("E_AGENT_FAILED", `${outcome.code}: ${outcome.message}`);
  return { ...answer, response: outcome?.reply };
};

const run = async ({ id, tool, module, export: name, input, config, context }) => {
  const controller = new AbortController();
  signals.set(id, controller);
  try {
    const handler = handlerOf(await handlersOf(module), name);
    const { signal } = controller;
    const { swarm, ...place } = context;
    const ctx = {
      ...place,
      instanceKey: olderKeyOf(place.instanceKey, context),
      workdir: context.workDir,
      message: messageOf(context, `${tool}__${name}`, input),
      runtime: runtimeOf(askFor(id), context),
      input, config, logger, signal,
    };
    const output = await handler(ctx, input);
    send({ type: "result", id, output: output ?? null });
  } catch (error) {
    const message = error instanceof Error ? (error.stack ?? error.message) : format(error);
    log("error", "the handler failed:", message);
    send({ type: "error", id, message: brief(error), ...thrownOf(error) });
  } finally {
    signals.delete(id);
  }
};

process.on("unhandledRejection", (reason) => log("error", "unhandled rejection:", reason));

createInterface({ input: openInput(), crlfDelay: Infinity })
  .on("line", (line) => {
    const message = JSON.parse(line);
    if (message.type === "call") running.run(message.id, run, message);
    else if (message.type === "load") running.run(message.id, check, message);
    else if (message.type === "answer") {
      asks.get(message.ask)?.(message.answer);
      asks.delete(message.ask);
    } else if (message.type === "cancel") signals.get(message.id)?.abort(new Error(message.reason));
  })
  .on("close", () => process.exit(0));
