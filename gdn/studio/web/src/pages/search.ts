// Search over names, and the texts of the latest conversations, tasks and proposals.

import { html, nothing, type TemplateResult } from 'lit';
import { call, callPages } from '../api.js';
import { inbox } from '../inbox.js';
import { partsOf } from '../messages.js';
import { KINDS } from '../needs.js';
import { Page } from '../page.js';
import { count, counted } from '../parts/figures.js';
import { harmless, oneLine } from '../parts/text.js';
import { timeView } from '../parts/views.js';
import { addressOf } from '../router.js';
import { studio } from '../studio.js';
import type { Instance, Message, MessagePage, Proposal, Task, WorkspaceChange } from '../types.js';

/** The most workspaces that are searched. */
const WORKSPACES_MAX = 20;
/** Of so many conversations of each, those that changed last, the messages are searched. */
const CONVERSATIONS_MAX = 60;
/** So many of the latest messages of each. */
const MESSAGES_MAX = 200;
const HITS_MAX = 200;
/** Conversations that are read at once. */
const AT_ONCE = 4;
/** Characters of a text around a hit. */
const AROUND = 70;

/** Something that was found. */
interface Hit {
  kind: string;
  title: string;
  href: string;
  /** The text around the place. */
  text: string;
  at?: string | undefined;
}

class SearchPage extends Page {
  #hits: Hit[] = [];
  #searched = 0;
  #isOver = false;

  get #text(): string {
    return this.route.query.get('q') ?? '';
  }

  protected heading(): string {
    return 'Search';
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    return change === null && !this.isRead;
  }

  protected async read(): Promise<void> {
    this.#hits = [];
    this.#searched = 0;
    this.#isOver = this.#text === '';
    if (this.#isOver) return;
    const text = this.#text.toLowerCase();
    this.#names(text);
    const workspaces = studio.workspaces.map(({ workspaceId }) => workspaceId).slice(0, WORKSPACES_MAX);
    const latest = await Promise.all(workspaces.map((workspaceId) => this.#readOf(workspaceId, text)));
    void this.#messages(text, latest.flat());
  }

  /** Names of a workspace. Returns the conversations that changed last. */
  async #readOf(workspaceId: string, text: string): Promise<Instance[]> {
    const of = { workspaceId };
    const [{ all: tasks }, { all: proposals }, named, latest] = await Promise.all([
      callPages<Task>('task.list', 'tasks', { ...of, needsMe: false, all: true }).catch(() => ({ all: [] })),
      callPages<Proposal>('proposal.list', 'proposals', of).catch(() => ({ all: [] })),
      call<{ instances: Instance[] }>('instance.list', { ...of, containing: this.#text, order: 'changed', limit: 50 }),
      call<{ instances: Instance[] }>('instance.list', { ...of, order: 'changed', limit: CONVERSATIONS_MAX }),
    ]);
    for (const { taskId, title, agent, status, updatedAt } of tasks) {
      const hit = { kind: 'Task', title: title === '' ? taskId : title, href: addressOf(workspaceId, 'tasks', taskId), at: updatedAt };
      this.#add(text, hit, `${taskId} ${title} ${agent} ${status}`);
    }
    for (const { runId, agentId, notes = '', summary = '', createdAt } of proposals) {
      const name = `${runId}/${agentId}`;
      this.#add(text, { kind: 'Proposal', title: name, href: addressOf(workspaceId, 'proposals', name), at: createdAt }, `${name} ${notes} ${summary}`);
    }
    for (const { instanceKey, agentName, updatedAt } of named.instances) {
      const hit = { kind: 'Conversation', title: instanceKey, href: addressOf(workspaceId, 'conversation', instanceKey), at: updatedAt };
      this.#add(text, hit, `${instanceKey} ${agentName}`);
    }
    return latest.instances;
  }

  /** What the page knows already. */
  #names(text: string): void {
    for (const { kind, title, id, workspaceId, at } of inbox.items) {
      this.#add(text, { kind: KINDS[kind], title, href: addressOf(workspaceId, 'needs', '', { item: id }), at }, `${title} ${id}`);
    }
    for (const agent of studio.workspace?.agents ?? []) this.#add(text, { kind: 'Agent', title: agent, href: studio.href('agents') }, agent);
    for (const name of studio.workspace?.connections ?? []) this.#add(text, { kind: 'Connection', title: name, href: studio.href('agents') }, name);
  }

  #add(text: string, hit: Omit<Hit, 'text'>, words: string): void {
    const at = words.toLowerCase().indexOf(text);
    if (at === -1 || this.#hits.length >= HITS_MAX) return;
    const around = words.slice(Math.max(0, at - AROUND), at + text.length + AROUND);
    this.#hits.push({ ...hit, text: around });
  }

  /** The messages of the latest conversations, a few conversations at once. What was found is shown as it comes. */
  async #messages(text: string, instances: Instance[]): Promise<void> {
    const rest = [...instances];
    const read = async (): Promise<void> => {
      for (let one = rest.shift(); one !== undefined && this.isConnected && this.#hits.length < HITS_MAX; one = rest.shift()) {
        const { instanceKey, workspaceId } = one;
        const page = await call<MessagePage>('instance.page', { workspaceId, instanceKey, limit: MESSAGES_MAX, whole: true }).catch(() => null);
        this.#searched += 1;
        for (const message of [...(page?.messages ?? []), ...(page?.pending ?? [])].reverse()) {
          this.#add(text, { kind: 'Message', title: instanceKey, href: addressOf(workspaceId, 'conversation', instanceKey), at: message.createdAt }, wordsOf(message));
        }
        this.requestUpdate();
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, read));
    this.#isOver = true;
    this.requestUpdate();
    studio.announce(counted(this.#hits.length, 'hit'));
  }

  protected content(): TemplateResult {
    const go = (event: SubmitEvent): void => {
      event.preventDefault();
      const q = this.querySelector<HTMLInputElement>('#q')?.value.trim() ?? '';
      location.hash = studio.href('search', '', { q });
    };
    return html`<form class="filters" role="search" @submit=${go}>
        <p class="field search"><label for="q">Text in names, messages, tasks and proposals</label>
          <input id="q" type="search" data-search autocomplete="off" .value=${this.#text}></p>
        <p><button type="submit">Search</button></p>
      </form>
      ${this.#text === ''
        ? nothing
        : html`<p class="faint" data-over=${this.#isOver ? 'true' : 'false'}>${counted(this.#hits.length, 'hit')}${this.#hits.length >= HITS_MAX ? ' or more' : ''} in names, tasks, proposals, and the
            latest ${count(MESSAGES_MAX)} messages of ${counted(this.#searched, 'conversation')}${this.#isOver ? '.' : ' so far…'}</p>
          <ol class="hits">${this.#hits.map((hit) => html`<li><span class="kind">${hit.kind}</span> <a href=${hit.href} class="name">${oneLine(hit.title)}</a>
            <span class="faint">${timeView(hit.at === '9999' ? undefined : hit.at)}</span><br>${this.#marked(hit.text)}</li>`)}</ol>`}`;
  }

  #marked(words: string): TemplateResult {
    const at = words.toLowerCase().indexOf(this.#text.toLowerCase());
    const end = at + this.#text.length;
    return html`<span class="found">${harmless(words.slice(0, at))}<mark>${harmless(words.slice(at, end))}</mark>${harmless(words.slice(end))}</span>`;
  }
}

/** All texts of a message. */
function wordsOf(message: Message): string {
  return partsOf(message).map((part) => {
    if (part.type === 'text') return String(part.text);
    return JSON.stringify('input' in part ? part.input : 'output' in part ? part.output : part);
  }).join(' ');
}

customElements.define('gdn-search', SearchPage);
