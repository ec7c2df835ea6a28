// Runs a connector that is a module with `export default async function (ctx)`, for bun, deno and node.
// It implements the protocol of programs (docs/connectors/program.md). `modulePath` is prepended to this text.
import { randomUUID } from "node:crypto";
import process from "node:process";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { format } from "node:util";

const write = process.stdout.write.bind(process.stdout);
const send = (message) => write(JSON.stringify(message) + "\n");
const log = (level, ...parts) =>
  process.stderr.write(JSON.stringify({ level, message: format(...parts) }) + "\n");
const logger = {
  log: (...parts) => log("info", ...parts),
  trace: (...parts) => log("debug", ...parts),
  debug: (...parts) => log("debug", ...parts),
  info: (...parts) => log("info", ...parts),
  warn: (...parts) => log("warn", ...parts),
  error: (...parts) => log("error", ...parts),
};
// Standard output carries the protocol, so output of modules is logged instead.
Object.assign(console, logger);
process.stdout.write = (text) => {
  const lines = String(text).replace(/\n$/, "");
  if (lines !== "") log("info", lines);
  return true;
};

// Pause before a temporarily refused event is submitted again, in milliseconds.
const RETRY_MS = 1_000;

const waiting = new Map();
let isStopping = false;

const inputOf = (message) => {
  if (typeof message === "string") return message;
  if (message?.type === "text") return String(message.text ?? "");
  if (message?.type === "image") return `[image: ${message.url}]`;
  if (message?.type === "file") return `[file ${message.name ?? ""}: ${message.url}]`;
  throw new TypeError("`message` of an event is {type: text, text}, {type: image, url} or {type: file, url, name}");
};

const handIn = (event) =>
  new Promise((resolve) => {
    waiting.set(event.id, resolve);
    send(event);
  });

const emit = async ({ id, name, message, properties = {}, instanceKey } = {}) => {
  if (typeof name !== "string" || name === "") throw new TypeError("an event has a `name`");
  const texts = Object.entries(properties)
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([key, value]) => [key, typeof value === "object" ? JSON.stringify(value) : value]);
  const event = {
    type: "event",
    id: String(id ?? randomUUID()),
    name,
    input: inputOf(message),
    properties: Object.fromEntries(texts),
    metadata: { message },
  };
  if (instanceKey !== undefined) event.instanceKey = String(instanceKey);
  for (;;) {
    const answer = await handIn(event);
    if (answer.type === "accepted") return;
    if (!answer.retry || isStopping) {
      throw Object.assign(new Error(answer.message), { code: answer.code });
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
};

const fail = (text) => {
  process.stderr.write(`${text}\n`);
  process.exit(1);
};

const looksLike = ({ handlers, register }) => {
  if (handlers !== undefined) return "; it looks like a tool (`handlers`)";
  if (typeof register === "function") return "; it looks like an extension (`register`)";
  return "";
};

const texts = (values) =>
  Object.fromEntries(
    Object.entries(values ?? {}).map(([name, value]) =>
      [name, typeof value === "string" ? value : JSON.stringify(value)]),
  );

const start = async ({ config, secrets }) => {
  let main;
  try {
    const loaded = await import(pathToFileURL(modulePath).href);
    main = loaded.default;
    if (typeof main !== "function") {
      fail(`the module has no \`export default async function (ctx)\`${looksLike(loaded)}`);
    }
    await main({ emit, config: texts(config), secrets: texts(secrets), logger });
  } catch (error) {
    if (isStopping) process.exit(0);
    fail(error instanceof Error ? (error.stack ?? error.message) : format(error));
  }
  if (isStopping) process.exit(0);
  // Servers and timers of the module keep the process alive.
  process.stdin.unref?.();
  process.once("beforeExit", () => {
    fail("the connector returned and left nothing running; it must run until it is stopped");
  });
};

const stop = () => {
  isStopping = true;
  // Modules expect the signal.
  if (process.listenerCount("SIGTERM") > 0) process.emit("SIGTERM", "SIGTERM");
  else process.exit(0);
};

createInterface({ input: process.stdin, crlfDelay: Infinity })
  .on("line", (line) => {
    const message = JSON.parse(line);
    if (message.type === "start") void start(message);
    else if (message.type === "shutdown") stop();
    else if (waiting.has(message.id)) {
      waiting.get(message.id)(message);
      waiting.delete(message.id);
    }
  })
  .on("close", () => process.exit(0));
