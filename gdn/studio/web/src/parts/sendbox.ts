// A box for a message to an agent.

import { html, type TemplateResult } from 'lit';

/** Sends a text under an id. True if it was accepted. */
export type Send = (text: string, id: string) => Promise<boolean>;

/** A box for a message. A text that is sent again, because the answer to the first request was lost, has the same id. */
export function sendView(label: string, isBusy: boolean, send: Send): TemplateResult {
  return html`<form class="send" @submit=${(event: SubmitEvent) => void submit(event, send)}>
    <label for="message">${label}</label>
    <textarea id="message" name="message" rows="3" required @keydown=${sendByKey} @input=${edited}></textarea>
    <p class="actions"><button type="submit" class="primary" ?disabled=${isBusy}>Send</button>
      <span class="faint">Ctrl-Enter also sends.</span></p>
  </form>`;
}

async function submit(event: SubmitEvent, send: Send): Promise<void> {
  event.preventDefault();
  const field = (event.currentTarget as HTMLFormElement).querySelector('textarea');
  const text = field?.value ?? '';
  if (field === null || text === '') return;
  const id = (field.dataset['messageId'] ??= `studio-${crypto.randomUUID()}`);
  if (!(await send(text, id))) return;
  delete field.dataset['messageId'];
  // Text entered during the request belongs to the next message.
  if (field.value === text) field.value = '';
  field.focus();
}

/** An edited text is another message. */
function edited(event: Event): void {
  delete (event.target as HTMLTextAreaElement).dataset['messageId'];
}

function sendByKey(event: KeyboardEvent): void {
  if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  (event.target as HTMLTextAreaElement).form?.requestSubmit();
}
