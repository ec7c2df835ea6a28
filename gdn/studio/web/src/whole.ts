// A whole conversation: written to a file, or deleted.

import { html } from 'lit';
import { ApiError, call } from './api.js';
import { ask } from './parts/dialog.js';
import { bytes, counted } from './parts/figures.js';
import { command, fileName, oneLine } from './parts/text.js';
import { studio } from './studio.js';
import type { Json } from './types.js';

/** A part of an archive, as `instance.export` tells it. */
interface ExportPart {
  text: string;
  messages: number;
  extensions: number;
  pendingEvents: number;
  next?: Json;
}

/** The largest archive that a page gathers, in characters: it is in memory until the browser has saved it. */
const ARCHIVE_CHARACTERS_MAX = 256 * 1024 * 1024;

/** Has the browser save the archive of a conversation. Tells in words what is in it. */
export async function exportConversation(instanceKey: string): Promise<string> {
  const name = `${fileName(instanceKey)}.jsonl`;
  const parts: string[] = [];
  let characters = 0;
  let position: Json | undefined;
  for (;;) {
    const params = studio.of({ instanceKey, skipDamaged: false, ...(position === undefined ? {} : { position }) });
    const part = await call<ExportPart>('instance.export', params);
    parts.push(part.text);
    characters += part.text.length;
    if (characters > ARCHIVE_CHARACTERS_MAX) {
      throw new ApiError('tooMuch', `The archive is larger than ${bytes(ARCHIVE_CHARACTERS_MAX)}.`, `run \`${command('gdn', 'conversation', 'export', instanceKey, '-o', 'FILE')}\``);
    }
    if (part.next !== undefined) {
      position = part.next;
      continue;
    }
    save(name, parts);
    const left = part.pendingEvents > 0 ? ` ${counted(part.pendingEvents, 'event')} waiting, not included.` : '';
    return `${name} has ${counted(part.messages, 'message')} and the state of ${counted(part.extensions, 'extension')}.${left}`;
  }
}

function save(name: string, parts: string[]): void {
  const address = URL.createObjectURL(new Blob(parts, { type: 'application/x-ndjson' }));
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  // The browser has taken the content over with the next task.
  setTimeout(() => URL.revokeObjectURL(address), 0);
}

/** Asks, and deletes a conversation. Tells whether it is gone. */
export async function deleteConversation(
  instanceKey: string,
  messages: number,
  act: (what: string, action: () => Promise<string>) => Promise<boolean>,
): Promise<boolean> {
  const answer = await ask({
    title: `Delete ${oneLine(instanceKey)}`,
    body: html`<p>Its ${counted(messages, 'message')}, the state of its extensions, its work directory and its waiting events
        are deleted permanently, and its process ends immediately. Export it first to keep a copy of the messages.</p>`,
    confirm: 'Delete',
    isDangerous: true,
  });
  if (answer === null) return false;
  return act('Deleting', async () => {
    await call('instance.delete', studio.of({ instanceKey }));
    return `${oneLine(instanceKey)} was deleted.`;
  });
}
