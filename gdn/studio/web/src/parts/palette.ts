// The command palette: pages, decisions, conversations, tasks and proposals by their names, and the buttons of the page.

import Combobox from '@github/combobox-nav';
import { html, nothing, render } from 'lit';
import { repeat } from 'lit/directives/repeat.js';
import { call } from '../api.js';
import { inbox } from '../inbox.js';
import { KINDS } from '../needs.js';
import { addressOf } from '../router.js';
import { studio } from '../studio.js';
import type { Instance, Proposal, Task } from '../types.js';
import { head, oneLine } from './text.js';

/** Something that the palette offers. */
interface Entry {
  id: string;
  group: string;
  label: string;
  run: () => void;
}

/** The most entries that are shown. */
const SHOWN_MAX = 40;
/** The most conversations that are asked for. */
const CONVERSATIONS_MAX = 12;
/** So long typing has to pause before the daemon is asked. */
const TYPING_MS = 120;

/** Opens the palette; once. */
export function openPalette(pages: { page: string; title: string }[]): void {
  if (document.querySelector('dialog[open]') !== null) return;
  new Palette(pages);
}

class Palette {
  readonly #dialog = document.createElement('dialog');
  readonly #before = document.activeElement;
  readonly #fixed: Entry[];
  #listed: Entry[] = [];
  #found: Entry[] = [];
  #text = '';
  #combobox: Combobox | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #generation = 0;

  constructor(pages: { page: string; title: string }[]) {
    this.#fixed = [...decisions(), ...buttonsOfPage(), ...pages.map(({ page, title }) => link('Page', title, studio.href(page))), ...workspaces()];
    this.#dialog.className = 'palette';
    this.#dialog.setAttribute('aria-label', 'Command palette');
    this.#dialog.addEventListener('close', () => this.#closed());
    this.#dialog.addEventListener('click', (event) => {
      if (event.target === this.#dialog) this.#dialog.close();
    });
    document.body.append(this.#dialog);
    this.#render();
    this.#dialog.showModal();
    const input = this.#dialog.querySelector('input')!;
    const list = this.#dialog.querySelector<HTMLElement>('[role="listbox"]')!;
    this.#combobox = new Combobox(input, list, { firstOptionSelectionMode: 'selected' });
    this.#combobox.start();
    // The selection is set after the list is rendered.
    input.removeEventListener('input', this.#combobox.inputHandler);
    list.addEventListener('combobox-commit', (event) => this.#run((event.target as HTMLElement).id));
    input.focus();
    void readTasks().then((listed) => {
      this.#listed = listed;
      this.#render();
    });
  }

  #closed(): void {
    this.#generation += 1;
    clearTimeout(this.#timer);
    this.#combobox?.destroy();
    this.#dialog.remove();
    if (this.#before instanceof HTMLElement && this.#before.isConnected) this.#before.focus();
  }

  #run(id: string): void {
    const entry = this.#shown().find((one) => one.id === id);
    if (entry === undefined) return;
    this.#dialog.close();
    entry.run();
  }

  #typed(event: InputEvent): void {
    this.#text = (event.target as HTMLInputElement).value.trim();
    this.#render();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#find(), TYPING_MS);
  }

  /** Asks the daemon for conversations with the text. */
  async #find(): Promise<void> {
    this.#generation += 1;
    const generation = this.#generation;
    // Other words can name the kind, such as "conversation".
    const text = this.#text.split(/\s+/).at(-1) ?? '';
    const params = studio.of({ containing: text, order: 'changed', limit: CONVERSATIONS_MAX });
    const told = text === '' ? { instances: [] } : await call<{ instances: Instance[] }>('instance.list', params).catch(() => ({ instances: [] }));
    if (generation !== this.#generation) return;
    this.#found = told.instances.map(({ workspaceId, instanceKey, agentName }) =>
      link('Conversation', `${instanceKey} (${agentName})`, addressOf(workspaceId, 'conversation', instanceKey)));
    this.#render();
  }

  #shown(): Entry[] {
    const words = this.#text.toLowerCase().split(/\s+/).filter((word) => word !== '');
    const has = ({ group, label }: Entry): boolean => words.every((word) => `${group} ${label}`.toLowerCase().includes(word));
    const starts = ({ label }: Entry): boolean => words.length > 0 && label.toLowerCase().startsWith(words[0]!);
    const matching = [...this.#fixed, ...this.#listed].filter(has);
    const search = this.#text === '' ? [] : [link('Search', `Search everything for “${this.#text}”`, studio.href('search', '', { q: this.#text }))];
    return [...matching.filter(starts), ...matching.filter((one) => !starts(one)), ...this.#found.filter(has)].slice(0, SHOWN_MAX).concat(search);
  }

  #render(): void {
    const shown = this.#shown();
    render(html`<input type="text" role="combobox" aria-label="Command or name" aria-controls="palette-list" aria-expanded="true" autocomplete="off"
        spellcheck="false" placeholder="Page, decision, conversation, task…" @input=${(event: InputEvent) => this.#typed(event)}>
      <ul id="palette-list" role="listbox" aria-label="Commands">${repeat(shown, ({ id }) => id, ({ id, group, label }) =>
        html`<li role="option" id=${id}><span class="faint">${group}</span> <span>${head(label, 120)}</span></li>`)}</ul>
      ${shown.length === 0 ? html`<p class="faint">No match.</p>` : nothing}
      <p class="hidden" role="status">${shown.length} matches</p>`, this.#dialog);
    this.#combobox?.resetSelection();
  }
}

let count = 0;

function entry(group: string, label: string, run: () => void): Entry {
  count += 1;
  return { id: `palette-${count}`, group, label: oneLine(label), run };
}

function link(group: string, label: string, href: string): Entry {
  return entry(group, label, () => {
    location.hash = href;
  });
}

function decisions(): Entry[] {
  return inbox.items.map(({ kind, title, id, workspaceId }) => link(KINDS[kind], title, addressOf(workspaceId, 'needs', '', { item: id })));
}

/** The buttons of the page, each with the name that it has for people who do not see it. */
function buttonsOfPage(): Entry[] {
  const all = [...document.querySelectorAll<HTMLButtonElement>('main .actions button:not(:disabled)')];
  return all.slice(0, SHOWN_MAX).map((button) => entry('Do', button.getAttribute('aria-label') ?? button.textContent?.trim() ?? '', () => {
    button.focus();
    button.click();
  }));
}

function workspaces(): Entry[] {
  return studio.workspaces.length < 2 ? [] : studio.workspaces.map((one) => link('Workspace', one.package ?? one.projectRoot, addressOf(one.workspaceId, 'needs')));
}

async function readTasks(): Promise<Entry[]> {
  const [tasks, proposals] = await Promise.all([
    call<{ tasks: Task[] }>('task.list', studio.of({ needsMe: false, all: true })).catch(() => ({ tasks: [] })),
    call<{ proposals: Proposal[] }>('proposal.list', studio.of()).catch(() => ({ proposals: [] })),
  ]);
  return [
    ...tasks.tasks.map(({ taskId, title }) => link('Task', title === '' ? taskId : title, studio.href('tasks', taskId))),
    ...proposals.proposals.map(({ runId, agentId }) => link('Proposal', `${runId}/${agentId}`, studio.href('proposals', `${runId}/${agentId}`))),
  ];
}
