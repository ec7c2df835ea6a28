// Patches, line by line, as text.

import { html, type TemplateResult } from 'lit';
import { call } from '../api.js';
import { studio } from '../studio.js';
import type { Sandbox } from '../types.js';
import { counted } from './figures.js';
import { linesOfDiff } from './patch.js';
import { harmless } from './text.js';

/** The most lines of a patch that are shown; the command shows all. */
export const DIFF_LINES_MAX = 5000;
/** The most bytes of a patch that are read. */
const DIFF_BYTES_MAX = 4 * 1024 * 1024;

/** A patch. */
export function diffView(diff: string, label: string): TemplateResult {
  const lines = linesOfDiff(diff);
  const shown = lines.slice(0, DIFF_LINES_MAX);
  const rest = lines.length - shown.length;
  return html`<pre class="diff" tabindex="0" role="group" aria-label=${label}>${shown.map(
      ({ kind, text }) => html`<span class=${kind}>${harmless(text)}\n</span>`,
    )}</pre>
    ${rest > 0 ? html`<p class="faint">${counted(rest, 'more line')} not shown.</p>` : ''}`;
}

/** Reads the patch of a proposal. */
export async function readDiff(sandbox: Sandbox): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  let offset: number | undefined = 0;
  while (offset !== undefined && offset < DIFF_BYTES_MAX) {
    const params = studio.of({ sandbox: { runId: sandbox.runId, agentId: sandbox.agentId }, offset });
    const part: { data: string; next?: number } = await call('proposal.diff', params);
    const bytes = Uint8Array.from(atob(part.data), (c) => c.charCodeAt(0));
    text += decoder.decode(bytes, { stream: true });
    offset = part.next;
  }
  return offset === undefined ? text : `${text}\n(the patch is longer: gdn proposal diff shows it completely)\n`;
}
