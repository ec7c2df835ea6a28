// Messages of a conversation: Markdown of the agent, and each tool call folded together with its result. The content is
// untrusted: Markdown becomes templates, and all else is text.

import { html, nothing, type TemplateResult } from 'lit';
import type { Reply } from '../live.js';
import { partsOf } from '../messages.js';
import type { StepFigures } from '../turns.js';
import type { Json, Message, Part } from '../types.js';
import { dollars, duration } from './figures.js';
import { markdownView } from './markdown.js';
import { harmless, head, oneLine } from './text.js';
import { blockView, jsonView, standingView, textView, timeView } from './views.js';

/** So much of a call's arguments is in the line of the folded call. */
const HEAD_CHARACTERS = 100;

const WHO: Record<string, string> = { user: 'User', assistant: 'Agent', tool: 'Tool', system: 'System' };

/** State and toggle of a shortened message. */
export interface Cut {
  isWhole: boolean;
  toggle: () => void;
}

/** The result of a tool call, and the message that has it. */
export interface CallResult {
  part: ResultPart;
  message: Message;
  cut: Cut | undefined;
}

/** What a message is shown with. */
export interface MessageContext {
  /** True if the message is of the turn in progress. */
  isPending: boolean;
  cut?: Cut | undefined;
  step?: StepFigures | undefined;
  /** Address of a trace. */
  traceHref: (traceId: string) => string;
  /** The result of a call, if it is known. */
  result: (toolCallId: string) => CallResult | undefined;
  /** True if the call of a result is shown: the result is with it. */
  hasCall: (toolCallId: string) => boolean;
  /** What a person decides about a call. */
  decision: (toolCallId: string) => TemplateResult | typeof nothing;
}

/** A message. */
export function messageView(message: Message, context: MessageContext): TemplateResult {
  const { role } = message.data;
  const parts = partsOf(message);
  // All its results are with their calls.
  const isShownElsewhere = parts.length > 0 && parts.every((part) => part.type === 'tool-result' && context.hasCall(String(part.toolCallId)));
  if (isShownElsewhere) return html`<div data-message=${message.id} hidden></div>`;
  const from = message.source.extensionName ?? message.source.toolName;
  const { cut, isPending } = context;
  return html`<article class="message ${role}" data-message=${message.id} aria-label=${`${WHO[role] ?? oneLine(role)} message`}>
    <header><strong>${WHO[role] ?? oneLine(role)}</strong> ${from === undefined ? nothing : html`<span class="name">${oneLine(from)}</span>`}
      ${timeView(message.createdAt)} ${isPending ? html`<span class="standing waits">turn in progress</span>` : nothing}
      ${context.step === undefined ? nothing : stepView(context.step, context)}</header>
    ${parts.map((part) => partView(part, role, context))} ${cut === undefined ? nothing : cutView(cut)}
  </article>`;
}

/** Duration and cost of a step, with the way to its trace. */
function stepView({ durationMs, costMicroUsd, traceId }: StepFigures, { traceHref }: MessageContext): TemplateResult {
  const figures = [
    durationMs === undefined ? '' : duration(durationMs),
    costMicroUsd === undefined ? '' : dollars(costMicroUsd),
  ].filter((one) => one !== '').join(' · ');
  return html`<span class="figures" data-step>${figures} ${traceId === undefined ? nothing : html`<a href=${traceHref(traceId)}>Trace</a>`}</span>`;
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
    ${text === '' ? nothing : html`<div class="said" data-text>${isCut ? '…' : ''}${markdownView(text)}</div>`}
    ${note === '' ? nothing : html`<p class="faint">${oneLine(note)}</p>`}
  </article>`;
}

function partView(part: Part, role: string, context: MessageContext): TemplateResult {
  if (part.type === 'text' && typeof part.text === 'string') {
    return html`<div class="said" data-text>${role === 'assistant' ? markdownView(part.text) : textView(part.text)}</div>`;
  }
  if (part.type === 'tool-call') return callView(part as CallPart, context);
  if (part.type === 'tool-result') {
    const result = part as ResultPart;
    return html`<details class="call ${isError(result) ? 'bad' : ''}"><summary>${isError(result) ? 'Error' : 'Result'} of
      <span class="name">${oneLine(result.toolName)}</span></summary>${resultView(result)}</details>`;
  }
  return jsonView(part as Json, `Part of type ${oneLine(part.type)}`);
}

type CallPart = { toolCallId: string; toolName: string; input?: Json };
export type ResultPart = { toolCallId: string; toolName: string; output?: { type?: string; value?: Json } };

function isError({ output }: ResultPart): boolean {
  return output?.type?.startsWith('error') === true;
}

/** The arguments of a call in one line: of a single text, the text alone. */
function inputHead(input: Json | undefined): string {
  if (input === null || typeof input !== 'object' || Array.isArray(input)) return head(JSON.stringify(input) ?? '', HEAD_CHARACTERS);
  const values = Object.values(input);
  const [only] = values;
  return head(values.length === 1 && typeof only === 'string' ? only : JSON.stringify(input), HEAD_CHARACTERS);
}

/** A call and its result, folded. A call that a person decides about is open. */
function callView({ toolCallId, toolName, input }: CallPart, context: MessageContext): TemplateResult {
  const name = oneLine(String(toolName));
  const result = context.result(toolCallId);
  const decision = context.decision(toolCallId);
  const state = result === undefined ? (decision === nothing ? (context.isPending ? 'running' : 'no result') : 'waiting') : isError(result.part) ? 'failed' : 'completed';
  return html`<details class="call" data-call=${toolCallId} ?open=${decision !== nothing}>
    <summary><span class="name">${name}</span> <span class="faint">${inputHead(input)}</span> ${standingView(state)}</summary>
    ${blockView(JSON.stringify(input, null, 2) ?? '', `Arguments of ${name}`)}
    ${result === undefined ? nothing : html`${resultView(result.part)}${result.cut === undefined ? nothing : cutView(result.cut)}`}
  </details>${decision}`;
}

function resultView(result: ResultPart): TemplateResult {
  const value = result.output?.value;
  const text = typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? '');
  const label = `${isError(result) ? 'Error' : 'Result'} of ${oneLine(result.toolName)}`;
  return html`<div class="result"><p class=${isError(result) ? 'bad' : 'faint'}>${label}</p>
    <pre tabindex="0" role="group" aria-label=${label}>${harmless(text)}</pre></div>`;
}
