// Context of tool handlers in every host. This text is appended to a host's text.
const inputOf = (event) =>
  typeof event === "string" ? event : String(event?.input ?? event?.message?.text ?? "");

// A conversation's key in the form of 0.0.3: without the prefixes of agent and connection.
const olderKeyOf = (key, { agentName, swarm }) => {
  if (!swarm || typeof key !== "string") return key;
  const own = `${agentName}:`;
  const rest = agentName !== swarm.entryAgent && key.startsWith(own) ? key.slice(own.length) : key;
  for (const [name, { keepsKey }] of Object.entries(swarm.connections ?? {})) {
    if (!keepsKey && rest.startsWith(`${name}:`)) return rest.slice(name.length + 1);
  }
  return rest;
};

// The key that a module passes. The conversation's own older key, or no key, means the same conversation.
const namedKey = (key, place) =>
  key !== undefined && key !== place.instanceKey && key === olderKeyOf(place.instanceKey, place) ? undefined : key;

// The interface to other agents of 0.0.3. `ask` returns the answer or fails with a code.
// `eventId` is the id of the question.
const runtimeOf = (ask, { agentName, instanceKey, toolCallId, swarm }) => {
  const errand = (op, target, event, rest) => ({
    op,
    agent: String(target).replace(/^Agent\//, ""),
    input: inputOf(event),
    instanceKey: namedKey(event?.instanceKey, { agentName, instanceKey, swarm }),
    note: { eventType: event?.type, metadata: event?.metadata },
    ...rest,
  });
  const known = async () => (await ask({ op: "catalog" })).agents;
  return {
    async request(target, event, { timeoutMs = 60_000, async: isAsync = false } = {}) {
      const { eventId, response } = await ask(errand("request", target, event, { wait: !isAsync, timeoutMs }));
      return { eventId, target, response, correlationId: eventId, accepted: true, async: isAsync };
    },
    async send(target, event) {
      const { eventId } = await ask(errand("send", target, event));
      return { eventId, target, accepted: true };
    },
    async spawn(target, { instanceKey: key, cwd } = {}) {
      const agents = await known();
      if (!agents.some(({ name }) => name === target)) {
        throw Object.assign(new Error(`there is no agent \`${target}\``), { code: "E_AGENT_NOT_FOUND" });
      }
      return { target, instanceKey: key ?? `${target}:${toolCallId}`, spawned: true, cwd };
    },
    async list({ includeAll = false } = {}) {
      const { instances } = await ask({ op: "list", scope: includeAll ? "workspace" : "conversation" });
      const others = instances.filter(({ status }) => status !== "self");
      return {
        agents: others.map((found) => ({
          target: found.agent, instanceKey: found.instanceKey, ownerAgent: agentName,
          ownerInstanceKey: olderKeyOf(instanceKey, { agentName, swarm }),
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

// The message that contains a call.
const messageOf = ({ toolCallId, stepId }, toolName, input) => ({
  id: stepId ?? toolCallId,
  data: { role: "assistant", content: [{ type: "tool-call", toolCallId, toolName, input }] },
  metadata: {},
  createdAt: new Date(),
  source: { type: "assistant", stepId: stepId ?? "" },
});

// The error that a handler threw, for the agent.
const thrownOf = (error) => {
  const text = (value) => (typeof value === "string" ? value : undefined);
  return { code: text(error?.code), suggestion: text(error?.suggestion), helpUrl: text(error?.helpUrl) };
};
