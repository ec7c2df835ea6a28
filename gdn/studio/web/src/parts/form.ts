// The form of an answer to a question: its fields on the page, and what was typed as the values that they want.

import { html, nothing, type TemplateResult } from 'lit';
import type { FormField, Json } from '../types.js';
import { harmless, oneLine } from './text.js';

/** The values of a form as the question wants them. What was left empty and need not be said is left out. */
export function answerOf(form: FormField[], typed: (name: string) => string[]): Record<string, Json> {
  const values = form.map((field, at): [string, Json | undefined] => [field.name, valueOf(field, typed(inputName(at)))]);
  // The names are untrusted: with plain assignment, `__proto__` would set the prototype.
  return Object.fromEntries(values.filter((entry): entry is [string, Json] => entry[1] !== undefined));
}

/** Fields of a form are named by their places: a stranger chose the names. */
export function inputName(at: number): string {
  return `field-${at}`;
}

function valueOf(field: FormField, typed: string[]): Json | undefined {
  const text = typed[0] ?? '';
  switch (field.takes.type) {
    case 'boolean':
      return text === '' ? undefined : text === 'true';
    case 'number':
    case 'integer':
      return text.trim() === '' ? undefined : Number(text);
    case 'choices':
      return typed.length === 0 && !field.required ? undefined : typed;
    case 'choice':
      return text === '' ? undefined : text;
    case 'string':
      return text === '' && !field.required ? undefined : text;
  }
}

/** The fields of a form. */
export function formView(form: FormField[]): TemplateResult {
  return html`${form.map((field, at) => fieldView(field, at))}`;
}

function fieldView(field: FormField, at: number): TemplateResult {
  const id = inputName(at);
  const hint = field.description === undefined ? nothing : html`<small id="${id}-hint">${harmless(field.description)}</small>`;
  return html`<p class="field">
    <label for=${id}>${oneLine(field.title ?? field.name)}${field.required ? '' : ' (optional)'}</label>
    ${inputView(field, id)} ${hint}
  </p>`;
}

function inputView({ takes, required, default: proposed, description }: FormField, id: string): TemplateResult {
  const hint = description === undefined ? nothing : `${id}-hint`;
  const value = proposed === undefined || proposed === null ? '' : String(proposed);
  if (takes.type === 'choices') {
    const chosen = Array.isArray(proposed) ? proposed : [];
    const choices = takes.choices ?? [];
    return html`<select id=${id} name=${id} multiple size=${Math.min(choices.length, 8)} ?required=${required && (takes.minItems ?? 0) > 0}
      aria-describedby=${hint}>
      ${choices.map(
        (choice) => html`<option value=${choice.value} ?selected=${chosen.includes(choice.value)}>
          ${oneLine(choice.title ?? choice.value)}
        </option>`,
      )}
    </select>`;
  }
  if (takes.type === 'choice' || takes.type === 'boolean') {
    const choices =
      takes.type === 'choice' ? (takes.choices ?? []) : [{ value: 'true', title: 'Yes' }, { value: 'false', title: 'No' }];
    return html`<select id=${id} name=${id} ?required=${required} aria-describedby=${hint}>
      <option value="">Choose…</option>
      ${choices.map(
        (choice) => html`<option value=${choice.value} ?selected=${choice.value === value}>
          ${oneLine(choice.title ?? choice.value)}
        </option>`,
      )}
    </select>`;
  }
  if (takes.type === 'number' || takes.type === 'integer') {
    return html`<input id=${id} name=${id} type="number" step=${takes.type === 'integer' ? '1' : 'any'}
      min=${takes.minimum ?? nothing} max=${takes.maximum ?? nothing} ?required=${required} .value=${value}
      aria-describedby=${hint}>`;
  }
  const kinds: Record<string, string> = { email: 'email', uri: 'url', date: 'date' };
  return html`<input id=${id} name=${id} type=${kinds[takes.format ?? ''] ?? 'text'} minlength=${takes.minLength ?? nothing}
    maxlength=${takes.maxLength ?? nothing} ?required=${required} .value=${value} autocomplete="off"
    aria-describedby=${hint}>`;
}
