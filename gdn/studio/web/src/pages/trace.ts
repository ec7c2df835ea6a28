// Traces: a list of the latest turns with filters, one trace as a waterfall, and two side by side.

import { html, nothing, type TemplateResult } from 'lit';
import { ApiError, call, callTrace, type Trace } from '../api.js';
import { isEvent, Page } from '../page.js';
import { count, counted, dollars, duration } from '../parts/figures.js';
import { oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import '../parts/waterfall.js';
import { studio } from '../studio.js';
import { type BackwardLog, type EventPage, LOG_END, type Turn, turnsOfLog, withPageBefore } from '../turns.js';
import type { Instance, WorkspaceChange } from '../types.js';
import { type Asked, askedOf, type Span, type Waterfall, waterfallOf } from '../waterfall.js';

/** The table has so many rows at a time. */
const TABLE_ROWS = 50;
/** The turns of so many conversations are read at a time, those first that changed last. */
const CONVERSATIONS_READ = 25;
/** So many turns are listed at a time. */
const TURNS_SHOWN = 100;
/** The argument of the page that compares. */
const COMPARE = 'compare';

/** A turn of the list. */
interface ListedTurn extends Turn {
  instanceKey: string;
  agentName: string;
}

/** A page of conversations. */
interface InstancesPage {
  instances: Instance[];
  total: number;
  next?: unknown;
}

/** A trace that was read. */
interface Shown {
  traceId: string;
  isPartial: boolean;
  /** True if only the beginning was read so far. */
  isBegun: boolean;
  waterfall: Waterfall;
  asked: Asked[];
  layoutMs: number;
}

/** Reads a trace. `begun` gets the beginning of a long one. */
async function readTrace(of: string, begun: (shown: Shown) => void = () => undefined): Promise<Shown> {
  const told = await callTrace(studio.of(of === '' ? {} : { of }), (first) => begun(laidOut(first, true)));
  return laidOut(told, false);
}

function laidOut({ traceId, isPartial, events }: Trace, isBegun: boolean): Shown {
  const beganMs = performance.now();
  const waterfall = waterfallOf(events);
  const asked = askedOf(waterfall);
  return { traceId, isPartial, isBegun, waterfall, asked, layoutMs: performance.now() - beganMs };
}

/** Reads the latest turns of further conversations. */
async function readLogs(after: unknown): Promise<{ logs: BackwardLog[]; total: number; next: unknown }> {
  const page = await call<InstancesPage>('instance.list', studio.of({
    order: 'changed', limit: CONVERSATIONS_READ, ...(after === undefined ? {} : { after }),
  })).catch((): InstancesPage => ({ instances: [], total: 0 }));
  const logs = await Promise.all(page.instances.map(({ instanceKey, agentName }) =>
    readBack({ instanceKey, agentName, events: [], previous: LOG_END })));
  return { logs, total: page.total, next: page.next };
}

/** Reads the page before what was read of a log. */
async function readBack(log: BackwardLog): Promise<BackwardLog> {
  const { instanceKey, previous } = log;
  if (previous === undefined) return log;
  // A conversation can be deleted in the meantime.
  const page = await call<EventPage>('instance.turns', studio.of({ instanceKey, before: previous })).catch((): EventPage => ({ events: [] }));
  return withPageBefore(log, page);
}

/** All turns that were read, latest first. */
function listedTurns(logs: BackwardLog[]): ListedTurn[] {
  const all = logs.flatMap((log) => turnsOfLog(log).map((turn) => ({ ...turn, instanceKey: log.instanceKey, agentName: log.agentName })));
  return all.sort((one, other) => (one.startedAt < other.startedAt ? 1 : -1));
}

class TracePage extends Page {
  #shown: Shown | null = null;
  /** The other trace of a comparison. */
  #other: Shown | null = null;
  /** The conversations whose turns are listed; `null` until some are read. */
  #logs: BackwardLog[] | null = null;
  /** Number of all conversations, and where those begin whose turns are not listed. */
  #conversations: { total: number; next: unknown } = { total: 0, next: undefined };
  #turnsShown = TURNS_SHOWN;
  readonly #chosen = new Set<string>();
  #containing = '';
  #outcome = '';
  #selected = 0;
  #first = 0;
  /** The span of the address, until it was found. */
  #wanted: string | null = null;

  override connectedCallback(): void {
    this.#wanted = this.route.query.get('span');
    super.connectedCallback();
  }

  protected heading(): string {
    return this.#isComparison ? 'Comparison of traces' : this.route.arg === '' ? 'Traces' : 'Trace';
  }

  get #isComparison(): boolean {
    return this.route.arg === COMPARE;
  }

  /** The latest trace and the list continue while turns do; one that was named is read again when asked. */
  protected override concerns(change: WorkspaceChange | null): boolean {
    return super.concerns(change) || (this.route.arg === '' && isEvent(change, 'turn.committed'));
  }

  protected async read(): Promise<void> {
    if (this.#isComparison) {
      const [a, b] = await Promise.all(['a', 'b'].map((name) => readTrace(this.route.query.get(name) ?? '')));
      [this.#shown, this.#other] = [a ?? null, b ?? null];
      return;
    }
    if (this.route.arg === '') void this.#readTurns();
    this.#shown = await readTrace(this.route.arg, (shown) => this.#begin(shown)).catch((thrown: unknown) => {
      // No turn has happened yet.
      if (this.route.arg === '' && thrown instanceof ApiError && thrown.code === 'eventNotFound') return null;
      throw thrown;
    });
  }

  /** Shows the beginning of a trace that is read for the first time. */
  #begin(shown: Shown): void {
    if (this.#shown !== null && !this.#shown.isBegun) return;
    this.#shown = shown;
    this.isRead = true;
    this.requestUpdate();
  }

  /** Reads the latest turns of the conversations that changed last. */
  async #readTurns(): Promise<void> {
    // A list that was continued stays as it is.
    if (this.#turnsShown > TURNS_SHOWN) return;
    const { logs, total, next } = await readLogs(undefined);
    this.#logs = logs;
    this.#conversations = { total, next };
    this.requestUpdate();
  }

  /** Lists earlier turns: further ones of the conversations that are listed, and those of further conversations. */
  async #readEarlier(): Promise<void> {
    const logs = this.#logs ?? [];
    if (listedTurns(logs).length < this.#turnsShown + TURNS_SHOWN) {
      const { next } = this.#conversations;
      const [continued, further] = await Promise.all([
        Promise.all(logs.map(readBack)),
        next === undefined ? { logs: [], ...this.#conversations } : readLogs(next),
      ]);
      this.#logs = [...continued, ...further.logs];
      this.#conversations = { total: further.total, next: further.next };
    }
    this.#turnsShown += TURNS_SHOWN;
  }

  protected content(): TemplateResult {
    if (this.#isComparison) return this.#comparison();
    const go = (event: SubmitEvent): void => {
      event.preventDefault();
      const id = this.querySelector<HTMLInputElement>('#of')?.value.trim() ?? '';
      location.hash = studio.href('trace', id);
    };
    return html`<form class="filters" role="search" @submit=${go}>
        <p class="field search"><label for="of">Id of a trace, a turn or an event</label>
          <input id="of" data-search autocomplete="off" .value=${this.route.arg}></p>
        <p class="actions"><button type="submit">Show</button>
          <button type="button" @click=${() => void this.reload()}>Reload</button></p>
      </form>
      ${this.route.arg === '' ? this.#list() : html`<p><a href=${studio.href('trace')}>All traces</a></p>`}
      ${this.#shown === null ? nothing : html`${this.route.arg === '' ? html`<h2>Latest trace</h2>` : nothing}${this.#traceView(this.#shown)}`}`;
  }

  #list(): TemplateResult {
    const logs = this.#logs;
    if (logs === null) return html`<p class="faint">Reading the list…</p>`;
    const all = listedTurns(logs);
    const turns = all.slice(0, this.#turnsShown);
    const { total, next } = this.#conversations;
    const hasEarlier = all.length > turns.length || next !== undefined || logs.some(({ previous }) => previous !== undefined);
    const earlier = (): void => void this.act('Reading earlier turns', () => this.#readEarlier());
    const text = this.#containing.toLowerCase();
    const found = turns.filter((turn) =>
      (this.#outcome === '' || turn.outcome === this.#outcome) &&
      (text === '' || `${turn.instanceKey} ${turn.agentName} ${turn.traceId} ${turn.turnId} ${turn.reason ?? ''}`.toLowerCase().includes(text)));
    const outcomes = [...new Set(turns.map(({ outcome }) => outcome))];
    const rows = found.map((turn) => [
      html`<input type="checkbox" aria-label=${`Compare ${turn.traceId}`} .checked=${this.#chosen.has(turn.traceId)} @change=${() => {
        if (!this.#chosen.delete(turn.traceId)) this.#chosen.add(turn.traceId);
        this.requestUpdate();
      }}>`,
      html`<a href=${studio.href('trace', turn.traceId)}>${view.timeView(turn.startedAt)}</a>`,
      view.conversationLink(turn.instanceKey),
      oneLine(turn.agentName),
      view.standingView(turn.outcome),
      html`<span class="number">${turn.durationMs === undefined ? '' : duration(turn.durationMs)}</span>`,
      html`<span class="number">${turn.steps} / ${turn.tools}</span>`,
      html`<span class="number">${turn.costMicroUsd === undefined ? '' : dollars(turn.costMicroUsd)}</span>`,
      turn.reason === undefined ? '' : oneLine(turn.reason),
    ]);
    const [a = '', b = ''] = this.#chosen;
    return html`<div class="filters">
        <p class="field search"><label for="search">Filter by conversation, agent or id</label>
          <input id="search" type="search" autocomplete="off" @input=${(event: InputEvent) => {
            this.#containing = (event.target as HTMLInputElement).value.trim();
            this.requestUpdate();
          }}></p>
        <p class="field"><label for="outcome">Outcome</label><select id="outcome" @change=${(event: Event) => {
          this.#outcome = (event.target as HTMLSelectElement).value;
          this.requestUpdate();
        }}><option value="">All</option>${outcomes.map((outcome) => html`<option value=${outcome}>${oneLine(outcome)}</option>`)}</select></p>
        <p>${this.#chosen.size === 2
          ? html`<a class="button" href=${studio.href('trace', COMPARE, { a, b })}>Compare the two</a>`
          : html`<span class="faint">Choose two to compare them.</span>`}</p>
      </div>
      ${view.tableView(
        logs.length < total ? `Turns of the ${counted(logs.length, 'conversation')} of ${count(total)} that changed last` : 'Turns, latest first',
        ['Compare', 'Started', 'Conversation', 'Agent', 'Outcome', 'Duration', 'Steps / tools', 'Cost', 'Reason'], rows)}
      ${hasEarlier ? html`<p class="actions"><button type="button" data-earlier ?disabled=${this.isBusy} @click=${earlier}>Earlier turns</button></p>` : nothing}`;
  }

  #traceView({ traceId, isPartial, isBegun, waterfall, asked, layoutMs }: Shown): TemplateResult {
    const { spans, startMs, endMs } = waterfall;
    this.#findWanted(spans);
    if (spans.length === 0) return html`<p class="faint">No spans.</p>`;
    return html`<p><span class="name">${oneLine(traceId)}</span> · ${counted(spans.length, 'span')} ·
        ${duration(endMs - startMs)} ${isBegun ? html`· <span data-begun>so far; the rest is being read</span>` : nothing}
        ${isPartial ? html`· <span class="warn">there may be more</span>` : nothing}</p>
      <gdn-waterfall data-layout-ms=${layoutMs.toFixed(1)} .waterfall=${waterfall} .selected=${this.#selected}
        .onSelect=${(index: number) => this.#select(index)}></gdn-waterfall>
      ${this.#selectedView(waterfall)} ${askedView(asked)} ${this.#table(waterfall)}`;
  }

  override updated(): void {
    this.querySelector<HTMLElement & { requestUpdate(): void }>('gdn-waterfall')?.requestUpdate();
  }

  /** Selects the span of the address, once it is read. */
  #findWanted(spans: Span[]): void {
    if (this.#wanted === null) return;
    const index = spans.findIndex(({ spanId }) => spanId === this.#wanted);
    if (index === -1) return;
    this.#wanted = null;
    this.#selected = index;
    this.#first = Math.floor(index / TABLE_ROWS) * TABLE_ROWS;
  }

  #select(index: number): void {
    this.#selected = index;
    this.#first = Math.floor(index / TABLE_ROWS) * TABLE_ROWS;
    this.requestUpdate();
  }

  #selectedView({ spans, startMs }: Waterfall): TemplateResult | typeof nothing {
    const span = spans[this.#selected];
    if (span === undefined) return nothing;
    return html`<div aria-live="polite" data-selected>${view.factsView([
      ['Span', html`<span class="name">${oneLine(span.name)}</span>`],
      ['Conversation', view.conversationLink(span.instanceKey)],
      ['Started after', duration(span.startMs - startMs)],
      ['Duration', duration(span.endMs - span.startMs)],
      ['Outcome', view.standingView(span.outcome)],
      ['Detail', span.detail === undefined ? '' : oneLine(span.detail)],
      ['Cost', span.costMicroUsd === undefined ? '' : dollars(span.costMicroUsd)],
    ])}</div>`;
  }

  #table({ spans, startMs }: Waterfall): TemplateResult {
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
        spans.slice(this.#first, end).map((span) => spanRow(span, startMs)))}`;
  }

  /** Two traces: their figures, and what each kind of span took in them. */
  #comparison(): TemplateResult {
    const [a, b] = [this.#shown, this.#other];
    if (a === null || b === null) return html`<p>Choose two traces in <a href=${studio.href('trace')}>the list</a>.</p>`;
    const figures = (name: string, of: (shown: Shown) => number, text: (value: number) => string): unknown[] => {
      const [one, two] = [of(a), of(b)];
      return [name, number(text(one)), number(text(two)), differenceView(one, two, text)];
    };
    const total = ({ waterfall: { startMs, endMs } }: Shown): number => endMs - startMs;
    const cost = ({ waterfall: { spans } }: Shown): number => spans.filter(({ kind }) => kind === 'turn').reduce((sum, span) => sum + (span.costMicroUsd ?? 0), 0);
    const of = (kind: Span['kind']) => ({ waterfall: { spans } }: Shown): number => spans.filter((span) => span.kind === kind).length;
    const failed = ({ waterfall: { spans } }: Shown): number => spans.filter(({ outcome }) => outcome === 'failed').length;
    const names = [...new Set([a, b].flatMap(({ waterfall: { spans } }) => spans.map(nameOf)))];
    const time = (name: string) => ({ waterfall: { spans } }: Shown): number =>
      spans.filter((span) => nameOf(span) === name).reduce((sum, span) => sum + span.endMs - span.startMs, 0);
    const heads = ['What', 'A', 'B', 'B compared with A'];
    return html`<p><a href=${studio.href('trace')}>All traces</a></p>
      ${view.factsView([['A', html`<a class="name" href=${studio.href('trace', a.traceId)}>${oneLine(a.traceId)}</a>`],
        ['B', html`<a class="name" href=${studio.href('trace', b.traceId)}>${oneLine(b.traceId)}</a>`]])}
      ${view.tableView('Figures', heads, [
        figures('Duration', total, duration), figures('Cost', cost, dollars), figures('Turns', of('turn'), count),
        figures('Steps', of('step'), count), figures('Tool calls', of('call'), count), figures('Failed', failed, count),
      ])}
      <h2>Time by agent and tool</h2>
      ${view.tableView('Time by agent and tool', heads, names.slice(0, TABLE_ROWS).map((name) => figures(oneLine(name), time(name), duration)))}
      <h2>A</h2><gdn-waterfall .waterfall=${a.waterfall}></gdn-waterfall>
      <h2>B</h2><gdn-waterfall .waterfall=${b.waterfall}></gdn-waterfall>`;
  }
}

/** What a span is compared as: steps together, calls by their tools. */
function nameOf({ kind, agentName, name }: Span): string {
  return kind === 'call' ? `${agentName}: ${name}` : `${agentName}: ${kind === 'step' ? 'steps' : 'turns'}`;
}

function number(text: string): TemplateResult {
  return html`<span class="number">${text}</span>`;
}

function differenceView(one: number, two: number, text: (value: number) => string): TemplateResult {
  if (one === two) return html`<span class="faint">same</span>`;
  const part = one === 0 ? '' : ` (${two > one ? '+' : '−'}${Math.round((Math.abs(two - one) / one) * 100)} %)`;
  return html`<span class="number ${two > one ? 'warn' : 'good'}">${two > one ? '+' : '−'}${text(Math.abs(two - one))}${part}</span>`;
}

function askedView(asked: Asked[]): TemplateResult | typeof nothing {
  if (asked.length === 0) return nothing;
  return html`<h2>Requests between agents</h2>${view.tableView(
    'Requests between agents',
    ['From', 'To', 'Requests'],
    asked.map(({ from, to, times }) => [oneLine(from), oneLine(to), count(times)]),
  )}`;
}

function spanRow(span: Span, startMs: number): unknown[] {
  return [
    span.depth + 1,
    html`<span class="name">${oneLine(span.name)}</span>`,
    oneLine(span.agentName),
    html`<span class="number">${duration(span.startMs - startMs)}</span>`,
    html`<span class="number">${duration(span.endMs - span.startMs)}</span>`,
    view.standingView(span.outcome),
    span.detail === undefined ? '' : oneLine(span.detail),
  ];
}

customElements.define('gdn-trace', TracePage);
