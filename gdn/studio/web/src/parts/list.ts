// A long list of rows of one height: a listbox with the keyboard of one, and few rows in the document.

import { html, LitElement, nothing, type TemplateResult } from 'lit';
import { rowByKey, scrollTo, windowOf } from './virtual.js';

/** The height of a row in pixels; `style.css` has the same. */
export const ROW_HEIGHT_PX = 56;

/** The list. Its fields are set by whoever shows it. */
export class VirtualList extends LitElement {
  total = 0;
  label = '';
  /** The row of a number, or null while it is not known. */
  row: (index: number) => TemplateResult | null = () => null;
  /** Called with the rows that are shown. */
  onWindow: (first: number, end: number) => void = () => undefined;
  /** Called when a row is chosen. */
  onChoose: (index: number) => void = () => undefined;
  active = 0;
  #observer: ResizeObserver | null = null;
  #told = '';

  protected override createRenderRoot(): HTMLElement {
    return this;
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.#observer = new ResizeObserver(() => this.requestUpdate());
    this.#observer.observe(this);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.#observer?.disconnect();
  }

  #box(): HTMLElement | null {
    return this.querySelector('.rows');
  }

  #key(event: KeyboardEvent): void {
    const box = this.#box();
    if (box === null || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === 'Enter' && this.total > 0) {
      event.preventDefault();
      this.onChoose(this.active);
      return;
    }
    const seen = Math.max(1, Math.floor(box.clientHeight / ROW_HEIGHT_PX) - 1);
    const next = rowByKey(event.key, this.active, this.total, seen);
    if (next === null) return;
    event.preventDefault();
    this.active = next;
    box.scrollTop = scrollTo(next, ROW_HEIGHT_PX, box.scrollTop, box.clientHeight);
    this.requestUpdate();
  }

  protected override updated(): void {
    const box = this.#box();
    if (box === null) return;
    const { first, end } = windowOf(this.total, ROW_HEIGHT_PX, box.scrollTop, box.clientHeight);
    const told = `${first} ${end} ${this.total}`;
    if (told !== this.#told) {
      this.#told = told;
      this.onWindow(first, end);
    }
  }

  protected override render(): TemplateResult {
    this.active = Math.max(0, Math.min(this.active, this.total - 1));
    const box = this.#box();
    const { first, end } = windowOf(this.total, ROW_HEIGHT_PX, box?.scrollTop ?? 0, box?.clientHeight ?? 600);
    const indexes = Array.from({ length: end - first }, (_, at) => first + at);
    const isActiveShown = this.active >= first && this.active < end;
    return html`<div
      class="rows"
      role="listbox"
      tabindex="0"
      aria-label=${this.label}
      aria-activedescendant=${isActiveShown ? `row-${this.active}` : nothing}
      @scroll=${() => this.requestUpdate()}
      @keydown=${(event: KeyboardEvent) => this.#key(event)}
    >
      <div class="sizer" role="none" .style=${`height:${this.total * ROW_HEIGHT_PX}px`}></div>
      ${indexes.map((index) => this.#rowView(index))}
    </div>`;
  }

  #rowView(index: number): TemplateResult {
    const choose = (): void => {
      this.active = index;
      this.onChoose(index);
    };
    return html`<div
      class="row"
      role="option"
      id="row-${index}"
      aria-selected=${index === this.active ? 'true' : 'false'}
      aria-setsize=${this.total}
      aria-posinset=${index + 1}
      .style=${`transform:translateY(${index * ROW_HEIGHT_PX}px)`}
      @click=${choose}
    >
      ${this.row(index) ?? html`<span class="faint">…</span>`}
    </div>`;
  }
}

customElements.define('gdn-list', VirtualList);
