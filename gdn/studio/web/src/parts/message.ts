// A message of a conversation. Its content is untrusted and shown as text.

import { html, nothing, type TemplateResult } from 'lit';
import type { Reply } from '../live.js';
import { partsOf } from '../messages.js';
import type { Json, Message, Part } from '../types.js';
import { harmless, oneLine } from './text.js';
import { blockView, jsonView, textView, timeView } from './views.js';

/** Results longer than this are folded. */
const FOLDED_CHARACTERS = 600;

const WHO: Record<string, string> = { user: 'User', assistant: 'Agent', tool: 'Tool', system: 'System' };

/** State and toggle of a shortened message. */
export interface Cut {
  isWhole: boolean;
  toggle: () => void;
}

/** A message; `isPending` if it is of the turn in progress. */
export function messageView(message: Message, isPending: boolean, cut?: Cut): TemplateResult {
  const { role } = message.data;
  const from = message.source.extensionName ?? message.source.toolName;
  return html`<article class="message ${role}" data-message=${message.id} aria-label=${`${WHO[role] ?? oneLine(role)} message`}>
    <header><strong>${WHO[role] ?? oneLine(role)}</strong> ${from === undefined ? nothing : html`<span class="name">${oneLine(from)}</span>`}
      ${timeView(message.createdAt)} ${isPending ? html`<span class="standing waits">turn in progress</span>` : nothing}</header>
    ${partsOf(message).map(partView)} ${cut === undefined ? nothing : cutView(cut)}
  </article>`;
}

/** The button stays where it is, so that the focus does, too. */
function cutView({ isWhole, toggle }: Cut): TemplateResult {
  return html`${isWhole ? nothing : html`<p class="faint">This message is long: only the beginning of each text is shown.</p>`}
    <p><button type="button" aria-expanded=${isWhole ? 'true' : 'false'} @click=${toggle}>
      ${isWhole ? 'Show less' : 'Show the complete message'}
    </button></p>`;
}

/** Reply of the model so far in a turn in progress. */
export function replyView({ text, reasoning, isCut, note }: Reply): TemplateResult {
  return html`<article class="message assistant" data-reply aria-busy="true" aria-label="Agent message in progress">
    <header><strong>Agent</strong> <span class="standing waits">is writing</span></header>
    ${reasoning === '' ? nothing : html`<details><summary>Thoughts</summary>${textView(reasoning)}</details>`}
    ${text === '' ? nothing : html`<div class="said" data-text>${isCut ? '…' : ''}${textView(text)}</div>`}
    ${note === '' ? nothing : html`<p class="faint">${oneLine(note)}</p>`}
  </article>`;
}

function partView(part: Part): TemplateResult {
  if (part.type === 'text' && typeof part.text === 'string') {
    return html`<div class="said" data-text>${textView(part.text)}</div>`;
  }
  if (part.type === 'tool-call') {
    const name = oneLine(String(part.toolName));
    return html`<div class="call"><p>Calls <span class="name">${name}</span></p>
      ${blockView(JSON.stringify((part as { input?: Json }).input, null, 2) ?? '', `Arguments of ${name}`)}</div>`;
  }
  if (part.type === 'tool-result') return resultView(part as ResultPart);
  return jsonView(part as Json, `Part of type ${oneLine(part.type)}`);
}

type ResultPart = { toolName: string; output?: { type?: string; value?: Json } };

function resultView({ toolName, output }: ResultPart): TemplateResult {
  const value = output?.value;
  const text = typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? '');
  const isError = output?.type?.startsWith('error') === true;
  const label = `${isError ? 'Error' : 'Result'} of ${oneLine(toolName)}`;
  const block = blockView(text, label);
  if (text.length <= FOLDED_CHARACTERS) return html`<div class=${isError ? 'result bad' : 'result'}><p>${label}</p>${block}</div>`;
  return html`<details class=${isError ? 'result bad' : 'result'}>
    <summary>${label}: ${harmless(text.slice(0, 80).split('\n')[0] ?? '')}…</summary>${block}
  </details>`;
}
