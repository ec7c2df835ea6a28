// Going back to a joint checkpoint: first what would change is shown.

import { html } from 'lit';
import { call } from './api.js';
import { ask } from './parts/dialog.js';
import { counted } from './parts/figures.js';
import { head, oneLine } from './parts/text.js';
import { studio } from './studio.js';

interface Rewound {
  isChanged: boolean;
  messagesRemoved: number;
  messagesRestored: number;
  removedMessages?: { id: string; role: string; head: string }[];
  added: string[];
  changed: string[];
  removed: string[];
  extensions: string[];
  preRewind?: string;
  notRewound?: string[];
}

const NAMES_MAX = 20;

function namesOf(paths: string[]): string {
  return `${paths.slice(0, NAMES_MAX).map(oneLine).join(', ')}${paths.length > NAMES_MAX ? ', …' : ''}`;
}

/** Shows what would change, asks, and goes back. Tells in words what came of it. */
export async function rewind(instanceKey: string, checkpointId: string): Promise<string> {
  const of = studio.of({ instanceKey, checkpointId });
  const plan = await call<Rewound>('instance.rewind', { ...of, dryRun: true, cancel: false });
  if (!plan.isChanged) return `No changes: everything matches ${checkpointId}.`;
  const files = (what: string, paths: string[]) =>
    paths.length === 0 ? '' : html`<li>${counted(paths.length, 'file')} ${what}: ${namesOf(paths)}</li>`;
  const answer = await ask({
    title: `Rewind to ${oneLine(checkpointId)}`,
    confirm: 'Rewind',
    isDangerous: true,
    body: html`<ul>
        <li>${counted(plan.messagesRemoved, 'message')} removed${plan.messagesRestored > 0 ? `, ${plan.messagesRestored} restored` : ''}</li>
        ${files('restored', plan.added)} ${files('reverted', plan.changed)} ${files('removed', plan.removed)}
        ${(plan.removedMessages ?? []).slice(0, 5).map((message) => html`<li>${oneLine(message.role)}: ${head(message.head, 100)}</li>`)}
      </ul>
      ${(plan.notRewound ?? []).map((words) => html`<p class="faint">Not rolled back: ${oneLine(words)}</p>`)}
      <p>First, a checkpoint of the current state is created.</p>`,
  });
  if (answer === null) return 'Nothing was changed.';
  const done = await call<Rewound>('instance.rewind', { ...of, dryRun: false, cancel: false });
  return `The conversation was rolled back to ${checkpointId}${done.preRewind === undefined ? '' : `; the previous state is ${done.preRewind}`}.`;
}
