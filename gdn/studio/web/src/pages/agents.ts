// Agents of the workspace, and the requests between them in the latest trace.

import { html, nothing, svg, type SVGTemplateResult, type TemplateResult } from 'lit';
import { ApiError, callTrace } from '../api.js';
import { isEvent, Page } from '../page.js';
import { count } from '../parts/figures.js';
import { head, oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { studio } from '../studio.js';
import type { WorkspaceChange } from '../types.js';
import { type Asked, askedOf, waterfallOf } from '../waterfall.js';

/** More do not fit into the picture; the table has all. */
const DRAWN_MAX = 24;
const SIDE = 480;

class AgentsPage extends Page {
  #asked: Asked[] = [];
  #turns = new Map<string, number>();

  protected heading(): string {
    return 'Agents';
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    return super.concerns(change) || isEvent(change, 'turn.committed', 'configuration.');
  }

  protected async read(): Promise<void> {
    const told = await callTrace(studio.of()).catch((thrown: unknown) => {
      // Nothing has happened yet.
      if (thrown instanceof ApiError && thrown.code === 'eventNotFound') return { events: [] };
      throw thrown;
    });
    const waterfall = waterfallOf(told.events);
    this.#asked = askedOf(waterfall);
    this.#turns = new Map();
    for (const span of waterfall.spans) {
      if (span.kind === 'turn') this.#turns.set(span.agentName, (this.#turns.get(span.agentName) ?? 0) + 1);
    }
  }

  protected content(): TemplateResult {
    const { agents = [], entryAgent } = studio.workspace ?? {};
    const names = [...new Set([...agents, ...this.#turns.keys()])];
    return html`<p class="faint">Arrows show requests between agents in the latest <a href=${studio.href('trace')}>trace</a>.</p>
      ${names.length > 0 && names.length <= DRAWN_MAX ? this.#graph(names) : nothing}
      ${view.tableView('Agents', ['Agent', 'Turns in the latest trace', 'Requests to'], names.map((agent) => [
        html`<span class="name">${oneLine(agent)}</span>${agent === entryAgent ? ' (entry agent)' : ''}`,
        html`<span class="number">${count(this.#turns.get(agent) ?? 0)}</span>`,
        this.#asked.filter(({ from }) => from === agent).map(({ to, times }) => `${oneLine(to)} ${times}×`).join(', '),
      ]))}`;
  }

  #graph(names: string[]): TemplateResult {
    const middle = SIDE / 2;
    const places = new Map(names.map((agent, at) => {
      const angle = (2 * Math.PI * at) / names.length - Math.PI / 2;
      const radius = names.length === 1 ? 0 : middle - 60;
      return [agent, { x: middle + radius * Math.cos(angle), y: middle + radius * Math.sin(angle) }] as const;
    }));
    const line = ({ from, to, times }: Asked): SVGTemplateResult | typeof nothing => {
      const a = places.get(from);
      const b = places.get(to);
      if (a === undefined || b === undefined) return nothing;
      const length = Math.hypot(b.x - a.x, b.y - a.y);
      const short = (length - 30) / length;
      return svg`<line x1=${a.x} y1=${a.y} x2=${a.x + (b.x - a.x) * short} y2=${a.y + (b.y - a.y) * short}
        stroke-width=${Math.min(1 + times, 6)} marker-end="url(#arrow)"></line>`;
    };
    const label = this.#asked.map(({ from, to, times }) => `${from} sent ${times} requests to ${to}`).join('; ');
    return html`<svg class="graph" viewBox="0 0 ${SIDE} ${SIDE}" role="img" aria-label=${oneLine(label === '' ? 'Agents; no requests between them' : label)}>
      <defs><marker id="arrow" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="10" markerHeight="10" markerUnits="userSpaceOnUse" orient="auto">
        <path d="M0 0L6 3L0 6z"></path></marker></defs>
      ${this.#asked.map(line)}
      ${[...places].map(([agent, { x, y }]) => svg`<circle cx=${x} cy=${y} r="18"></circle>
        <text x=${x} y=${y + 36} text-anchor="middle">${head(agent, 24)}</text>`)}
    </svg>`;
  }
}

customElements.define('gdn-agents', AgentsPage);
