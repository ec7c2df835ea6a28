// Program texts with colors. All text is untrusted, and is only ever text.

import { html, type TemplateResult } from 'lit';
import type { CodePiece } from '../rich.js';
import { richNow } from './loader.js';
import { harmless } from './text.js';

/** Longer texts are not colored: it would hold up the page. */
const CODE_CHARACTERS_MAX = 200_000;
/** Longer lines are not compared word by word. */
const WORD_CHARACTERS_MAX = 500;

/** Ranges of characters of a line. */
export type Ranges = [number, number][];

/** The lines of a text in colored pieces; null if they are not known. */
export function piecesOf(lines: string[], language: string): CodePiece[][] | null {
  const text = lines.join('\n');
  if (text.length > CODE_CHARACTERS_MAX) return null;
  const colored = richNow()?.codeLines(text, language) ?? null;
  return colored !== null && colored.length === lines.length ? colored : null;
}

/** The changed words of two lines. */
export function wordsOf(old: string, next: string): { old: Ranges; next: Ranges } | null {
  if (old.length > WORD_CHARACTERS_MAX || next.length > WORD_CHARACTERS_MAX) return null;
  return richNow()?.changedWords(old, next) ?? null;
}

/** A line of code. Its pieces are cut where changed words begin and end. */
export function lineView(text: string, pieces: CodePiece[] | undefined, marked: Ranges = []): unknown {
  if (pieces === undefined && marked.length === 0) return harmless(text);
  const out: TemplateResult[] = [];
  let at = 0;
  for (const { text: piece, tone } of pieces ?? [{ text, tone: '' }]) {
    const end = at + piece.length;
    while (at < end) {
      const range = marked.find(([from, to]) => from < end && to > at);
      const isMarked = range !== undefined && range[0] <= at;
      const to = range === undefined ? end : isMarked ? Math.min(end, range[1]) : Math.min(end, range[0]);
      out.push(html`<span class=${isMarked ? `${tone} word` : tone}>${harmless(piece.slice(piece.length - (end - at), piece.length - (end - to)))}</span>`);
      at = to;
    }
  }
  return out;
}

/** A block of code, colored if its language is known. */
export function codeView(text: string, language: string, label: string): TemplateResult {
  const lines = text.split('\n');
  const pieces = piecesOf(lines, language);
  return html`<pre tabindex="0" role="group" aria-label=${label}><code>${
    pieces === null ? harmless(text) : lines.map((line, at) => html`${lineView(line, pieces[at])}${at < lines.length - 1 ? '\n' : ''}`)
  }</code></pre>`;
}
