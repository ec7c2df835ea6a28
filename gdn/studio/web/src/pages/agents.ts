// Agents and connections of the workspace as a graph, with the traffic of the last minutes and the requests between
// agents in the latest trace.

import { html, nothing, svg, type SVGTemplateResult, type TemplateResult } from 'lit';
import { ApiError, call, callTrace } from '../api.js';
import { isEvent, Page } from '../page.js';
import { count } from '../parts/figures.js';
import { head, oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { studio } from '../studio.js';
import { trafficOf } from '../traffic.js';
import type { Process, WaitingEvent, WorkspaceChange } from '../types.js';
import { type Asked, askedOf, waterfallOf } from '../waterfall.js';

/** More do not fit into the picture; the tables have all. */
const DRAWN_MAX = 24;
const WIDTH = 720;
const ROW = 64;
/** So long an event counts as traffic. */
const RECENT_MS = 300_000;
/** An edge is emphasized for so long. */
const LIVE_MS = 4000;

class AgentsPage extends Page {
  #asked: Asked[] = [];
  #turns = new Map<string, number>();
  #processes: Process[] = [];
  /** Agents of conversations, by their keys. */
  readonly #agentOf = new Map<string, string>();
  /** Requests of connections to agents that are known from waiting events. */
  #sources: { from: string; to: string }[] = [];
  #timer: ReturnType<typeof setInterval> | undefined;

  protected heading(): string {
    return 'Agents';
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.#timer = setInterval(() => this.requestUpdate(), LIVE_MS / 2);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    clearInterval(this.#timer);
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    return super.concerns(change) || isEvent(change, 'turn.committed', 'configuration.', 'process.readiness', 'event.accepted');
  }

  protected async read(): Promise<void> {
    const [told, processes, instances, events] = await Promise.all([
      callTrace(studio.of()).catch((thrown: unknown) => {
        // No turn has happened yet.
        if (thrown instanceof ApiError && thrown.code === 'eventNotFound') return { events: [] };
        throw thrown;
      }),
      call<{ processes: Process[] }>('daemon.processes', studio.of({ limit: 200 })).catch(() => ({ processes: [] })),
      call<{ instances: { instanceKey: string; agentName: string }[] }>('instance.list', studio.of({ order: 'changed', limit: 200 })).catch(() => ({ instances: [] })),
      call<{ events: WaitingEvent[] }>('event.list', studio.of({ parked: false, limit: 200 })).catch(() => ({ events: [] })),
    ]);
    const waterfall = waterfallOf(told.events);
    this.#asked = askedOf(waterfall);
    this.#processes = processes.processes;
    for (const { instanceKey, agentName } of instances.instances) this.#agentOf.set(instanceKey, agentName);
    this.#sources = events.events.filter(({ source }) => source?.kind === 'connector').map(({ source, agentName }) => ({ from: source!.name, to: agentName }));
    this.#turns = new Map();
    for (const span of waterfall.spans) {
      if (span.kind === 'turn') this.#turns.set(span.agentName, (this.#turns.get(span.agentName) ?? 0) + 1);
    }
  }

  protected content(): TemplateResult {
    const { agents = [], connections = [], entryAgent } = studio.workspace ?? {};
    const names = [...new Set([...agents, ...this.#turns.keys()])];
    const traffic = trafficOf(studio.feed?.state.recent ?? [], { agentOf: this.#agentOf, connections, nowMs: Date.now(), withinMs: RECENT_MS });
    const running = (name: string): Process[] => this.#processes.filter((one) => one.role === 'agent' && one.name === name);
    const isDrawn = names.length > 0 && names.length + connections.length <= DRAWN_MAX;
    return html`<p class="faint">Lines from connections to agents are events of the last 5 minutes; arrows between agents are requests in the latest
        <a href=${studio.href('trace')}>trace</a>. What happens now is emphasized.</p>
      ${isDrawn ? this.#graph(connections, names, traffic) : nothing}
      <h2>Agents</h2>
      ${view.tableView('Agents', ['Agent', 'State', 'Events in 5 minutes', 'Turns in the latest trace', 'Requests to'], names.map((agent) => [
        html`<span class="name">${oneLine(agent)}</span>${agent === entryAgent ? ' (entry agent)' : ''}`,
        running(agent).some(({ state }) => state === 'processing') ? view.standingView('processing') : running(agent).length > 0 ? view.standingView('idle') : '',
        html`<span class="number">${count(traffic.agents.get(agent)?.events ?? 0)}</span>`,
        html`<span class="number">${count(this.#turns.get(agent) ?? 0)}</span>`,
        this.#asked.filter(({ from }) => from === agent).map(({ to, times }) => `${oneLine(to)} ${times}×`).join(', '),
      ]))}
      <h2>Connections</h2>
      ${view.tableView('Connections', ['Connection', 'State', 'Detail'], connections.map((name) => {
        const process = this.#processes.find((one) => one.role === 'connector' && one.name === name);
        return [
          html`<span class="name">${oneLine(name)}</span>`,
          process === undefined ? '' : view.standingView(process.readiness ?? process.state),
          oneLine(process?.detail ?? ''),
        ];
      }))}`;
  }

  #graph(connections: string[], agents: string[], traffic: ReturnType<typeof trafficOf>): TemplateResult {
    const height = Math.max(connections.length, agents.length) * ROW + 16;
    const placed = (names: string[], x: number): [string, { x: number; y: number }][] =>
      names.map((name, at) => [name, { x, y: (height / (names.length + 1)) * (at + 1) }]);
    const left = new Map(placed(connections, 90));
    const right = new Map(placed(agents, connections.length === 0 ? WIDTH / 2 : WIDTH - 200));
    const nowMs = Date.now();
    const flows = new Map<string, { from: string; to: string; times: number; lastMs: number }>();
    for (const { from, to } of this.#sources) flows.set(`${from} ${to}`, { from, to, times: 1, lastMs: 0 });
    for (const flow of traffic.flows) flows.set(`${flow.from} ${flow.to}`, flow);
    const lines = [...flows.values()].map(({ from, to, times, lastMs }) => edge(left.get(from), right.get(to), times, nowMs - lastMs < LIVE_MS));
    const requests = this.#asked.map(({ from, to, times }) => arc(right.get(from), right.get(to), times));
    const label = [
      ...[...flows.values()].map(({ from, to, times }) => `${from} sent ${times} events to ${to}`),
      ...this.#asked.map(({ from, to, times }) => `${from} sent ${times} requests to ${to}`),
    ].join('; ');
    const node = (name: string, { x, y }: { x: number; y: number }, kind: string, isLive: boolean): SVGTemplateResult =>
      svg`<g class=${`${kind}${isLive ? ' live' : ''}`}>${kind === 'agent'
        ? svg`<circle cx=${x} cy=${y} r="14"></circle>` : svg`<rect x=${x - 14} y=${y - 10} width="28" height="20" rx="5"></rect>`}
        <text x=${kind === 'agent' ? x + 22 : x} y=${kind === 'agent' ? y + 5 : y + 27} text-anchor=${kind === 'agent' ? 'start' : 'middle'}>${head(name, 20)}</text></g>`;
    return html`<svg class="graph" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label=${oneLine(label === '' ? 'Agents and connections without traffic' : label)}>
      <defs><marker id="arrow" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="10" markerHeight="10" markerUnits="userSpaceOnUse" orient="auto">
        <path d="M0 0L6 3L0 6z"></path></marker></defs>
      ${lines} ${requests}
      ${[...left].map(([name, at]) => node(name, at, 'connection', false))}
      ${[...right].map(([name, at]) => node(name, at, 'agent', nowMs - (traffic.agents.get(name)?.lastMs ?? 0) < LIVE_MS))}
    </svg>`;
  }
}

type At = { x: number; y: number } | undefined;

function edge(a: At, b: At, times: number, isLive: boolean): SVGTemplateResult | typeof nothing {
  if (a === undefined || b === undefined) return nothing;
  return svg`<line class=${isLive ? 'live' : ''} x1=${a.x + 18} y1=${a.y} x2=${b.x - 18} y2=${b.y} stroke-width=${Math.min(1 + times, 6)} marker-end="url(#arrow)"></line>`;
}

/** A request between agents of one column bows to the right. */
function arc(a: At, b: At, times: number): SVGTemplateResult | typeof nothing {
  if (a === undefined || b === undefined) return nothing;
  const bow = 40 + Math.abs(b.y - a.y) / 3;
  return svg`<path class="request" d=${`M${a.x - 14} ${a.y} C${a.x - bow} ${a.y} ${b.x - bow} ${b.y} ${b.x - 16} ${b.y}`} stroke-width=${Math.min(1 + times, 6)} marker-end="url(#arrow)"></path>`;
}

customElements.define('gdn-agents', AgentsPage);
