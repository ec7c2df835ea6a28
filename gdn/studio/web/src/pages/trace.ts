// Trace: consequences of one event, across agents.

import { html, nothing, type TemplateResult } from 'lit';
import { callTrace } from '../api.js';
import { isEvent, Page } from '../page.js';
import { count, counted, dollars, duration } from '../parts/figures.js';
import { oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import '../parts/waterfall.js';
import { studio } from '../studio.js';
import type { WorkspaceChange } from '../types.js';
import { type Asked, askedOf, type Span, type Waterfall, waterfallOf } from '../waterfall.js';

/** The table has so many rows at a time. */
const TABLE_ROWS = 50;

class TracePage extends Page {
  #traceId = '';
  #isPartial = false;
  #waterfall: Waterfall = { spans: [], startMs: 0, endMs: 0 };
  #asked: Asked[] = [];
  #selected = 0;
  #first = 0;
  #layoutMs = 0;

  protected heading(): string {
    return 'Trace';
  }

  /** The latest trace goes on while its turns do; one that was named is read anew when asked. */
  protected override concerns(change: WorkspaceChange | null): boolean {
    return super.concerns(change) || (this.route.arg === '' && isEvent(change, 'turn.committed'));
  }

  protected async read(): Promise<void> {
    const of = this.route.arg === '' ? {} : { of: this.route.arg };
    const told = await callTrace(studio.of(of));
    const beganMs = performance.now();
    this.#traceId = told.traceId;
    this.#isPartial = told.isPartial;
    this.#waterfall = waterfallOf(told.events);
    this.#asked = askedOf(this.#waterfall);
    this.#layoutMs = performance.now() - beganMs;
  }

  protected content(): TemplateResult {
    const { spans, startMs, endMs } = this.#waterfall;
    const go = (event: SubmitEvent): void => {
      event.preventDefault();
      const id = this.querySelector<HTMLInputElement>('#of')?.value.trim() ?? '';
      location.hash = studio.href('trace', id);
    };
    return html`<form class="filters" role="search" @submit=${go}>
        <p class="field search"><label for="of">Id of a trace, a turn or an event (default: the latest)</label>
          <input id="of" data-search autocomplete="off" .value=${this.route.arg}></p>
        <p class="actions"><button type="submit">Show</button>
          <button type="button" @click=${() => void this.reload()}>Reload</button></p>
      </form>
      ${spans.length === 0
        ? nothing
        : html`<p><span class="name">${oneLine(this.#traceId)}</span> · ${counted(spans.length, 'span')} ·
            ${duration(endMs - startMs)} ${this.#isPartial ? html`· <span class="warn">there may be more</span>` : nothing}</p>
          <gdn-waterfall data-layout-ms=${this.#layoutMs.toFixed(1)} .waterfall=${this.#waterfall} .selected=${this.#selected}
            .onSelect=${(index: number) => this.#select(index)}></gdn-waterfall>
          ${this.#selectedView()} ${this.#askedView()} ${this.#table()}`}`;
  }

  override updated(): void {
    this.querySelector<HTMLElement & { requestUpdate(): void }>('gdn-waterfall')?.requestUpdate();
  }

  #select(index: number): void {
    this.#selected = index;
    this.#first = Math.floor(index / TABLE_ROWS) * TABLE_ROWS;
    this.requestUpdate();
  }

  #selectedView(): TemplateResult | typeof nothing {
    const span = this.#waterfall.spans[this.#selected];
    if (span === undefined) return nothing;
    return html`<div aria-live="polite" data-selected>${view.factsView([
      ['Span', html`<span class="name">${oneLine(span.name)}</span>`],
      ['Conversation', view.conversationLink(span.instanceKey)],
      ['Started after', duration(span.startMs - this.#waterfall.startMs)],
      ['Duration', duration(span.endMs - span.startMs)],
      ['Outcome', view.standingView(span.outcome)],
      ['Detail', span.detail === undefined ? '' : oneLine(span.detail)],
      ['Cost', span.costMicroUsd === undefined ? '' : dollars(span.costMicroUsd)],
    ])}</div>`;
  }

  #askedView(): TemplateResult | typeof nothing {
    const asked = this.#asked;
    if (asked.length === 0) return nothing;
    return html`<h2>Requests between agents</h2>${view.tableView(
      'Requests between agents',
      ['From', 'To', 'Requests'],
      asked.map(({ from, to, times }) => [oneLine(from), oneLine(to), count(times)]),
    )}`;
  }

  #table(): TemplateResult {
    const { spans } = this.#waterfall;
    const end = Math.min(this.#first + TABLE_ROWS, spans.length);
    const turn = (by: number) => (): void => {
      this.#first = Math.max(0, Math.min(this.#first + by, Math.floor((spans.length - 1) / TABLE_ROWS) * TABLE_ROWS));
      this.requestUpdate();
    };
    return html`<h2>Spans as a table</h2>
      <p class="actions"><button type="button" ?disabled=${this.#first === 0} @click=${turn(-TABLE_ROWS)}>Earlier</button>
        <span>${count(this.#first + 1)} to ${count(end)} of ${count(spans.length)}</span>
        <button type="button" ?disabled=${end === spans.length} @click=${turn(TABLE_ROWS)}>Later</button></p>
      ${view.tableView('Spans', ['Level', 'Span', 'Agent', 'Started after', 'Duration', 'Outcome', 'Detail'],
        spans.slice(this.#first, end).map((span) => this.#row(span)))}`;
  }

  #row(span: Span): unknown[] {
    return [
      span.depth + 1,
      html`<span class="name">${oneLine(span.name)}</span>`,
      oneLine(span.agentName),
      html`<span class="number">${duration(span.startMs - this.#waterfall.startMs)}</span>`,
      html`<span class="number">${duration(span.endMs - span.startMs)}</span>`,
      view.standingView(span.outcome),
      span.detail === undefined ? '' : oneLine(span.detail),
    ];
  }
}

customElements.define('gdn-trace', TracePage);
