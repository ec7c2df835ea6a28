// The entries of a task's stream. All of it is untrusted, and shown as text.

import { html, nothing, type TemplateResult } from 'lit';
import { repeat } from 'lit/directives/repeat.js';
import { type ChangeLine, changeLines, type Entry, requestLines, requestParts, type SentMessage, type TaskStreamState } from '../taskstream.js';
import type { CallState, TaskItem } from '../types.js';
import { bytes, count, counted, dollars, duration } from './figures.js';
import { markdownView } from './markdown.js';
import { harmless, head, oneLine } from './text.js';
import { blockView, standingView, textView, timeView } from './views.js';

/** Outputs and changes with more lines are folded. */
const FOLDED_LINES = 12;
/** So many entries are drawn while more follow at once. */
const ENTRIES_BEHIND = 50;
/** The most messages to the agent that are shown, the latest ones. */
const MESSAGES_SHOWN = 10;
/** The most characters of a tool's arguments that are shown. */
const INPUT_CHARACTERS = 300;

const LABELS: Record<TaskItem['type'], string> = {
  text: 'Agent', thinking: 'Thoughts', output: 'Output', plan: 'Plan', command: 'Command', fileChange: 'Change', tool: 'Tool',
  usage: 'Usage', result: 'Result', problem: 'Problem', event: 'Task', gap: 'Gap',
};

/** The entries, in a box that scrolls. */
export function taskStreamView({ entries, isCut, isBehind }: TaskStreamState, scrolled: (event: Event) => void): TemplateResult {
  return html`<div class="stream" tabindex="0" role="group" aria-label="Live work" @scroll=${scrolled}>
    ${isCut ? html`<p class="faint">Earlier work is not shown: <code>gdn task watch --all</code> prints what is kept.</p>` : nothing}
    ${repeat(isBehind ? entries.slice(-ENTRIES_BEHIND) : entries, ({ number }) => number, entryView)}
  </div>`;
}

function entryView({ item, endedAt }: Entry): TemplateResult {
  return html`<div class="entry" data-entry=${item.type}>
    <p class="faint">${item.at === '' ? nothing : timeView(item.at)} <strong>${LABELS[item.type] ?? oneLine(item.type)}</strong>
      ${'state' in item ? callState(item, endedAt) : nothing}</p>
    ${contentView(item)}
  </div>`;
}

/** State of a call: its exit code if the program reports one, and its duration. */
function callState(item: Extract<TaskItem, { state: string }>, endedAt: string | undefined): TemplateResult {
  const words: Record<CallState, string> = { started: 'running', completed: 'completed', failed: 'failed' };
  const exit = item.type === 'command' && item.exit !== undefined ? `exit ${item.exit}` : '';
  const took = endedAt === undefined ? '' : duration(Date.parse(endedAt) - Date.parse(item.at));
  return html`${standingView(words[item.state] ?? item.state)} ${exit} ${took}`;
}

function contentView(item: TaskItem): TemplateResult | typeof nothing {
  switch (item.type) {
    case 'text':
      return html`<div class="said">${markdownView(item.text)}</div>`;
    case 'thinking':
      return html`<details><summary>Show thoughts</summary><div class="said">${textView(item.text)}</div></details>`;
    case 'output':
      return outputView(item.text);
    case 'plan':
      return html`<ul>${item.steps.map((step) => html`<li>${oneLine(step.title)} ${standingView(step.state)}</li>`)}</ul>`;
    case 'command':
      return html`<pre>${harmless(item.command)}</pre>${outputView(item.output)}`;
    case 'fileChange':
      return html`${item.files.map(({ path, diff }) => changeView(path, diff ?? ''))}`;
    case 'tool':
      return html`<p><span class="name">${oneLine(item.name)}</span> ${head(item.input ?? '', INPUT_CHARACTERS)}</p>
        ${outputView(item.output)}`;
    case 'usage': {
      const { inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens } = item.usage;
      const tokens = counted(inputTokens + outputTokens + cacheReadTokens + cacheWriteTokens, 'token');
      return html`<p>${tokens}${item.cost === undefined ? '' : `, ${dollars(item.cost)}`}</p>`;
    }
    case 'result':
      return html`${item.isOk ? html`<p class="good">Done</p>` : html`<p class="bad said">${harmless(item.text)}</p>`}
        ${item.denied === undefined ? nothing : html`<p>Denied: ${item.denied.map(oneLine).join(', ')}</p>`}`;
    case 'problem':
      return html`<p class="bad said">${harmless(item.text)}</p>`;
    case 'event':
      return html`<p class="said"><strong>${oneLine(item.event.replaceAll('_', ' '))}</strong> ${harmless(item.detail ?? '')}</p>`;
    case 'gap':
      return html`<p class="warn">${counted(item.items, 'item')} missing: they came too fast.</p>`;
    default:
      // A newer daemon may report more kinds.
      return nothing;
  }
}

/** An output; a long one is folded. */
function outputView(output: string | undefined): TemplateResult | typeof nothing {
  if (output === undefined || output === '') return nothing;
  const lines = output.split('\n').length;
  return folded(lines, `Output: ${count(lines)} lines, ${bytes(output.length)}`, html`<pre>${harmless(output)}</pre>`);
}

function changeView(path: string, diff: string): TemplateResult {
  const lines = changeLines(diff);
  return html`<p class="name">${oneLine(path)}</p>
    ${lines.length === 0 ? nothing : folded(lines.length, `Diff: ${count(lines.length)} lines`, linesView(lines))}`;
}

function linesView(lines: ChangeLine[]): TemplateResult {
  return html`<pre class="diff">${lines.map(({ kind, text }) => html`<span class=${kind}>${harmless(text)}\n</span>`)}</pre>`;
}

/** A program's request for permission: the tool with its command or arguments, or the diff of a file. */
export function requestView(text: string): TemplateResult {
  const { title, body, diff } = requestParts(text);
  return html`${title === '' ? nothing : html`<p>Tool: <span class="name">${oneLine(title)}</span></p>`}
    ${body === '' ? nothing : blockView(body, 'Requested action')}${diff === '' ? nothing : linesView(requestLines(diff))}`;
}

/** The latest messages to the agent, with their states. */
export function messagesView(messages: SentMessage[]): TemplateResult[] {
  return messages.slice(-MESSAGES_SHOWN).map(({ at, text, state }) => html`<div class="entry" data-message=${state}>
    <p class="faint">${timeView(at)} ${standingView(state)}</p><blockquote>${harmless(text)}</blockquote></div>`);
}

function folded(lines: number, summary: string, view: TemplateResult): TemplateResult {
  return lines <= FOLDED_LINES ? view : html`<details><summary>${summary}</summary>${view}</details>`;
}
