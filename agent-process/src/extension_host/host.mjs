// The host of an agent's extensions that are modules of the project, for bun, deno and node.
// It implements the protocol of extension hosts (docs/extensions.md) and is passed to the runtime as an argument.
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
const working = new AsyncLocalStorage();

const log = (level, ...parts) =>
  send({ type: "log", level, message: format(...parts), extension: working.getStore()?.name });
const logger = {
  debug: (...parts) => log("debug", ...parts),
  info: (...parts) => log("info", ...parts),
  warn: (...parts) => log("warn", ...parts),
  error: (...parts) => log("error", ...parts),
};
Object.assign(logger, { log: logger.info, trace: logger.debug });
// Standard output can carry the protocol, so output of modules is logged instead.
Object.assign(console, logger);
process.stdout.write = (text) => {
  const lines = String(text).replace(/\n$/, "");
  if (lines !== "") log("info", lines);
  return true;
};

const RINGS = ["turn", "step", "toolCall"];
const TOOL_NAME = /^[A-Za-z0-9_-]+$/;
const extensions = new Map();
// Tools registered by modules, by name, and their open calls.
const tools = new Map();
const calls = new Map();
const visits = new Map();
const asks = new Map();
const listeners = new Map();
// The conversation at the start of the turn, and the turn's events.
let base = [];
let events = [];
let turn;
let limits;
// The agent's description for modules written for 0.0.3; undefined for current modules.
let older;
let lastAsk = 0;

// Converts each `Date` to its text.
const plain = (value) =>
  value instanceof Date ? value.toISOString()
    : Array.isArray(value) ? value.map(plain)
    : value !== null && typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype
      ? Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, plain(inner)]))
      : value;

const answerOf = ({ inReplyTo, from, eventId, status, request }, createdAt) => ({
  kind: "inter_agent_response", version: 1, requestId: inReplyTo, requestEventId: inReplyTo,
  responseEventId: eventId, fromAgentId: from.agent, toAgentId: older.agentName, async: true,
  status: status === "failed" ? "error" : "ok", receivedAt: createdAt, traceId: turn?.traceId,
  requestEventType: request?.eventType, requestMetadata: request?.metadata,
});

// A message in the form that modules receive.
const given = (message) => {
  if (older === undefined || message === undefined || message.createdAt instanceof Date) return message;
  const { metadata = {}, createdAt } = message;
  const isAnswer = metadata.inReplyTo !== undefined && metadata.from !== undefined;
  const more = isAnswer ? { __goondanInterAgentResponse: answerOf(metadata, createdAt) } : {};
  return { ...message, metadata: { ...metadata, ...more }, createdAt: new Date(createdAt) };
};
const givenEvent = (event) =>
  event.message === undefined ? event : { ...event, message: given(event.message) };

const applied = (messages, changes) => {
  let next = [...messages];
  for (const { type, message, targetId } of changes) {
    const at = next.findIndex((other) => other.id === targetId);
    if (type === "append") next.push(message);
    else if (type === "truncate") next = [];
    else if (type === "remove" && at >= 0) next.splice(at, 1);
    else if (type === "replace" && at >= 0) next[at] = message;
  }
  return next;
};

const textOf = (content) =>
  typeof content === "string"
    ? content
    : (content ?? []).filter((part) => part.type === "text").map((part) => part.text).join("");

// EXT-4: accepts only JSON values.
const checkJson = (value, path, seen = new Set()) => {
  if (value === null || ["string", "boolean"].includes(typeof value) || Number.isFinite(value)) return;
  const isPlain = [Object.prototype, Array.prototype, null].includes(
    typeof value === "object" ? Object.getPrototypeOf(value) : undefined,
  );
  if (!isPlain) throw new TypeError(`${path} is ${format(value)}, which is no JSON value`);
  if (seen.has(value)) throw new TypeError(`${path} holds itself, so that it is no JSON value`);
  seen.add(value);
  for (const [name, inner] of Object.entries(value)) checkJson(inner, `${path}.${name}`, seen);
  seen.delete(value);
};

const emit = (name, args) => {
  for (const { handler, extension } of listeners.get(name) ?? []) {
    working.run(extension, () => {
      const failed = (error) => log("error", `a handler of the event ${name} failed:`, error);
      try {
        Promise.resolve(handler(...args)).catch(failed);
      } catch (error) {
        failed(error);
      }
    });
  }
};

const toolsToTell = () =>
  [...tools.values()].map(({ extension, name, description, parameters }) =>
    ({ extension: extension.name, name, description, parameters }));

const apiOf = (extension) => ({
  pipeline: {
    register(type, fn, { priority = 0 } = {}) {
      if (!RINGS.includes(type)) {
        throw new TypeError(`there are middlewares of the types ${RINGS.join(", ")}, not ${format(type)}`);
      }
      if (typeof fn !== "function") throw new TypeError(`a middleware is a function, not ${format(fn)}`);
      if (!Number.isSafeInteger(priority)) {
        throw new TypeError(`a priority is a whole number, not ${format(priority)}`);
      }
      if (extension.isRegistered) throw new Error("middlewares are registered within `register`");
      extension.middlewares.push({ type, fn, priority });
    },
  },
  tools: {
    register(item, handler) {
      const { name, description = "", parameters = { type: "object" } } = item ?? {};
      if (typeof name !== "string" || !TOOL_NAME.test(name)) {
        throw new TypeError(`a tool has a \`name\` of letters, digits, _ and -, not ${format(name)}`);
      }
      if (typeof handler !== "function") {
        throw new TypeError(`the tool \`${name}\` needs a function that does its work, not ${format(handler)}`);
      }
      const other = tools.get(name);
      if (other !== undefined && other.extension !== extension) {
        throw new Error(`the extension \`${other.extension.name}\` has a tool \`${name}\` already`);
      }
      checkJson(parameters, `the parameters of \`${name}\``);
      tools.set(name, { extension, name, description: String(description), parameters, handler });
      if (extension.isRegistered) send({ type: "tools", tools: toolsToTell() });
    },
  },
  state: {
    async get() {
      return structuredClone(extension.state ?? null);
    },
    async set(value) {
      checkJson(value, "the state");
      const text = JSON.stringify(value);
      const bytes = Buffer.byteLength(text);
      if (bytes >= limits.stateBytes) {
        throw new RangeError(`a state has less than ${limits.stateBytes} bytes, not ${bytes}`);
      }
      extension.state = JSON.parse(text);
      extension.isChanged = true;
    },
  },
  events: {
    on(name, handler) {
      if (!listeners.has(name)) listeners.set(name, new Set());
      const listener = { handler, extension };
      listeners.get(name).add(listener);
      return () => listeners.get(name).delete(listener);
    },
    emit: (name, ...args) => emit(name, args),
  },
  logger,
});

// Adds advice to unclear errors.
const hint = (error) =>
  error instanceof SyntaxError && /'export'|import statement/.test(error.message)
    ? "; name the file .mjs or .mts, or write \"type\": \"module\" into package.json"
    : "";
const brief = (error) =>
  error instanceof Error ? `${error.name}: ${error.message}${hint(error)}` : format(error);

const register = async (message) => {
  // The runtime is up; the modules' time limit starts here.
  send({ type: "started" });
  limits = message.limits;
  older = message.contract === "own" ? undefined : message.about;
  base = base.map(given);
  for (const { name, state } of message.extensions) {
    extensions.set(name, { name, state, middlewares: [], isChanged: false, isRegistered: false });
  }
  for (const { name, module, config } of message.extensions) {
    const extension = extensions.get(name);
    let code = "E_EXT_LOAD";
    try {
      const loaded = await import(pathToFileURL(module).href);
      const start = loaded.register ?? loaded.default?.register ?? loaded.default;
      if (typeof start !== "function") {
        const isTool = (loaded.handlers ?? loaded.default?.handlers) !== undefined;
        const like = isTool ? "; it looks like a tool (`handlers`)" : "";
        throw new Error(`the module exports no function \`register\`${like}`);
      }
      code = "E_EXT_INIT";
      await working.run(extension, () => start(apiOf(extension), config));
      extension.isRegistered = true;
    } catch (error) {
      working.run(extension, () => log("error", "the extension could not be registered:", error));
      send({ type: "unfit", extension: name, code, message: brief(error) });
      return;
    }
  }
  const middlewares = [...extensions.values()].flatMap(({ name, middlewares }) =>
    middlewares.map(({ type, priority }, number) => ({ extension: name, type, number, priority })));
  send({ type: "registered", middlewares, tools: toolsToTell() });
};

// Events and state of an invocation since its last report.
const notesOf = (visit) => {
  const notes = { events: visit.drafts.splice(0) };
  if (visit.extension.isChanged) notes.state = visit.extension.state;
  visit.extension.isChanged = false;
  return notes;
};

const draft = (visit, event) => {
  if (visit.isOver) throw new Error("the middleware has returned and can no longer emit events");
  event = plain(event);
  checkJson(event, "the event");
  const { type, targetId, message } = event;
  if (!["append", "replace", "remove", "truncate"].includes(type)) {
    throw new TypeError(`a message event has the type append, replace, remove or truncate, not ${format(type)}`);
  }
  if (["replace", "remove"].includes(type) && typeof targetId !== "string") {
    throw new TypeError(`a ${type} names its message in \`targetId\``);
  }
  const made = { type };
  if (targetId !== undefined) made.targetId = targetId;
  if (["append", "replace"].includes(type)) {
    if (typeof message?.data?.role !== "string") {
      throw new TypeError(`a ${type} brings a message with \`data: {role, content}\``);
    }
    visit.made += 1;
    made.message = {
      id: visit.idPrefix + visit.made,
      metadata: {},
      createdAt: new Date().toISOString(),
      source: { type: "extension", extensionName: visit.extension.name },
      ...message,
    };
  }
  const bytes = Buffer.byteLength(JSON.stringify(made));
  if (bytes > limits.eventBytes) {
    throw new RangeError(`a message event has at most ${limits.eventBytes} bytes, not ${bytes}`);
  }
  if (visit.drafts.length >= limits.events) {
    throw new RangeError(`at most ${limits.events} message events are emitted at once`);
  }
  visit.drafts.push(made);
  return made.message?.id;
};

const ask = (visit, question) => {
  if (visit.isOver) throw new Error("the middleware has returned and can no longer ask");
  lastAsk += 1;
  visit.asked += 1;
  send({ type: "ask", id: lastAsk, visit: visit.id, place: visit.asked, question });
  const id = lastAsk;
  return new Promise((resolve, reject) => asks.set(id, { resolve, reject }));
};

// Asks other agents on behalf of a tool call.
const askFor = (call) => (question) => {
  lastAsk += 1;
  call.asked += 1;
  send({ type: "askOfCall", id: lastAsk, call: call.id, place: call.asked, question });
  const id = lastAsk;
  return new Promise((resolve, reject) => asks.set(id, { resolve, reject }));
};

// Calls a tool that a module has registered.
const call = async ({ id, toolName, toolCallId, stepId, args, workDir }) => {
  const { extension, handler } = tools.get(toolName);
  const controller = new AbortController();
  const running = { id, asked: 0, controller };
  calls.set(id, running);
  const { agentName, instanceKey, turnId, traceId } = turn;
  const place = { agentName, instanceKey, turnId, traceId, toolCallId };
  const swarm = older?.swarm;
  const ctx = {
    ...place, instanceKey: olderKeyOf(instanceKey, { agentName, swarm }), workdir: workDir, workDir, input: args, logger, signal: controller.signal,
    message: messageOf({ toolCallId, stepId }, toolName, args),
    runtime: runtimeOf(askFor(running), { ...place, swarm }),
  };
  let line;
  try {
    const output = await working.run(extension, handler, ctx, args);
    line = { type: "result", id, output: output ?? null };
    const bytes = Buffer.byteLength(JSON.stringify(line));
    if (bytes > limits.lineBytes) throw new RangeError(`a tool returns at most ${limits.lineBytes} bytes, not ${bytes}`);
  } catch (error) {
    working.run(extension, () => log("error", `the tool ${toolName} failed:`, error));
    line = { type: "error", id, message: brief(error), ...thrownOf(error) };
  }
  calls.delete(id);
  send(line);
};

const agentsOf = (visit) => {
  const errand = (op, { target, input, instanceKey, wait, async: isAsync, timeoutMs, eventType, metadata } = {}) => ({
    op,
    agent: String(target ?? "").replace(/^Agent\//, ""),
    input: String(input ?? ""),
    instanceKey: namedKey(instanceKey, { ...turn, swarm: older?.swarm }),
    wait: wait ?? (isAsync === true ? false : undefined),
    timeoutMs,
    note: { eventType, metadata: plain(metadata) },
  });
  const requested = async (params) => {
    const answer = await ask(visit, errand("request", params));
    if (older === undefined) return answer;
    const isAsync = params?.async === true;
    const { eventId, response = "" } = answer;
    return { ...answer, response, correlationId: eventId, accepted: true, async: isAsync };
  };
  return {
    request: requested,
    send: (params) => ask(visit, errand("send", params)),
    spawn: (params) => ask(visit, errand("spawn", params)),
    list: ({ scope } = {}) => ask(visit, { op: "list", scope }),
    catalog: () => ask(visit, { op: "catalog" }),
  };
};

const stateOf = (visit) => {
  const own = [...events, ...visit.drafts.map(givenEvent)];
  let next;
  return {
    baseMessages: [...base],
    events: own,
    get nextMessages() {
      next ??= applied(base, own);
      return next;
    },
    toLlmMessages() {
      return this.nextMessages.map(({ data }) => data);
    },
  };
};

// Modules written for 0.0.3 receive a tool's result as the value it returned.
const outputOf = (text) => {
  if (older === undefined || !/^[[{]/.test(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
};

// The event and context of a turn, in the form of 0.0.3.
const inboundOf = ({ metadata, ...event }, agentName) => {
  const note = metadata?.request;
  const { swarm } = older;
  const { source = {} } = event;
  const known = source.kind === "connector" ? swarm?.connections?.[source.name] : undefined;
  const type = note?.eventType ?? known?.events?.[event.type] ?? event.type;
  const isOfAgent = source.kind === "agent";
  const sender = isOfAgent ? { instanceKey: olderKeyOf(source.instanceKey, { agentName: source.name, swarm }) } : {};
  return {
    ...event, type, name: type,
    source: { ...source, ...sender, name: known?.connector ?? source.name },
    instanceKey: olderKeyOf(event.instanceKey, { agentName, swarm }),
    metadata: note?.metadata ?? metadata, createdAt: new Date(event.createdAt),
  };
};
const surroundingsOf = ({ agentName, event }) => {
  const { bundleRoot, system, swarm } = older;
  const availableAgents = swarm?.agents ?? [agentName];
  const callableAgents = availableAgents.filter((name) => name !== agentName);
  const { replyTo } = event;
  const {
    type: eventType, metadata: eventMetadata, source, instanceKey, properties,
  } = inboundOf(event, agentName);
  const isOfAgent = source.kind === "agent";
  return {
    agent: { name: agentName, bundleRoot, prompt: { system } },
    swarm: {
      swarmName: swarm?.name, entryAgent: swarm?.entryAgent, selfAgent: agentName, availableAgents, callableAgents,
    },
    inbound: {
      eventId: event.id, eventType, sourceKind: source.kind, sourceName: source.name,
      createdAt: event.createdAt, instanceKey, properties, eventMetadata,
    },
    call: isOfAgent ? { callerAgent: source.name, callerInstanceKey: source.instanceKey, replyTo } : undefined,
  };
};

const CODE = /^(E_[A-Z0-9_]+): /;

// The result of `next()` for each type of middleware.
const told = {
  turn({ reply, code, message }) {
    const { turnId } = turn;
    if (code !== undefined) {
      return { turnId, finishReason: code === "E_MAX_STEPS" ? "max_steps" : "error", error: { code, message } };
    }
    const last = applied(base, events).findLast(({ data }) => data.role === "assistant");
    const isIt = last !== undefined && textOf(last.data.content) === reply;
    const responseMessage = isIt ? last : { ...last, data: { role: "assistant", content: reply } };
    return { turnId, finishReason: "text_response", responseMessage };
  },
  step({ calls, results, goesOn, error }, { metadata }) {
    const toolCalls = calls.map(({ id, toolName, input }) => ({ id, name: toolName, args: input }));
    const toolResults = results.map(({ id, toolName, text, isError }) =>
      told.toolCall({ text, isError }, { toolCallId: id, toolName }));
    const status = error === undefined ? "completed" : "failed";
    const hasToolCalls = toolCalls.length > 0;
    const result = {
      status, hasToolCalls, shouldContinue: goesOn, toolCalls, toolResults, metadata,
    };
    return error === undefined ? result : { ...result, error: { message: error } };
  },
  toolCall({ text, isError }, { toolCallId, toolName }) {
    if (!isError) return { toolCallId, toolName, status: "ok", output: outputOf(text) };
    const code = CODE.exec(text)?.[1];
    const message = text.replace(CODE, "");
    const said = (name) => new RegExp(`^${name}: (.*)$`, "m").exec(message)?.[1];
    const more = older === undefined ? {} : { suggestion: said("suggestion"), helpUrl: said("help") };
    return { toolCallId, toolName, status: "error", error: code ? { code, message, ...more } : { message, ...more } };
  },
};

// Converts a middleware's return value; undefined passes on the result of `next()`.
const returned = {
  turn(result) {
    if (result === undefined) return undefined;
    const { responseMessage, error } = result;
    if (error) return { code: error.code ?? "E_EXT_FAILED", message: String(error.message ?? "") };
    if (responseMessage === undefined) throw new TypeError("a turn's result has a `responseMessage` or an `error`");
    return { reply: textOf(responseMessage.data?.content) };
  },
  step(result, came) {
    const goesOn = result?.shouldContinue;
    return typeof goesOn === "boolean" && goesOn !== came?.goesOn ? { goesOn } : undefined;
  },
  toolCall(result) {
    if (result === undefined) return undefined;
    const { status, output, error } = result;
    if (status === "error" || error) {
      const { code, message } = error ?? {};
      return { text: code ? `${code}: ${message}` : String(message ?? "the call failed"), isError: true };
    }
    if (status !== "ok") throw new TypeError("a tool call's result has the status `ok` or `error`");
    const text = typeof output === "string" ? output : JSON.stringify(output ?? null);
    return { text: output === undefined || output === null ? "[no output]" : text, isError: false };
  },
};

const enter = async (message) => {
  const extension = extensions.get(message.extension);
  const { type, fn } = extension.middlewares[message.number];
  const visit = {
    id: message.visit,
    extension,
    idPrefix: message.idPrefix,
    drafts: [],
    made: 0,
    asked: 0,
    isOver: false,
  };
  visits.set(visit.id, visit);
  const metadataOf = (key) => {
    if (!turn.metadata.has(key)) turn.metadata.set(key, {});
    return turn.metadata.get(key);
  };
  const { agentName, turnId, traceId } = turn;
  const instanceKey = olderKeyOf(turn.instanceKey, { agentName, swarm: older?.swarm });
  const event = older === undefined ? turn.event : inboundOf(turn.event, agentName);
  const ctx = { agentName, instanceKey, turnId, traceId };
  if (older !== undefined) ctx.runtime = surroundingsOf(turn);
  if (type === "toolCall") {
    const { toolName, toolCallId, args, step } = message;
    Object.assign(ctx, { toolName, toolCallId, args, stepIndex: step - 1, metadata: metadataOf(toolCallId) });
  } else {
    Object.defineProperty(ctx, "conversationState", { get: () => stateOf(visit), enumerable: true });
    ctx.agents = agentsOf(visit);
    ctx.emitMessageEvent = (event) => draft(visit, event);
    if (type === "turn") Object.assign(ctx, { inputEvent: event, metadata: metadataOf("turn") });
    else {
      const { step, catalog } = message;
      const ofTurn = { id: turnId, startedAt: turn.startedAt, turnId, traceId, agentName, instanceKey, inputEvent: event };
      Object.assign(ctx, { turn: ofTurn, stepIndex: step - 1, metadata: metadataOf(step), toolCatalog: catalog });
    }
  }
  const before = JSON.stringify(message.args);
  const offered = new Set(message.catalog?.map(({ name }) => name));
  const changesOf = () => {
    if (type === "step") {
      const tools = ctx.toolCatalog.map(({ name }) => name);
      const unknown = tools.find((name) => !offered.has(name));
      if (unknown !== undefined) {
        throw new Error(`\`toolCatalog\` can lose tools and gains none; \`${unknown}\` was not in it`);
      }
      return { tools };
    }
    if (type !== "toolCall") return {};
    checkJson(ctx.args, "`args`");
    return JSON.stringify(ctx.args) === before ? {} : { args: ctx.args };
  };
  ctx.next = async () => {
    if (visit.settle !== undefined) throw new Error("`next()` was called a second time");
    if (visit.isOver) throw new Error("`next()` was called after the middleware had returned");
    const changes = changesOf();
    const came = new Promise((settle) => { visit.settle = settle; });
    send({ type: "next", visit: visit.id, ...notesOf(visit), ...changes });
    visit.came = await came;
    return told[type](visit.came, ctx);
  };
  let last;
  try {
    const brought = await working.run(extension, fn, ctx);
    if (visit.settle === undefined && type !== "toolCall") throw new Error("it returned without calling `next()`");
    const result = returned[type](brought, visit.came);
    // An unchanged result is not sent again.
    const { text, isError } = visit.came ?? {};
    const isAsItCame = type === "toolCall" && result?.text === text && result?.isError === isError;
    last = { type: "leave", result: isAsItCame ? undefined : result };
  } catch (error) {
    working.run(extension, () => log("error", `the ${type} middleware failed:`, error));
    const code = typeof error?.code === "string" && /^E_[A-Z0-9_]{1,62}$/.test(error.code) ? error.code : undefined;
    last = { type: "throw", code, message: brief(error) };
  }
  visit.isOver = true;
  visits.delete(visit.id);
  const line = { ...last, visit: visit.id, ...notesOf(visit) };
  const bytes = Buffer.byteLength(JSON.stringify(line));
  if (bytes <= limits.lineBytes) send(line);
  else {
    const message = `a middleware returns at most ${limits.lineBytes} bytes, not ${bytes}`;
    send({ type: "throw", visit: visit.id, message });
  }
};

const take = {
  messages: ({ messages }) => { for (const message of messages) base.push(given(message)); },
  register,
  turn({ states, ...told }) {
    base = applied(base, events);
    events = [];
    visits.clear();
    turn = { ...told, metadata: new Map(), startedAt: new Date() };
    for (const extension of extensions.values()) {
      extension.state = states[extension.name];
      extension.isChanged = false;
    }
  },
  enter(message) {
    events.push(...(message.events ?? []).map(givenEvent));
    return enter(message);
  },
  return(message) {
    events.push(...(message.events ?? []).map(givenEvent));
    visits.get(message.visit)?.settle(message.came);
  },
  call,
  cancel: ({ id, reason }) => calls.get(id)?.controller.abort(new Error(reason)),
  event: ({ event }) => emit(event.type, [event]),
  answer({ id, result, error }) {
    const waiting = asks.get(id);
    asks.delete(id);
    if (error === undefined) waiting?.resolve(result);
    else waiting?.reject(Object.assign(new Error(error.message), { code: error.code }));
  },
};

process.on("unhandledRejection", (reason) => log("error", "unhandled rejection:", reason));

createInterface({ input: openInput(), crlfDelay: Infinity })
  .on("line", (line) => {
    const message = JSON.parse(line);
    take[message.type]?.(message);
  })
  .on("close", () => process.exit(0));
