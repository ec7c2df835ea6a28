// Logs: the log as it is written, as a table with filters.

import { html, nothing, type TemplateResult } from 'lit';
import { repeat } from 'lit/directives/repeat.js';
import { FollowingPage } from '../following.js';
import { counted } from '../parts/figures.js';
import { oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { LOG_LINES_MAX, type LogLine, logReducer, type LogState } from '../store.js';
import { Feed } from '../stream.js';
import { studio } from '../studio.js';

const TAIL_LINES = LOG_LINES_MAX;
/** More are not in the document. */
const SHOWN_MAX = 300;
const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'];
/** From so near to its end on, the table follows what arrives. */
const NEAR_END_PX = 60;

class LogsPage extends FollowingPage<LogState, { line: LogLine }> {
  #containing = '';
  #isFilterRead = false;
  #level = 'trace';
  #process = '';
  #isPaused = false;
  #isAtEnd = true;
  #shown: LogLine[] = [];
  /** Lines whose fields are shown. */
  readonly #open = new Set<LogLine>();
  readonly #numbers = new WeakMap<LogLine, number>();
  #count = 0;
  #frame = 0;

  protected heading(): string {
    return 'Logs';
  }

  protected begin(): Feed<LogState, { line: LogLine }> {
    return new Feed('logs.follow', studio.of({ tail: TAIL_LINES, follow: true }), logReducer);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    cancelAnimationFrame(this.#frame);
  }

  /** Many lines in one frame are drawn once. */
  protected override told(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => {
      if (!this.#isPaused) this.#choose();
    });
  }

  #choose(): void {
    this.#readFilter();
    const text = this.#containing.toLowerCase();
    const least = LEVELS.indexOf(this.#level);
    const isChosen = (line: LogLine): boolean =>
      LEVELS.indexOf(line.level) >= least && (this.#process === '' || String(line['process']) === this.#process) &&
      (text === '' || JSON.stringify(line).toLowerCase().includes(text));
    this.#shown = (this.feed?.state.lines ?? []).filter(isChosen).slice(-SHOWN_MAX);
    this.requestUpdate();
  }

  protected override updated(): void {
    const box = this.querySelector<HTMLElement>('.log');
    if (box !== null && !this.#isPaused && this.#isAtEnd) box.scrollTop = box.scrollHeight;
  }

  /** The filter of the address, such as that of a search, until another one is typed. */
  #readFilter(): void {
    if (this.#isFilterRead) return;
    this.#isFilterRead = true;
    this.#containing = this.route.query.get('q') ?? '';
  }

  protected content(): TemplateResult {
    this.#readFilter();
    const feed = this.feed;
    const processes = [...new Set((feed?.state.lines ?? []).map((line) => String(line['process'] ?? '')))].filter((name) => name !== '').sort();
    const select = (id: string, label: string, values: [string, string][], choose: (value: string) => void): TemplateResult =>
      html`<p class="field"><label for=${id}>${label}</label><select id=${id} @change=${(event: Event) => {
        choose((event.target as HTMLSelectElement).value);
        this.#choose();
      }}>${values.map(([value, name]) => html`<option value=${value}>${oneLine(name)}</option>`)}</select></p>`;
    const scrolled = (event: Event): void => {
      const box = event.target as HTMLElement;
      this.#isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END_PX;
    };
    return html`${feed?.standing === 'lost' && feed.failure !== null ? view.failureView(feed.failure) : ''}
      <div class="filters">
        <p class="field search"><label for="search">Filter lines by text</label>
          <input id="search" type="search" data-search autocomplete="off" .defaultValue=${this.#containing} @input=${(event: InputEvent) => {
            this.#containing = (event.target as HTMLInputElement).value.trim();
            this.#choose();
          }}></p>
        ${select('level', 'Minimum level', LEVELS.map((level) => [level, level]), (value) => {
          this.#level = value;
        })}
        ${select('process', 'Process', [['', 'All'], ...processes.map((name): [string, string] => [name, name])], (value) => {
          this.#process = value;
        })}
        <p><button type="button" aria-pressed=${this.#isPaused ? 'true' : 'false'} @click=${() => {
          this.#isPaused = !this.#isPaused;
          this.#choose();
        }}>Freeze</button></p>
      </div>
      <p class="faint">${counted(this.#shown.length, 'line')}</p>
      <div class="log scroll" tabindex="0" role="region" aria-label="Lines of the log" @scroll=${scrolled}><table>
        <thead><tr>${['Time', 'Level', 'Who', 'Message', 'Fields'].map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
        <tbody>${repeat(this.#shown, (line) => this.#number(line), (line) => this.#row(line))}</tbody></table></div>`;
  }

  #number(line: LogLine): number {
    let number = this.#numbers.get(line);
    if (number === undefined) {
      this.#count += 1;
      number = this.#count;
      this.#numbers.set(line, number);
    }
    return number;
  }

  /** A line: its time, level, origin and message; its other fields on request. */
  #row(line: LogLine): TemplateResult {
    const { timestamp, level, message, pid: _pid, workspaceId: _workspaceId, process, ...fields } = line;
    const { instanceKey, agentName, connection } = fields as Record<string, string | undefined>;
    const who = instanceKey ?? agentName ?? connection ?? process;
    const facts = Object.entries(fields).map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`);
    const isOpen = this.#open.has(line);
    const toggle = (): void => {
      if (!this.#open.delete(line)) this.#open.add(line);
      this.requestUpdate();
    };
    return html`<tr class=${level}>
      <td class="time">${view.timeView(timestamp)}</td><td class="level">${oneLine(level)}</td>
      <td>${instanceKey === undefined ? html`<span class="name">${oneLine(String(who ?? ''))}</span>` : view.conversationLink(instanceKey)}</td>
      <td>${oneLine(message)}${isOpen ? html`<pre>${facts.map((fact) => html`${oneLine(fact)}\n`)}</pre>` : nothing}</td>
      <td>${facts.length === 0 ? nothing : html`<button type="button" class="small" aria-expanded=${isOpen ? 'true' : 'false'}
        aria-label=${`${facts.length} fields of ${oneLine(message)}`} @click=${toggle}>${facts.length}</button>`}</td></tr>`;
  }
}

customElements.define('gdn-logs', LogsPage);
