// Changes that agents request to their own configuration, and decisions of people about them.

import { html, type TemplateResult } from 'lit';
import { call } from './api.js';
import { ask, fieldText } from './parts/dialog.js';
import { oneLine } from './parts/text.js';
import type { WaitingChangeset } from './types.js';

/** What was read of the changesets that wait. */
export interface WaitingChangesets {
  changesets: WaitingChangeset[];
  /** Conversations of which it cannot be read. */
  unreadable: string[];
  /** Whether there may be more. */
  more: boolean;
}

/** More pages are not read at once: what was decided makes room for the others. */
const PAGES_MAX = 10;

/** The changesets of the workspace that wait for a person. */
export async function readWaitingChangesets(workspaceId: string): Promise<WaitingChangesets> {
  const read: WaitingChangesets = { changesets: [], unreadable: [], more: false };
  let after: string | undefined;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const told = await call<{ changesets: WaitingChangeset[]; unreadable?: string[]; next?: string }>(
      'bundle.waiting',
      after === undefined ? { workspaceId } : { workspaceId, after },
    );
    read.changesets.push(...told.changesets);
    read.unreadable.push(...(told.unreadable ?? []));
    if (told.next === undefined) return read;
    after = told.next;
  }
  return { ...read, more: true };
}

/** What a person may say of a changeset. */
export type Decision = 'approve' | 'reject';

/** Asks why, and says it by `act`, unless the person does not want to. */
export async function decide(
  decision: Decision,
  instanceKey: string,
  changesetId: string,
  workspaceId: string | null,
  act: (what: string, action: () => Promise<string>) => Promise<boolean>,
): Promise<void> {
  const label = decision === 'approve' ? 'Approve' : 'Reject';
  const body: TemplateResult = html`<p class="field"><label for="reason">Reason (optional)</label>
    <textarea id="reason" name="reason" rows="3"></textarea></p>`;
  const answer = await ask({ title: `${label} ${oneLine(changesetId)}`, body, confirm: label, isDangerous: decision === 'reject' });
  if (answer === null) return;
  const reason = fieldText(answer, 'reason').trim();
  await act(label, async () => {
    const params = { workspaceId, instanceKey, changesetId, ...(reason === '' ? {} : { reason }) };
    const done = await call<{ state: string; detail?: string }>(`bundle.${decision}`, params);
    return oneLine(`${changesetId} is ${done.state}${done.detail === undefined ? '.' : `: ${done.detail}`}`);
  });
}

/** The patch of a changeset; its end may be left out. */
export async function patchOf(instanceKey: string, changesetId: string, workspaceId: string | null): Promise<string> {
  const told = await call<{ diff: string }>('bundle.show', { workspaceId, instanceKey, changesetId });
  return told.diff;
}
