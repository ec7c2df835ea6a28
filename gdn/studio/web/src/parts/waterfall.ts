// The waterfall on a canvas. A table beside it says the same to people who do not see it.

import { html, LitElement, type TemplateResult } from 'lit';
import { barOf, type Waterfall } from '../waterfall.js';
import { duration } from './figures.js';
import { oneLine } from './text.js';
import { rowByKey, scrollTo } from './virtual.js';

const ROW_PX = 20;
/** So few spans need no scrolling. */
const FEW = 14;
/** The part of the width that names take. */
const NAMES_PART = 0.36;
const INDENT_PX = 12;
const INDENT_MAX = 12;

/** The waterfall. Its fields are set by whoever shows it. */
export class WaterfallView extends LitElement {
  waterfall: Waterfall = { spans: [], startMs: 0, endMs: 0 };
  selected = 0;
  onSelect: (index: number) => void = () => undefined;
  #observer: ResizeObserver | null = null;
  readonly #media = matchMedia('(prefers-color-scheme: dark)');
  readonly #redraw = (): void => this.#draw();

  protected override createRenderRoot(): HTMLElement {
    return this;
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.#observer = new ResizeObserver(this.#redraw);
    this.#observer.observe(this);
    this.#media.addEventListener('change', this.#redraw);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.#observer?.disconnect();
    this.#media.removeEventListener('change', this.#redraw);
  }

  protected override render(): TemplateResult {
    const height = this.waterfall.spans.length * ROW_PX;
    return html`<div class=${this.waterfall.spans.length <= FEW ? 'waterfall few' : 'waterfall'} tabindex="0" role="group"
      aria-label="Waterfall; up and down select a span, described below" @scroll=${this.#redraw}
      @keydown=${(event: KeyboardEvent) => this.#key(event)} @click=${(event: MouseEvent) => this.#click(event)}>
      <canvas aria-hidden="true"></canvas>
      <div class="sizer" .style=${`height:${height}px;margin-top:-60vh`}></div>
    </div>`;
  }

  protected override updated(): void {
    this.#draw();
  }

  #box(): HTMLElement | null {
    return this.querySelector('.waterfall');
  }

  #choose(index: number): void {
    const box = this.#box();
    if (box === null || index < 0 || index >= this.waterfall.spans.length) return;
    this.selected = index;
    box.scrollTop = scrollTo(index, ROW_PX, box.scrollTop, box.clientHeight);
    this.#draw();
    this.onSelect(index);
  }

  #key(event: KeyboardEvent): void {
    const seen = Math.floor((this.#box()?.clientHeight ?? 0) / ROW_PX) - 1;
    const next = rowByKey(event.key, this.selected, this.waterfall.spans.length, seen);
    if (next === null || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.#choose(next);
  }

  #click(event: MouseEvent): void {
    const box = this.#box();
    if (box === null) return;
    const y = event.clientY - box.getBoundingClientRect().top + box.scrollTop;
    this.#choose(Math.floor(y / ROW_PX));
  }

  /** Draws the rows that can be seen. */
  #draw(): void {
    const box = this.#box();
    const canvas = this.querySelector('canvas');
    const context = canvas?.getContext('2d');
    if (box === null || canvas === null || context === null || context === undefined) return;
    const { clientWidth: width, clientHeight: height, scrollTop: top } = box;
    const scale = devicePixelRatio;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
    context.scale(scale, scale);
    const style = getComputedStyle(this);
    const color = (name: string): string => style.getPropertyValue(`--${name}`);
    const fills = { completed: color('accent'), failed: color('bad'), open: color('waits') };
    context.font = `13px ${style.fontFamily}`;
    context.textBaseline = 'middle';
    const names = width * NAMES_PART;
    const { spans } = this.waterfall;
    const end = Math.min(spans.length, Math.ceil((top + height) / ROW_PX));
    for (let index = Math.floor(top / ROW_PX); index < end; index += 1) {
      const span = spans[index]!;
      const y = index * ROW_PX - top;
      if (index === this.selected) {
        context.fillStyle = color('raised');
        context.fillRect(0, y, width, ROW_PX);
        context.fillStyle = color('accent');
        context.fillRect(0, y, 3, ROW_PX);
      }
      context.save();
      context.beginPath();
      context.rect(0, y, names - 8, ROW_PX);
      context.clip();
      context.fillStyle = color('text');
      context.fillText(oneLine(span.name).slice(0, 120), 8 + Math.min(span.depth, INDENT_MAX) * INDENT_PX, y + ROW_PX / 2);
      context.restore();
      const bar = barOf(span, this.waterfall);
      const room = width - names - 72;
      const left = names + bar.left * room;
      context.fillStyle = fills[span.outcome];
      context.fillRect(left, y + 4, Math.max(bar.width * room, 2), ROW_PX - 8);
      context.fillStyle = color('faint');
      context.fillText(duration(span.endMs - span.startMs), left + Math.max(bar.width * room, 2) + 4, y + ROW_PX / 2);
    }
  }
}

customElements.define('gdn-waterfall', WaterfallView);
