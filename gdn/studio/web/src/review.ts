// Review of a proposal: reading it with its patch, and requesting changes from the agent of its task.

import { html, nothing, type TemplateResult } from 'lit';
import { call } from './api.js';
import { unsent } from './comments.js';
import { ask, fieldText } from './parts/dialog.js';
import { type Commented, commentedDiffView } from './parts/diff.js';
import { counted } from './parts/figures.js';
import { commandView } from './parts/views.js';
import { studio } from './studio.js';
import type { Proposal, Sandbox } from './types.js';

/** The most bytes of a patch that are read. */
const DIFF_BYTES_MAX = 4 * 1024 * 1024;

/** A proposal with its patch and comments. */
export interface Reviewed {
  proposal: Proposal;
  diff: string;
  commented: Commented;
}

/**
 * Reads a proposal; its patch only if it is another one than before. `changed` reads the comments again. `beside` is
 * called while the patch is read, which takes a while if it is long.
 */
export async function readProposal(
  at: Sandbox,
  before: Reviewed | null,
  changed: () => Promise<void>,
  beside: (proposal: Proposal) => Promise<void> = async () => undefined,
): Promise<Reviewed> {
  const sandbox = { runId: at.runId, agentId: at.agentId };
  const proposal = await call<Proposal>('proposal.show', studio.of({ sandbox }));
  const { digest, comments = [], state } = proposal;
  const isKnown = before !== null && before.diff !== '' && before.proposal.digest === digest;
  const [diff] = await Promise.all([isKnown ? before.diff : readPatch(sandbox, studio.workspaceId), beside(proposal)]);
  return { proposal, diff, commented: { sandbox, digest, comments, isOpen: state === 'open', changed } };
}

/** The patch of a proposal; its end is left out if it is too long. */
export async function readPatch({ runId, agentId }: Sandbox, workspaceId: string | null): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  let offset: number | undefined = 0;
  while (offset !== undefined && offset < DIFF_BYTES_MAX) {
    const part: { data: string; next?: number } = await call('proposal.diff', { workspaceId, sandbox: { runId, agentId }, offset });
    const binary = atob(part.data);
    const bytes = new Uint8Array(binary.length);
    for (let at = 0; at < bytes.length; at += 1) bytes[at] = binary.charCodeAt(at);
    text += decoder.decode(bytes, { stream: true });
    offset = part.next;
  }
  return offset === undefined ? text : `${text}\n(the patch is longer: gdn proposal diff shows it completely)\n`;
}

/** The patch of a proposal with its comments. */
export function patchView({ diff, commented }: Reviewed, file = ''): TemplateResult {
  const { sandbox, isOpen } = commented;
  return html`${commentedDiffView(diff, 'Patch', commented, file)}
    ${!isOpen
      ? nothing
      : studio.write
        ? html`<p class="faint">To comment on a line, click it, or move to its number and press Enter.</p>`
        : html`<p class="instead">To comment, run: ${commandView('gdn', 'proposal', 'comment', sandbox.runId, sandbox.agentId, 'PATH:LINE', 'TEXT')}</p>`}`;
}

/** Runs an action of a page. */
type Act = (what: string, action: () => Promise<string>) => Promise<boolean>;

/** Asks a person which changes the agent should make, and requests them. Comments that were not sent are sent as well. */
export async function requestChanges(act: Act, taskId: string, phase: number, proposal: Proposal | undefined): Promise<void> {
  const comments = unsent(proposal?.comments ?? []);
  const answer = await ask({
    title: `Request changes to phase ${phase}`,
    body: html`${comments === 0 ? nothing : html`<p>The agent also receives ${counted(comments, 'comment')} on its changes.</p>`}
      <p class="field"><label for="text">Requested changes${comments === 0 ? '' : ' (optional)'}</label>
        <textarea id="text" name="text" rows="4" ?required=${comments === 0}></textarea></p>`,
    confirm: 'Request changes',
  });
  if (answer === null) return;
  await act('Requesting changes', async () => {
    await call('task.rework', studio.of({ taskId, phase, text: fieldText(answer, 'text').trim() }));
    return comments === 0 ? 'The changes are requested.' : `The changes are requested, with ${counted(comments, 'comment')}.`;
  });
}
