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
// What a `console` has, since modules are told that it is one.
const logger = {
  log: (...parts) => log("info", ...parts),
  trace: (...parts) => log("debug", ...parts),
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

// The way to other agents, as handlers of 0.0.3 know it. `eventId` names what was asked.
let lastAsk = 0;
const asks = new Map();
const ask = (id, question) => {
  lastAsk += 1;
  send({ type: "ask", id, ask: lastAsk, question });
  return new Promise((resolve, reject) => asks.set(lastAsk, { resolve, reject }));
};

const fault = (code, message) => Object.assign(new Error(message), { code });

const asked = (answer) => {
  if (answer === undefined) throw fault("E_UNAVAILABLE", "other agents cannot be reached from here");
  const { status, code, message, reason, outcome } = answer;
  if (status === "refused") throw fault(code, message);
  if (status === "pending") throw fault("E_AGENT_PENDING", reason);
  if (outcome?.status === "failed") throw fault("E_AGENT_FAILED", `${outcome.code}: ${outcome.message}`);
  return answer;
};

const inputOf = (event) =>
  typeof event === "string" ? event : String(event?.input ?? event?.message?.text ?? "");

const runtimeOf = (id, { agentName, instanceKey, toolCallId, swarm }) => {
  const errand = (op, target, event, rest) => ({
    op,
    agent: String(target).replace(/^Agent\//, ""),
    input: inputOf(event),
    instanceKey: event?.instanceKey,
    ...rest,
  });
  const known = async () => asked(await ask(id, { op: "catalog" })).agents;
  return {
    async request(target, event, { timeoutMs = 60_000, async: isAsync = false } = {}) {
      const question = errand("request", target, event, { wait: !isAsync, timeoutMs });
      const { eventId, outcome } = asked(await ask(id, question));
      const response = outcome?.reply;
      return { eventId, target, response, correlationId: eventId, accepted: true, async: isAsync };
    },
    async send(target, event) {
      const { eventId } = asked(await ask(id, errand("send", target, event)));
      return { eventId, target, accepted: true };
    },
    async spawn(target, { instanceKey: key, cwd } = {}) {
      const agents = await known();
      if (!agents.some(({ name }) => name === target)) {
        throw fault("E_AGENT_NOT_FOUND", `there is no agent \`${target}\``);
      }
      return { target, instanceKey: key ?? `${target}:${toolCallId}`, spawned: true, cwd };
    },
    async list({ includeAll = false } = {}) {
      const scope = includeAll ? "workspace" : "conversation";
      const { instances } = asked(await ask(id, { op: "list", scope }));
      const others = instances.filter(({ status }) => status !== "self");
      return {
        agents: others.map((found) => ({
          target: found.agent, instanceKey: found.instanceKey, ownerAgent: agentName,
          ownerInstanceKey: instanceKey,
        })),
      };
    },
    async catalog() {
      const agents = await known();
      const availableAgents = agents.map(({ name }) => name);
      return {
        swarmName: swarm?.name,
        entryAgent: agents.find(({ isEntry }) => isEntry)?.name,
        selfAgent: agentName,
        availableAgents,
        callableAgents: availableAgents.filter((name) => name !== agentName),
      };
    },
  };
};

// The message that makes the call.
const messageOf = ({ toolCallId, stepId }, toolName, input) => ({
  id: stepId ?? toolCallId,
  data: { role: "assistant", content: [{ type: "tool-call", toolCallId, toolName, input }] },
  metadata: {},
  createdAt: new Date(),
  source: { type: "assistant", stepId: stepId ?? "" },
});

const run = async ({ id, tool, module, export: name, input, config, context }) => {
  const controller = new AbortController();
  signals.set(id, controller);
  try {
    const handler = handlerOf(await handlersOf(module), name);
    const { signal } = controller;
    const { swarm, ...place } = context;
    const ctx = {
      ...place,
      workdir: context.workDir,
      message: messageOf(context, `${tool}__${name}`, input),
      runtime: runtimeOf(id, context),
      input, config, logger, signal,
    };
    const output = await handler(ctx, input);
    send({ type: "result", id, output: output ?? null });
  } catch (error) {
    const message = error instanceof Error ? (error.stack ?? error.message) : format(error);
    const code = typeof error?.code === "string" ? error.code : undefined;
    log("error", "the handler failed:", message);
    const text = (value) => (typeof value === "string" ? value : undefined);
    const suggestion = text(error?.suggestion);
    const helpUrl = text(error?.helpUrl);
    send({ type: "error", id, code, message: brief(error), suggestion, helpUrl });
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
    else if (message.type === "answer") {
      asks.get(message.ask)?.resolve(message.answer);
      asks.delete(message.ask);
    } else if (message.type === "cancel") signals.get(message.id)?.abort(new Error(message.reason));
  })
  .on("close", () => process.exit(0));
