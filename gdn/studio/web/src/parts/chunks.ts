// Entries of different heights, such as messages: of many, only those near the visible ones are in the document. Few are
// all there, so that the browser's own search finds everything.

import { html, type ReactiveController, type ReactiveControllerHost, type TemplateResult } from 'lit';
import { repeat } from 'lit/directives/repeat.js';
import { chunksOf } from './virtual.js';

/** So many entries are all in the document. */
const WHOLE_MAX = 300;
const CHUNK_ENTRIES = 25;
/** The height of an entry that was never in the document. */
const ENTRY_PX = 110;
/** Entries so far from the visible ones are in the document. */
const AROUND = '1200px 0px';

/** Shows the entries of a page that scrolls as a whole. */
export class Chunks implements ReactiveController {
  readonly #host: ReactiveControllerHost & Element;
  /** Heights of the chunks that have left the document, by their numbers. */
  readonly #away = new Map<number, number>();
  #observer: IntersectionObserver | null = null;
  #isLong = false;

  constructor(host: ReactiveControllerHost & Element) {
    this.#host = host;
    host.addController(this);
  }

  hostConnected(): void {
    this.#observer = new IntersectionObserver((entries) => this.#moved(entries), { rootMargin: AROUND });
  }

  hostDisconnected(): void {
    this.#observer?.disconnect();
  }

  hostUpdated(): void {
    for (const chunk of this.#host.querySelectorAll('[data-chunk]')) this.#observer?.observe(chunk);
  }

  /** Forgets the heights, because the entries are others. */
  forget(): void {
    this.#away.clear();
  }

  /** Takes entries out of the document that were never in it, except those around `at`; they come back when they are near. */
  skipTo(before: number, loaded: number, at: number): void {
    for (const { number, first, end } of chunksOf(before, loaded, CHUNK_ENTRIES)) {
      if (at >= first - CHUNK_ENTRIES && at < end + CHUNK_ENTRIES) this.#away.delete(number);
      else if (!this.#away.has(number)) this.#away.set(number, (end - first) * ENTRY_PX);
    }
  }

  /** `loaded` entries, before which `before` are not loaded. */
  view(before: number, loaded: number, keyOf: (at: number) => string, entry: (at: number) => TemplateResult): unknown {
    this.#isLong = loaded > WHOLE_MAX;
    if (!this.#isLong) this.#away.clear();
    const chunks = chunksOf(before, loaded, CHUNK_ENTRIES).map(({ number, first, end }) => {
      const height = this.#away.get(number);
      if (height !== undefined) return { number, view: html`<div class="away" data-chunk=${number} .style=${`height:${height}px`}></div>` };
      // Made here and not by `repeat`, which calls back after the rest of the page was made.
      const entries = Array.from({ length: end - first }, (_, at) => ({ key: keyOf(first + at), view: entry(first + at) }));
      return { number, view: html`<div data-chunk=${number}>${repeat(entries, ({ key }) => key, ({ view }) => view)}</div>` };
    });
    return repeat(chunks, ({ number }) => number, ({ view }) => view);
  }

  /** Chunks that came near are shown, and those that are far leave the document, unless a person works in them. */
  #moved(entries: IntersectionObserverEntry[]): void {
    let isChanged = false;
    for (const { target, isIntersecting, boundingClientRect } of entries) {
      const number = Number((target as HTMLElement).dataset['chunk']);
      if (isIntersecting !== this.#away.has(number)) continue;
      if (isIntersecting) this.#away.delete(number);
      else {
        const isUsed = target.contains(document.activeElement) || target.querySelector('details[open]') !== null;
        if (!this.#isLong || isUsed || boundingClientRect.height === 0) continue;
        this.#away.set(number, boundingClientRect.height);
      }
      isChanged = true;
    }
    if (isChanged) this.#host.requestUpdate();
  }
}
