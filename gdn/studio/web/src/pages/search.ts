// Search over everything, by the server. Each hit is shown when it arrives.

import { html, nothing, type TemplateResult } from 'lit';
import { repeat } from 'lit/directives/repeat.js';
import { type ApiError, asApiError } from '../api.js';
import { Page } from '../page.js';
import { count, counted } from '../parts/figures.js';
import { harmless, oneLine } from '../parts/text.js';
import { failureView, timeView } from '../parts/views.js';
import { ANSWER_HITS, type Found, type Hit, HITS_MAX, hrefOf, kindOf, NOTHING, withLine } from '../search.js';
import { answerOf } from '../searching.js';
import { studio } from '../studio.js';
import type { WorkspaceChange } from '../types.js';

/** Many hits in a row are drawn once. */
const DRAW_MS = 50;

class SearchPage extends Page {
  #found: Found = NOTHING;
  #running: AbortController | null = null;
  #problem: ApiError | null = null;
  #drawing: ReturnType<typeof setTimeout> | undefined;

  get #text(): string {
    return (this.route.query.get('q') ?? '').trim();
  }

  /** True if only the shown workspace is searched. */
  get #isHere(): boolean {
    return this.route.query.get('in') === 'workspace';
  }

  protected heading(): string {
    return 'Search';
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    return change === null && !this.isRead;
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    // The server ends a search whose connection is closed.
    this.#running?.abort();
    clearTimeout(this.#drawing);
  }

  protected async read(): Promise<void> {
    if (this.#running !== null || this.#text === '') return;
    this.#found = NOTHING;
    void this.#run();
  }

  /** Searches until there are more hits to show, or to the end. */
  async #run(): Promise<void> {
    const running = new AbortController();
    this.#running = running;
    this.#problem = null;
    this.requestUpdate();
    try {
      let isWorkLeft = true;
      while (isWorkLeft && !running.signal.aborted) {
        const { hits: { length: before }, next } = this.#found;
        await answerOf(this.#text, this.#isHere ? (studio.workspaceId ?? undefined) : undefined, next, running.signal, (line) => {
          this.#found = withLine(this.#found, line);
          this.#drawSoon();
        });
        isWorkLeft = !this.#found.isOver && this.#found.hits.length - before < ANSWER_HITS && this.#found.hits.length < HITS_MAX;
      }
      if (this.isConnected) studio.announce(`${counted(this.#found.hits.length, 'hit')}.`);
    } catch (thrown) {
      if (!running.signal.aborted) this.#problem = asApiError(thrown);
    } finally {
      this.#running = null;
      this.requestUpdate();
    }
  }

  #drawSoon(): void {
    this.#drawing ??= setTimeout(() => {
      this.#drawing = undefined;
      this.requestUpdate();
    }, DRAW_MS);
  }

  protected content(): TemplateResult {
    const go = (event: SubmitEvent): void => {
      event.preventDefault();
      const q = this.querySelector<HTMLInputElement>('#q')?.value.trim() ?? '';
      const isHere = this.querySelector<HTMLInputElement>('#here')?.checked === true;
      location.hash = studio.href('search', '', { q, ...(isHere ? { in: 'workspace' } : {}) });
    };
    return html`<form class="filters" role="search" @submit=${go}>
        <p class="field search"><label for="q">Text in messages, traces, tasks, proposals, events and logs</label>
          <input id="q" type="search" data-search autocomplete="off" maxlength="256" .value=${this.#text}></p>
        <p><label><input id="here" type="checkbox" .checked=${this.#isHere}> Only this workspace</label></p>
        <p><button type="submit">Search</button></p>
      </form>
      ${this.#text === '' ? html`<p class="faint">Searches all workspaces, the latest conversations first.</p>` : this.#results()}`;
  }

  #results(): TemplateResult {
    const { hits, isOver, skipped } = this.#found;
    const isFull = hits.length >= HITS_MAX;
    return html`${this.#problem === null ? nothing : failureView(this.#problem)}
      <p class="actions"><span class="faint" data-over=${this.#running === null ? 'true' : 'false'}>${this.#summary()}</span>
        ${this.#running === null ? nothing : html`<button type="button" class="small" @click=${() => this.#running?.abort()}>Stop</button>`}</p>
      ${skipped === 0 ? nothing : html`<p class="warn">${counted(skipped, 'item')} could not be read.</p>`}
      <ol class="hits">${repeat(hits, (hit) => JSON.stringify(hit), (hit) => this.#hit(hit))}</ol>
      ${this.#running !== null || isOver ? nothing
        : isFull ? html`<p class="warn">Search for a longer text: only the first ${count(HITS_MAX)} hits are shown.</p>`
          : html`<p><button type="button" @click=${() => void this.#run()}>Continue the search</button></p>`}`;
  }

  #summary(): string {
    const { hits, read, isOver } = this.#found;
    const found = counted(hits.length, 'hit');
    if (isOver) return `${found}. Everything was searched.`;
    return `${found} so far, in ${counted(read, 'searched conversation, task or proposal', 'searched conversations, tasks and proposals')}.`;
  }

  #hit(hit: Hit): TemplateResult {
    const { workspaceId, title, at, text } = hit;
    const workspace = studio.workspaces.find((one) => one.workspaceId === workspaceId);
    const isOther = workspaceId !== undefined && workspaceId !== studio.workspaceId;
    return html`<li><span class="kind">${kindOf(hit)}</span> <a href=${hrefOf(hit, this.#text)} class="name">${oneLine(title === '' ? hit.id : title)}</a>
      <span class="faint">${timeView(at)} ${isOther ? oneLine(workspace?.package ?? workspace?.projectRoot ?? workspaceId) : nothing}</span><br>
      ${harmless(text.before)}<mark>${harmless(text.found)}</mark>${harmless(text.after)}</li>`;
  }
}

customElements.define('gdn-search', SearchPage);
