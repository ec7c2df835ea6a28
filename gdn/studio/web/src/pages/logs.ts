// Logs: the log as it is written.

import { html, type TemplateResult } from 'lit';
import { FollowingPage } from '../following.js';
import { counted } from '../parts/figures.js';
import { oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { type LogLine, logReducer, type LogState } from '../store.js';
import { Feed } from '../stream.js';
import { studio } from '../studio.js';

const TAIL_LINES = 500;
/** More are not in the document. */
const SHOWN_MAX = 500;
const LEVELS = ['trace', 'debug', 'info', 'warn', 'error'];

class LogsPage extends FollowingPage<LogState, { line: LogLine }> {
  #containing = '';
  #level = 'trace';
  #isPaused = false;
  #shown: LogLine[] = [];
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
    const text = this.#containing.toLowerCase();
    const least = LEVELS.indexOf(this.#level);
    const isChosen = (line: LogLine): boolean =>
      LEVELS.indexOf(line.level) >= least && (text === '' || JSON.stringify(line).toLowerCase().includes(text));
    this.#shown = (this.feed?.state.lines ?? []).filter(isChosen).slice(-SHOWN_MAX);
    this.requestUpdate();
  }

  protected override updated(): void {
    const box = this.querySelector<HTMLElement>('.log');
    if (box !== null && !this.#isPaused) box.scrollTop = box.scrollHeight;
  }

  protected content(): TemplateResult {
    const feed = this.feed;
    return html`${feed?.standing === 'lost' && feed.failure !== null ? view.failureView(feed.failure) : ''}
      <div class="filters">
        <p class="field search"><label for="search">Filter lines by text</label>
          <input id="search" type="search" data-search autocomplete="off" @input=${(event: InputEvent) => {
            this.#containing = (event.target as HTMLInputElement).value.trim();
            this.#choose();
          }}></p>
        <p class="field"><label for="level">Minimum level</label>
          <select id="level" @change=${(event: Event) => {
            this.#level = (event.target as HTMLSelectElement).value;
            this.#choose();
          }}>${LEVELS.map((level) => html`<option value=${level}>${level}</option>`)}</select></p>
        <p><button type="button" aria-pressed=${this.#isPaused ? 'true' : 'false'} @click=${() => {
          this.#isPaused = !this.#isPaused;
          this.#choose();
        }}>Freeze</button></p>
      </div>
      <p class="faint">${counted(this.#shown.length, 'line')}</p>
      <pre class="log" tabindex="0" role="group" aria-label="Lines of the log">${this.#shown.map(
        (line) => html`<span class=${line.level}>${lineText(line)}\n</span>`,
      )}</pre>`;
  }
}

/** A line: its time, level and message, then its fields. */
function lineText({ timestamp, level, message, ...fields }: LogLine): string {
  const { pid: _pid, workspaceId: _workspaceId, ...others } = fields;
  const facts = Object.entries(others).map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`);
  return oneLine([timestamp, level.toUpperCase().padEnd(5), message, ...facts].join(' '));
}

customElements.define('gdn-logs', LogsPage);
