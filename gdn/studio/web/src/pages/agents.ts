// Agents and connections of the workspace as a graph, with the traffic that the daemon counts.

import { html, nothing, svg, type SVGTemplateResult, type TemplateResult } from 'lit';
import { call } from '../api.js';
import { isEvent, Page } from '../page.js';
import { count, counted } from '../parts/figures.js';
import { head, oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { studio } from '../studio.js';
import { type End, type Flow, flowName, recentOf, type Samples, sumsOf, type TrafficReport, withSample } from '../traffic.js';
import type { Process, WorkspaceChange } from '../types.js';

/** More do not fit into the picture; the tables have all. */
const DRAWN_MAX = 24;
const WIDTH = 720;
const ROW = 64;
/** Traffic of this time counts as recent. */
const RECENT_MS = 300_000;
/** A line is emphasized for so long. */
const LIVE_MS = 4000;
/** Interval in which the counts are read while the page is seen. */
const READ_MS = 2000;
/** Clients such as `gdn` and this page. */
const CLIENT = 'cli';

class AgentsPage extends Page {
  #samples: Samples = [];
  #processes: Process[] = [];
  #timer: ReturnType<typeof setInterval> | undefined;

  protected heading(): string {
    return 'Agents';
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.#timer = setInterval(() => {
      if (!document.hidden && this.isRead) void this.#readTraffic().catch(() => this.readSoon());
    }, READ_MS);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    clearInterval(this.#timer);
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    return super.concerns(change) || isEvent(change, 'turn.', 'configuration.', 'process.');
  }

  protected async read(): Promise<void> {
    const [{ processes }] = await Promise.all([
      call<{ processes: Process[] }>('daemon.processes', studio.of({ limit: 200 })),
      this.#readTraffic(),
    ]);
    this.#processes = processes;
  }

  async #readTraffic(): Promise<void> {
    this.#samples = withSample(this.#samples, await call<TrafficReport>('workspace.traffic', studio.of()), RECENT_MS);
    this.requestUpdate();
  }

  protected content(): TemplateResult | typeof nothing {
    const report = this.#samples.at(-1);
    if (report === undefined) return nothing;
    const { agents = [], connections = [], entryAgent } = studio.workspace ?? {};
    const named = (kind: End['kind'], configured: string[]): string[] =>
      [...new Set([...configured, ...report.flows.flatMap(({ from, to }) => [from, to]).filter((end) => end.kind === kind).map(({ name }) => name)])];
    const [all, lines] = [named('agent', agents), named('connection', connections)];
    const running = (role: string, name: string): Process[] => this.#processes.filter((one) => one.role === role && one.name === name);
    const isDrawn = all.length > 0 && all.length + lines.length <= DRAWN_MAX;
    return html`<p class="faint">Events between connections and agents, and calls of agents to connections, since ${view.timeView(report.since)}.
        Recent is since this page was opened, at most 5 minutes. What happens now is emphasized. ${(report.others ?? 0) > 0 ? `${count(report.others ?? 0)} more are not counted separately.` : ''}</p>
      ${isDrawn ? this.#graph(lines, all, report) : nothing}
      <h2>Traffic</h2>
      ${view.tableView('Traffic', ['From', 'To', 'In all', 'Recent', 'Latest'], this.#rows(report))}
      <h2>Agents</h2>
      ${view.tableView('Agents', ['Agent', 'State', 'Received', 'Sent'], all.map((agent) => [
        html`<span class="name">${oneLine(agent)}</span>${agent === entryAgent ? ' (entry agent)' : ''}`,
        running('agent', agent).some(({ state }) => state === 'processing') ? view.standingView('processing') : running('agent', agent).length > 0 ? view.standingView('idle') : '',
        ...sumCells(report, { kind: 'agent', name: agent }),
      ]))}
      <h2>Connections</h2>
      ${view.tableView('Connections', ['Connection', 'State', 'Calls', 'Events', 'Detail'], lines.map((name) => {
        const process = running('connector', name)[0];
        return [
          html`<span class="name">${oneLine(name)}</span>${name === CLIENT ? ' (people and programs that use gdn)' : ''}`,
          process === undefined ? '' : view.standingView(process.readiness ?? process.state),
          ...sumCells(report, { kind: 'connection', name }),
          oneLine(process?.detail ?? ''),
        ];
      }))}`;
  }

  #rows(report: TrafficReport): unknown[][] {
    const recent = recentOf(this.#samples);
    return [...report.flows].sort((one, other) => (one.lastAt < other.lastAt ? 1 : -1)).map((flow) => [
      html`<span class="name">${oneLine(flow.from.name)}</span>`,
      html`<span class="name">${oneLine(flow.to.name)}</span>`,
      number(flow.count),
      number(recent.get(flowName(flow)) ?? 0),
      view.timeView(flow.lastAt),
    ]);
  }

  #graph(connections: string[], agents: string[], report: TrafficReport): TemplateResult {
    const height = Math.max(connections.length, agents.length) * ROW + 16;
    const placed = (names: string[], x: number): [string, { x: number; y: number }][] =>
      names.map((name, at) => [name, { x, y: (height / (names.length + 1)) * (at + 1) }]);
    const left = new Map(placed(connections, 90));
    const right = new Map(placed(agents, connections.length === 0 ? WIDTH / 2 : WIDTH - 200));
    // The clock of the daemon, which can be on another machine.
    const isLive = ({ lastAt }: Flow): boolean => Date.parse(report.at) - Date.parse(lastAt) < LIVE_MS;
    const line = (flow: Flow): SVGTemplateResult | typeof nothing => {
      const { from, to, count: times } = flow;
      if (from.kind === 'agent' && to.kind === 'agent') return arc(right.get(from.name), right.get(to.name), times, isLive(flow));
      return from.kind === 'connection'
        ? edge(left.get(from.name), right.get(to.name), times, isLive(flow), false)
        : edge(left.get(to.name), right.get(from.name), times, isLive(flow), true);
    };
    const label = report.flows.map(({ from, to, count: times }) =>
      `${from.name} sent ${to.kind === 'connection' ? counted(times, 'call') : counted(times, 'event')} to ${to.name}`).join('; ');
    const node = (name: string, { x, y }: { x: number; y: number }, kind: End['kind']): SVGTemplateResult => {
      const isActive = report.flows.some((flow) => isLive(flow) && [flow.from, flow.to].some((end) => end.kind === kind && end.name === name));
      return svg`<g class=${`${kind}${isActive ? ' live' : ''}`}>${kind === 'agent'
        ? svg`<circle cx=${x} cy=${y} r="14"></circle>` : svg`<rect x=${x - 14} y=${y - 10} width="28" height="20" rx="5"></rect>`}
        <text x=${kind === 'agent' ? x + 22 : x} y=${kind === 'agent' ? y + 5 : y + 27} text-anchor=${kind === 'agent' ? 'start' : 'middle'}>${head(name, 20)}</text></g>`;
    };
    return html`<svg class="graph" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label=${oneLine(label === '' ? 'Agents and connections without traffic' : label)}>
      <defs><marker id="arrow" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="10" markerHeight="10" markerUnits="userSpaceOnUse" orient="auto">
        <path d="M0 0L6 3L0 6z"></path></marker></defs>
      ${report.flows.map(line)}
      ${[...left].map(([name, at]) => node(name, at, 'connection'))}
      ${[...right].map(([name, at]) => node(name, at, 'agent'))}
    </svg>`;
  }
}

function number(value: number): TemplateResult {
  return html`<span class="number">${count(value)}</span>`;
}

function sumCells(report: TrafficReport, end: End): [TemplateResult, TemplateResult] {
  const { received, sent } = sumsOf(report, end);
  return [number(received), number(sent)];
}

type At = { x: number; y: number } | undefined;

/** The width of a line grows with the number of digits of its count. */
function widthOf(times: number): number {
  return 1 + Math.min(Math.floor(Math.log10(Math.max(times, 1))), 4) * 1.25;
}

/** A line between a connection and an agent, with its count. One back to the connection is a little lower. */
function edge(connection: At, agent: At, times: number, isLive: boolean, isBack: boolean): SVGTemplateResult | typeof nothing {
  if (connection === undefined || agent === undefined) return nothing;
  const down = isBack ? 7 : -3;
  const [x1, y1, x2, y2] = [connection.x + 18, connection.y + down, agent.x - 18, agent.y + down];
  // Lines cross near the agents.
  const at = (one: number, other: number): number => one + (other - one) * (isBack ? 0.3 : 0.14);
  const [a, b] = isBack ? [[x2, y2], [x1, y1]] : [[x1, y1], [x2, y2]];
  return svg`<line class=${isLive ? 'live' : ''} x1=${a![0]} y1=${a![1]} x2=${b![0]} y2=${b![1]} stroke-width=${widthOf(times)} marker-end="url(#arrow)"></line>
    <text class="times" x=${at(x1, x2)} y=${at(y1, y2) + (isBack ? 15 : -6)} text-anchor="middle">${count(times)}</text>`;
}

/** Events between agents of one column bow to the left. */
function arc(a: At, b: At, times: number, isLive: boolean): SVGTemplateResult | typeof nothing {
  if (a === undefined || b === undefined) return nothing;
  // Both directions between two agents are seen.
  const bow = 40 + Math.abs(b.y - a.y) / 3 + (a.y > b.y ? 36 : 0);
  const [from, to] = a.y === b.y ? [a.y - 6, b.y + 6] : [a.y, b.y];
  return svg`<path class=${`request${isLive ? ' live' : ''}`} d=${`M${a.x - 14} ${from} C${a.x - bow} ${from} ${b.x - bow} ${to} ${b.x - 16} ${to}`} stroke-width=${widthOf(times)} marker-end="url(#arrow)"></path>
    <text class="times" x=${a.x - 14 - bow * 0.75 - 2} y=${(from + to) / 2 + 4} text-anchor="end">${count(times)}</text>`;
}

customElements.define('gdn-agents', AgentsPage);
