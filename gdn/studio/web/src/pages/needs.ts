// The inbox: decisions in all workspaces, made where they are shown.

import { html, nothing, type TemplateResult } from 'lit';
import { repeat } from 'lit/directives/repeat.js';
import { itemView } from '../decisions.js';
import { inbox, notifications, toggleNotifications } from '../inbox.js';
import { type Item, KINDS } from '../needs.js';
import { isEvent, Page } from '../page.js';
import { counted } from '../parts/figures.js';
import { failureView } from '../parts/views.js';
import { studio } from '../studio.js';
import type { WorkspaceChange } from '../types.js';

/** More items are not shown at once. */
const SHOWN_STEP = 200;

/** Events after which the inbox is read again. */
const KINDS_OF_EVENTS = [
  'approval.', 'question.', 'call.', 'event.p', 'event.r', 'event.dropped', 'event.cancelled', 'proposal.', 'bundle.', 'task.', 'budget.',
  'configuration.', 'instance.deleted',
];

/** The page. Its rows are kept by their keys, so that the focus never moves to another decision. */
class NeedsPage extends Page {
  readonly #patches = new Map<string, string>();
  #kind = '';
  #containing = '';
  #shown = SHOWN_STEP;
  #isFirst = true;
  #hasActed = false;
  #timer: ReturnType<typeof setInterval> | undefined;

  protected heading(): string {
    return 'Needs a person';
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.#timer = setInterval(() => {
      if (!document.hidden && inbox.isOld) this.readSoon();
    }, 5000);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    clearInterval(this.#timer);
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    return super.concerns(change) || isEvent(change, ...KINDS_OF_EVENTS);
  }

  protected async read(): Promise<void> {
    await inbox.read(this.#isFirst || this.#hasActed || inbox.isOld ? null : studio.workspaceId);
    this.#hasActed = false;
    if (!this.#isFirst) return;
    this.#isFirst = false;
    const wanted = this.route.query.get('item');
    if (wanted !== null) void this.updateComplete.then(() => requestAnimationFrame(() => this.#find(wanted)));
  }

  /** The item of a link gets the focus. */
  #find(id: string): void {
    const item = [...this.querySelectorAll<HTMLElement>('[data-item]')].find((one) => one.dataset['item'] === id);
    item?.focus();
    item?.scrollIntoView({ block: 'start' });
  }

  protected content(): TemplateResult | typeof nothing {
    const all = inbox.items;
    const text = this.#containing.toLowerCase();
    const isChosen = (item: Item): boolean =>
      (this.#kind === '' || item.kind === this.#kind) && (text === '' || `${item.title} ${item.id} ${item.workspace}`.toLowerCase().includes(text));
    const found = all.filter(isChosen);
    const shown = found.slice(0, this.#shown);
    const decider = {
      isBusy: this.isBusy,
      patches: this.#patches,
      act: (what: string, action: () => Promise<string | void>) => {
        this.#hasActed = true;
        return this.act(what, action);
      },
    };
    return html`${inbox.failures.map((failure) => failureView(failure))}
      ${all.length > 0 || text !== '' ? this.#filters(all, found.length) : html`<p class="actions">${this.#notify()}</p>`}
      ${all.length === 0 && inbox.failures.length === 0 ? html`<p>Nothing needs a person.</p>` : nothing}
      <div class="items" @keydown=${pressed}>${repeat(shown, ({ key }) => key, (item) => itemView(item, decider))}</div>
      ${found.length > shown.length
        ? html`<p><button type="button" @click=${() => {
            this.#shown += SHOWN_STEP;
            this.requestUpdate();
          }}>Show more (${found.length - shown.length})</button></p>`
        : nothing}`;
  }

  #filters(all: Item[], found: number): TemplateResult {
    const kinds = Object.entries(KINDS).filter(([kind]) => all.some((item) => item.kind === kind));
    return html`<div class="filters">
      <p class="field search"><label for="search">Filter by name or workspace</label>
        <input id="search" type="search" data-search autocomplete="off" @input=${(event: InputEvent) => {
          this.#containing = (event.target as HTMLInputElement).value.trim();
          this.requestUpdate();
        }}></p>
      <p class="field"><label for="kind">Kind</label>
        <select id="kind" @change=${(event: Event) => {
          this.#kind = (event.target as HTMLSelectElement).value;
          this.requestUpdate();
        }}><option value="">All (${all.length})</option>${kinds.map(([kind, name]) =>
          html`<option value=${kind}>${name} (${all.filter((item) => item.kind === kind).length})</option>`)}</select></p>
      ${this.#notify()}
    </div>
    <p class="faint">${counted(found, 'item')}, oldest first. <kbd>J</kbd> and <kbd>K</kbd> move, <kbd>A</kbd> and <kbd>D</kbd> press the first and the
      second button, <kbd>S</kbd> shows a patch, <kbd>O</kbd> opens.</p>`;
  }

  #notify(): TemplateResult {
    const state = notifications();
    if (state === 'denied') return html`<p class="faint">The browser does not allow notifications.</p>`;
    return html`<p><button type="button" aria-pressed=${state === 'on' ? 'true' : 'false'} @click=${() =>
      void toggleNotifications().then(() => this.requestUpdate())}>Notify me</button></p>`;
  }
}

/** Keys of the item with the focus: J, K and the arrows move, the others press its buttons. */
function pressed(event: KeyboardEvent): void {
  const item = event.target as HTMLElement;
  if (!item.matches('.item') || event.ctrlKey || event.altKey || event.metaKey) return;
  const key = event.key.toLowerCase();
  const steps: Record<string, number> = { arrowdown: 1, j: 1, arrowup: -1, k: -1 };
  const step = steps[key];
  let target: HTMLElement | null | undefined;
  if (step !== undefined) {
    const items = [...document.querySelectorAll<HTMLElement>('gdn-needs .items > .item')];
    target = items[items.indexOf(item) + step];
    target?.focus();
  } else {
    target = key === 'o' ? item.querySelector<HTMLElement>('[data-open], a') : item.querySelector<HTMLElement>(`button[data-press="${CSS.escape(key)}"]`);
    target?.focus();
    target?.click();
  }
  if (target !== null && target !== undefined) event.preventDefault();
}

customElements.define('gdn-needs', NeedsPage);
