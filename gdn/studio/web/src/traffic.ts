// Traffic of a workspace, from its latest events. Pure.

import type { Told } from './store.js';

/** Events of a connection for an agent. */
export interface Flow {
  from: string;
  to: string;
  times: number;
  lastMs: number;
}

/** Who received events lately. */
export interface Traffic {
  flows: Flow[];
  agents: Map<string, { events: number; lastMs: number }>;
}

/** What is known beside the events. */
export interface TrafficContext {
  /** Agents of conversations by their keys. */
  agentOf: ReadonlyMap<string, string>;
  connections: string[];
  nowMs: number;
  withinMs: number;
}

/** The traffic of the latest events. The key of a conversation of a connection begins with the connection's name. */
export function trafficOf(recent: Told[], { agentOf, connections, nowMs, withinMs }: TrafficContext): Traffic {
  const flows = new Map<string, Flow>();
  const agents: Traffic['agents'] = new Map();
  for (const { at, event } of recent) {
    const { instanceKey, type } = event;
    const atMs = Date.parse(at);
    if (instanceKey === undefined || nowMs - atMs > withinMs || !(type === 'event.accepted' || type.startsWith('turn.'))) continue;
    const to = agentOf.get(instanceKey);
    if (to === undefined) continue;
    const agent = agents.get(to) ?? { events: 0, lastMs: 0 };
    agents.set(to, { events: agent.events + (type === 'event.accepted' ? 1 : 0), lastMs: Math.max(agent.lastMs, atMs) });
    if (type !== 'event.accepted') continue;
    const parts = instanceKey.split(':');
    const from = connections.find((name) => parts.slice(0, 2).includes(name));
    if (from === undefined) continue;
    const flow = flows.get(`${from} ${to}`) ?? { from, to, times: 0, lastMs: 0 };
    flows.set(`${from} ${to}`, { ...flow, times: flow.times + 1, lastMs: Math.max(flow.lastMs, atMs) });
  }
  return { flows: [...flows.values()], agents };
}
