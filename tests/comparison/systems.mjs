// The compared systems, each with the same work: an input for a conversation arrives over HTTP, a model is asked over
// HTTP on loopback, and history and reply are durable before the answer.
//
// A system has `start` (its processes, until it accepts inputs), `turn` and `accept` (the request that waits for the
// reply, and the one that does not), `history`, `roots` (processes to kill), and `kept` (those that are not killed but
// belong to it).
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import zlib from "node:zlib";

import { call } from "./http.mjs";
import { freePort, start, until } from "./processes.mjs";

const here = import.meta.dirname;
const json = { "content-type": "application/json" };
const READY_S = 120;

/** Users' texts in a history in the form of OpenAI's messages. */
const usersTexts = (messages) => messages.filter((it) => it.role === "user").map((it) => it.content);

/** Users' texts of a history that a service shows. */
async function shownTexts(request) {
  const { status, body } = await call(request);
  if (status !== 200) throw new Error(`${request.url}: ${status} ${body.slice(0, 500)}`);
  return usersTexts(JSON.parse(body));
}

export async function goondan({ dir, model, programs }) {
  const [sync, later] = [await freePort(), await freePort()];
  const connection = (name, port, reply) => `
---
apiVersion: goondan.ai/v1
kind: Connection
metadata: {name: ${name}}
spec:
  connectorRef: {kind: Connector, name: webhook, package: "@goondan/base"}
  config: {port: ${port}, path: /turn, inputField: text, keyField: key, idField: id${reply}}
  ingress:
    rules:
      - match: {event: request}
        route: {agentRef: Agent/worker}`;
  const project = path.join(dir, "project");
  fs.mkdirSync(project, { recursive: true });
  fs.writeFileSync(
    path.join(project, "goondan.yaml"),
    `apiVersion: goondan.ai/v1
kind: Model
metadata: {name: fake}
spec: {provider: openai, model: fake, endpoint: "${model}/v1"}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: worker}
spec: {modelConfig: {modelRef: Model/fake}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: team}
spec: {entryAgent: Agent/worker}${connection("sync", sync, ", reply: {wait: {}}")}${connection("later", later, "")}
`,
  );
  const state = path.join(dir, "state");
  const env = { GOONDAN_STATE_ROOT: state, HOME: dir };
  const gdn = (...args) =>
    execFileSync(path.join(programs, "gdn"), args, {
      cwd: project,
      env: { ...env, PATH: process.env.PATH },
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
      // A minute of inputs is more than the default.
      maxBuffer: 1024 ** 3,
    });
  const request = (port) => (key, id, text) => ({
    url: `http://127.0.0.1:${port}/turn`,
    headers: json,
    body: JSON.stringify({ key, id, text }),
  });
  const system = {
    version: () => gdn("--version").trim(),
    data: state,
    kept: [],
    async start() {
      const daemon = path.join(programs, "goondan-orchestrator");
      const log = path.join(dir, "log");
      system.roots = [start(daemon, ["--open", project], { env, log, cwd: dir })];
      const listens = (port) => call({ url: `http://127.0.0.1:${port}/`, method: "HEAD" });
      await until("goondan listens", READY_S, async () => (await listens(sync)) && listens(later));
    },
    turn: request(sync),
    accept: request(later),
    async history(key) {
      // Each connection has conversations of its own.
      const name = `later:${key}`;
      const listed = gdn("--json", "conversation", "history", "--limit", "100000", "--", name);
      const { messages, pending, total } = JSON.parse(listed);
      if (messages.length < total) throw new Error(`${name} is longer than goondan lists`);
      return usersTexts([...messages, ...pending].map((it) => it.data));
    },
  };
  return system;
}

export async function restate({ dir, model, packages }) {
  const service = await freePort();
  let ingress;
  const modules = path.join(packages, "node_modules");
  // Node looks for packages beside the module.
  fs.mkdirSync(dir, { recursive: true });
  const module = path.join(dir, "restate-conversation.mjs");
  fs.copyFileSync(path.join(here, "restate-conversation.mjs"), module);
  fs.symlinkSync(modules, path.join(dir, "node_modules"));
  const server = path.join(modules, "@restatedev/restate-server-linux-x64/bin/restate-server");
  const data = path.join(dir, "data");
  const object = (key) => `http://127.0.0.1:${ingress}/conversation/${key}`;
  const request = (handler) => (key, id, text) => ({
    url: `${object(key)}/${handler}`,
    headers: { ...json, "idempotency-key": id },
    body: JSON.stringify(text),
  });
  const system = {
    version: () => execFileSync(server, ["--version"], { encoding: "utf8" }).trim(),
    data,
    kept: [],
    async start() {
      const log = path.join(dir, "log");
      // After a kill with open connections, Restate cannot bind its ports again for a minute (RT0004).
      ingress = await freePort();
      const [admin, node] = [await freePort(), await freePort()];
      const env = {
        RESTATE_INGRESS__BIND_ADDRESS: `127.0.0.1:${ingress}`,
        RESTATE_ADMIN__BIND_ADDRESS: `127.0.0.1:${admin}`,
        RESTATE_BIND_ADDRESS: `127.0.0.1:${node}`,
        RESTATE_LISTEN_MODE: "tcp",
        RESTATE_DISABLE_TELEMETRY: "true",
      };
      system.roots = [
        start(server, ["--base-dir", data, "--no-logo"], { env, log, cwd: dir }),
        start(process.execPath, [module], { env: { MODEL: model, PORT: String(service) }, log, cwd: dir }),
      ];
      await until("Restate knows the service", READY_S, async () => {
        const body = JSON.stringify({ uri: `http://127.0.0.1:${service}`, force: true });
        const registered = await call({ url: `http://127.0.0.1:${admin}/deployments`, headers: json, body });
        return registered.status < 300;
      });
      await until("Restate answers", READY_S, async () => {
        const shown = await call({ url: `${object("none")}/history` });
        return shown.status === 200;
      });
    },
    turn: request("turn"),
    accept: request("turn/send"),
    history: (key) => shownTexts({ url: `${object(key)}/history` }),
  };
  return system;
}

export async function dbos({ dir, model, packages, postgres }) {
  const port = await freePort();
  const python = path.join(packages, "venv/bin/python");
  const address = `http://127.0.0.1:${port}`;
  const request = (wait) => (key, id, text) => ({
    url: `${address}/`,
    headers: json,
    body: JSON.stringify({ key, id, text, wait }),
  });
  fs.mkdirSync(dir, { recursive: true });
  const server = await postgres();
  const system = {
    version: () => {
      const read = "import importlib.metadata as m; print('dbos', m.version('dbos'))";
      return `${execFileSync(python, ["-c", read], { encoding: "utf8" }).trim()}, ${server.version}`;
    },
    data: server.data,
    kept: [server.pid],
    async start() {
      const env = { DATABASE: server.url, MODEL: model, PORT: String(port) };
      const log = path.join(dir, "log");
      system.roots = [start(python, [path.join(here, "dbos_conversation.py")], { env, log, cwd: dir })];
      await until("the workflows of DBOS answer", READY_S, async () => {
        const shown = await call({ url: `${address}/none`, method: "GET" });
        return shown.status === 200;
      });
    },
    turn: request(true),
    accept: request(false),
    history: (key) => shownTexts({ url: `${address}/${key}`, method: "GET" }),
  };
  return system;
}

export async function openclaw({ dir, model, packages }) {
  const port = await freePort();
  const state = path.join(dir, "state");
  fs.mkdirSync(state, { recursive: true });
  const cli = path.join(packages, "node_modules/openclaw/openclaw.mjs");
  const config = {
    agents: { defaults: { model: { primary: "fake/fake" }, skipBootstrap: true } },
    models: {
      mode: "replace",
      providers: {
        fake: {
          baseUrl: `${model}/v1`,
          apiKey: "none",
          api: "openai-completions",
          models: [
            {
              id: "fake",
              name: "fake",
              reasoning: false,
              input: ["text"],
              cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
              contextWindow: 200000,
              maxTokens: 8192,
            },
          ],
        },
      },
    },
    gateway: {
      mode: "local",
      bind: "loopback",
      auth: { mode: "token", token: "gateway-token" },
      http: { endpoints: { chatCompletions: { enabled: true } } },
    },
    hooks: {
      enabled: true,
      token: "hooks-token",
      path: "/hooks",
      allowRequestSessionKey: true,
      allowedSessionKeyPrefixes: ["hook:"],
      allowedAgentIds: ["main"],
    },
  };
  const file = path.join(dir, "openclaw.json");
  fs.writeFileSync(file, JSON.stringify(config, null, 2));
  const env = { OPENCLAW_STATE_DIR: state, OPENCLAW_CONFIG_PATH: file, HOME: dir, OPENCLAW_DISABLE_BONJOUR: "1" };
  const address = `http://127.0.0.1:${port}`;
  const authorized = (token) => ({ ...json, authorization: `Bearer ${token}` });
  const system = {
    version: () => execFileSync(process.execPath, [cli, "--version"], { encoding: "utf8", env }).trim(),
    data: state,
    kept: [],
    async start() {
      const args = [cli, "gateway", "run", "--port", String(port)];
      system.roots = [start(process.execPath, args, { env, log: path.join(dir, "log"), cwd: dir })];
      await until("the gateway of OpenClaw answers", READY_S, async () => {
        const listed = await call({ url: `${address}/v1/models`, method: "GET", headers: authorized("gateway-token") });
        return listed.status === 200;
      });
    },
    turn: (key, id, text) => ({
      url: `${address}/v1/chat/completions`,
      headers: { ...authorized("gateway-token"), "x-openclaw-session-key": `hook:${key}` },
      body: JSON.stringify({ model: "openclaw", messages: [{ role: "user", content: text }] }),
    }),
    accept: (key, id, text) => ({
      url: `${address}/hooks/agent`,
      headers: { ...authorized("hooks-token"), "idempotency-key": id },
      body: JSON.stringify({
        message: text,
        agentId: "main",
        sessionKey: `hook:${key}`,
        sessionMode: "persistent",
        deliver: false,
      }),
    }),
    history: async (key) => openclawHistory(state, key),
  };
  return system;
}

/** Users' texts of a session, from the database of its agent. */
async function openclawHistory(state, key) {
  // Older versions of Node.js, which suffice for goondan alone, do not have it.
  const { DatabaseSync } = await import("node:sqlite");
  const file = path.join(state, "agents/main/agent/openclaw-agent.sqlite");
  const database = new DatabaseSync(file, { readOnly: true });
  try {
    const events = database.prepare(
      `SELECT event_json, event_zstd FROM transcript_events JOIN session_windows USING (session_id)
       WHERE session_key LIKE ? ORDER BY session_id, seq`,
    );
    const records = events
      .all(`%hook:${key}`)
      .map((it) => JSON.parse(it.event_json ?? zlib.zstdDecompressSync(it.event_zstd).toString()));
    const messages = records.filter((it) => it.type === "message").map((it) => it.message);
    const text = (it) => (typeof it.content === "string" ? it.content : it.content.map((part) => part.text).join(""));
    return usersTexts(messages.map((it) => ({ role: it.role, content: text(it) })));
  } finally {
    database.close();
  }
}
