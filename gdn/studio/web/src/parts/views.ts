// Small pieces of pages.

import { html, nothing, type TemplateResult } from 'lit';
import type { ApiError } from '../api.js';
import { addressOf } from '../router.js';
import { studio } from '../studio.js';
import type { Checkpoint, Json } from '../types.js';
import { ago, bytes, timeOf } from './figures.js';
import { command, harmless, oneLine, pieces } from './text.js';

/** An error with what to do about it. */
export function failureView(failure: ApiError): TemplateResult {
  return html`<div class="failure" role="alert">
    <p><strong>${harmless(failure.message)}</strong></p>
    ${failure.suggestion === undefined ? nothing : html`<p>Next step: ${harmless(failure.suggestion)}</p>`}
  </div>`;
}

/** A time of the daemon; nothing if it is unknown. */
export function timeView(at: string | undefined): TemplateResult | typeof nothing {
  return at === undefined ? nothing : html`<time datetime=${at} title=${at}>${timeOf(at)}</time>`;
}

/** How long ago something was, with the time itself. */
export function agoView(at: string | undefined): TemplateResult {
  return at === undefined ? html`at an unknown time` : html`<time datetime=${at} title=${at}>${ago(at)}</time>`;
}

/** The command that does the same: what stands in place of a button where nothing may be changed. */
export function commandView(...words: string[]): TemplateResult {
  return html`<code class="command">${harmless(command(...words))}</code>`;
}

/** A text that somebody else wrote, line by line. Addresses of the web are links. */
export function textView(text: string): TemplateResult {
  return html`<span class="text">${pieces(text).map((piece) =>
    piece.href === undefined
      ? piece.text
      : html`<a href=${piece.href} target="_blank" rel="noopener noreferrer">${piece.text}</a>`,
  )}</span>`;
}

/** A JSON value, indented. */
export function jsonView(value: Json | undefined, label: string): TemplateResult {
  return html`<pre tabindex="0" role="group" aria-label=${label}>${harmless(JSON.stringify(value, null, 2) ?? '')}</pre>`;
}

/** A text in a box of its own that scrolls. */
export function blockView(text: string, label: string): TemplateResult {
  return html`<pre tabindex="0" role="group" aria-label=${label}>${harmless(text)}</pre>`;
}

/** A name, with what it is called by the daemon. */
export function nameView(name: string): TemplateResult {
  return html`<span class="name">${oneLine(name)}</span>`;
}

/** The first cells of a checkpoint's row: id, time, name and size. Of a damaged one, only the id may be known. */
export function checkpointCells({ checkpointId, createdAt, name, type, snapshotSize }: Checkpoint): unknown[] {
  return [oneLine(checkpointId), timeView(createdAt), oneLine(name ?? type), createdAt === undefined ? '' : bytes(snapshotSize)];
}

/** Reason why something cannot be used. */
export function damageView(why: string): TemplateResult {
  return html`${standingView('damaged')} ${oneLine(why)}`;
}

/** A link to a conversation. */
export function conversationLink(instanceKey: string, workspaceId = studio.workspaceId): TemplateResult {
  return html`<a href=${addressOf(workspaceId, 'conversation', instanceKey)} class="name">${oneLine(instanceKey)}</a>`;
}

/** How something stands, as a word with a color. */
export function standingView(standing: string): TemplateResult {
  return html`<span class="standing ${toneOf(standing)}">${oneLine(standing)}</span>`;
}

const GOOD = ['ready', 'processing', 'running', 'completed', 'applied', 'live', 'committed', 'promoted', 'delivered'];
const BAD = ['failed', 'crashLoopBackOff', 'notReady', 'parked', 'lost', 'cancelled', 'error', 'rejected', 'damaged'];
const WAITS = ['paused', 'waiting', 'open', 'warn', 'draining', 'spawning', 'connecting'];

function toneOf(standing: string): string {
  if (GOOD.includes(standing)) return 'good';
  if (BAD.includes(standing)) return 'bad';
  return WAITS.includes(standing) || standing.startsWith('waiting') ? 'waits' : '';
}

/** A table that scrolls sideways in itself on a narrow screen. */
export function tableView(label: string, heads: string[], rows: unknown[][]): TemplateResult {
  if (rows.length === 0) return html`<p class="faint">${label}: none.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody>
    </table>
  </div>`;
}

/** Facts by their names. */
export function factsView(facts: [string, unknown][]): TemplateResult {
  const known = facts.filter(([, value]) => value !== undefined && value !== '' && value !== null);
  return html`<dl>${known.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}
