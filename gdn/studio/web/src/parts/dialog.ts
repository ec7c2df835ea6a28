// Questions to the person at the page. The browser's own dialog keeps the focus in it, and gives it back.

import { html, nothing, render, type TemplateResult } from 'lit';

/** A question. */
export interface Asked {
  title: string;
  body?: TemplateResult | typeof nothing;
  /** What the button says that does it. */
  confirm: string;
  isDangerous?: boolean;
}

/** What the page is about on which a dialog is opened. */
let about: () => string = () => '';

/** Sets how dialogs name what they are about. */
export function dialogsAbout(name: () => string): void {
  about = name;
}

/** Asks; the answer is what the fields of `body` hold by their names, or null if the person does not want to. */
export function ask(asked: Asked): Promise<FormData | null> {
  const dialog = document.createElement('dialog');
  dialog.setAttribute('aria-labelledby', 'dialog-title');
  document.body.append(dialog);
  const before = document.activeElement;
  return new Promise((resolve) => {
    // A dialog belongs to its page: it ends when another one is opened.
    const moved = (): void => end(null);
    const end = (answer: FormData | null): void => {
      window.removeEventListener('hashchange', moved);
      dialog.close();
      dialog.remove();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
      resolve(answer);
    };
    window.addEventListener('hashchange', moved);
    dialog.addEventListener('cancel', (event) => {
      event.preventDefault();
      end(null);
    });
    render(dialogView(asked, end), dialog);
    dialog.showModal();
    const first = dialog.querySelector<HTMLElement>('[data-first], input, textarea, select');
    first?.focus();
  });
}

function dialogView(asked: Asked, end: (answer: FormData | null) => void): TemplateResult {
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    end(new FormData(event.currentTarget as HTMLFormElement));
  };
  return html`<form @submit=${submit}>
    <h2 id="dialog-title">${asked.title}</h2>
    <p class="faint" data-about>${about()}</p>
    ${asked.body ?? nothing}
    <p class="actions">
      <button type="submit" class=${asked.isDangerous === true ? 'danger' : 'primary'}>${asked.confirm}</button>
      <button type="button" data-first @click=${() => end(null)}>Cancel</button>
    </p>
  </form>`;
}

/** The text of a field. */
export function fieldText(answer: FormData, name: string): string {
  const value = answer.get(name);
  return typeof value === 'string' ? value : '';
}

/** All values of a field, such as the choices of a list. */
export function fieldTexts(answer: FormData, name: string): string[] {
  return answer.getAll(name).filter((value): value is string => typeof value === 'string');
}
