// Bundles: changes of a conversation's agent to its own configuration, and decisions of people about them.

import { html, nothing, type TemplateResult } from 'lit';
import { call } from '../api.js';
import { decide, patchOf } from '../changesets.js';
import { isEvent, Page } from '../page.js';
import { ask } from '../parts/dialog.js';
import { diffView } from '../parts/diff.js';
import { counted } from '../parts/figures.js';
import { harmless, oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { studio } from '../studio.js';
import type { Changeset, WorkspaceChange } from '../types.js';

interface Status {
  base: string;
  head: string;
  active: string;
  promoted: string;
  pinned: boolean;
  probation?: { since: string; turns: number; failures: number };
  files: { path: string; changesetId: string }[];
  changesets: Changeset[];
}

class BundlesPage extends Page {
  #status: Status | null = null;
  #diffs = new Map<string, string>();

  protected heading(): string {
    return `Bundle of ${oneLine(this.#key)}`;
  }

  get #key(): string {
    return this.route.arg === '' ? (studio.workspace?.conversationKey ?? 'main') : this.route.arg;
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    return super.concerns(change) || (isEvent(change, 'bundle.') && change?.event?.instanceKey === this.#key);
  }

  protected async read(): Promise<void> {
    this.#status = null;
    this.#status = await call<Status>('bundle.status', studio.of({ instanceKey: this.#key }));
  }

  protected content(): TemplateResult {
    const go = (event: SubmitEvent): void => {
      event.preventDefault();
      location.hash = studio.href('bundles', this.querySelector<HTMLInputElement>('#key')?.value.trim() ?? '');
    };
    return html`<form class="filters" role="search" @submit=${go}>
        <p class="field search"><label for="key">Conversation</label><input id="key" data-search autocomplete="off" .value=${this.#key}></p>
        <p><button type="submit">Show</button></p>
      </form>
      ${this.#status === null ? nothing : this.#statusView(this.#status)}`;
  }

  #statusView(status: Status): TemplateResult {
    const { probation } = status;
    return html`${this.#actions(status)}
      ${view.factsView([
        ['Active', html`<span class="name">${oneLine(status.active)}</span>`],
        ['Next step', status.head === status.active ? '' : html`<span class="name">${oneLine(status.head)}</span>`],
        ['Last proven', html`<span class="name">${oneLine(status.promoted)}</span>`],
        ['The project', html`<span class="name">${oneLine(status.base)}</span>`],
        ['On probation', probation === undefined ? '' : `since ${counted(probation.turns, 'turn')}, ${counted(probation.failures, 'failure')}`],
        ['Pinned', status.pinned ? 'yes' : 'no'],
      ])}
      <h2>Changesets, newest first</h2>
      ${status.changesets.length === 0 ? html`<p class="faint">None.</p>` : status.changesets.map((one) => this.#changeset(one))}
      <h2>Files that differ from the project</h2>
      ${view.tableView(
        'Files that differ',
        ['File', 'From'],
        status.files.map((file) => [view.nameView(file.path), oneLine(file.changesetId)]),
      )}`;
  }

  #actions(status: Status): TemplateResult {
    if (!studio.write) {
      return html`<p class="instead">Run instead: ${view.commandView('gdn', 'conversation', 'bundle', 'revert', this.#key)}
        ${view.commandView('gdn', 'conversation', 'bundle', 'pin', this.#key, ...(status.pinned ? ['--off'] : []))}</p>`;
    }
    return html`<p class="actions">
      ${this.#button(status.pinned ? 'Allow changesets again' : 'Pin the active revision', '', () =>
        this.#do('pin', 'Pinning', { pinned: !status.pinned }))}
      ${this.#button('Revert…', 'danger', () => this.#revert())}</p>`;
  }

  #button(label: string, tone: string, go: () => Promise<unknown>, about = ''): TemplateResult {
    return html`<button type="button" class=${tone} ?disabled=${this.isBusy} aria-label=${`${label}${about === '' ? '' : ` ${oneLine(about)}`}`}
      @click=${() => void go()}>${label}</button>`;
  }

  #do(method: string, what: string, more: Record<string, unknown>): Promise<boolean> {
    return this.act(what, async () => {
      const done = await call<{ state?: string; detail?: string }>(`bundle.${method}`, studio.of({ instanceKey: this.#key, ...more }));
      return done.state === undefined ? `${what}: done.` : oneLine(`Changeset ${done.state}: ${done.detail ?? ''}`);
    });
  }

  async #revert(): Promise<void> {
    const body = html`<p>With the next step, the last proven revision becomes active or, if it already is, the configuration of the project.</p>`;
    if ((await ask({ title: 'Revert the bundle', body, confirm: 'Revert', isDangerous: true })) !== null) await this.#do('revert', 'Reverting', {});
  }

  #changeset(one: Changeset): TemplateResult {
    const { changesetId } = one;
    const diff = this.#diffs.get(changesetId);
    return html`<article class="item" tabindex="0" aria-label=${`Changeset ${oneLine(changesetId)}`}>
      <h3><span class="name">${oneLine(changesetId)}</span> ${view.standingView(one.state)}</h3>
      ${one.message === undefined ? nothing : html`<blockquote>${harmless(one.message)}</blockquote>`}
      <p>${(one.summary ?? []).map(oneLine).join('; ')} ${one.detail === undefined ? nothing : html`<span class="faint">${oneLine(one.detail)}</span>`}
        · ${view.timeView(one.openedAt)}</p>
      ${diff === undefined
        ? html`<p class="actions">${this.#button('Show the patch', '', () => this.#show(changesetId), changesetId)}</p>`
        : diffView(diff, `Patch of ${oneLine(changesetId)}`)}
      ${one.state === 'waiting' ? this.#decision(changesetId) : nothing}
    </article>`;
  }

  async #show(changesetId: string): Promise<void> {
    await this.act('Loading the patch', async () => {
      this.#diffs.set(changesetId, await patchOf(this.#key, changesetId, studio.workspaceId));
      return 'The patch is shown.';
    });
  }

  #decision(changesetId: string): TemplateResult {
    if (!studio.write) {
      return html`<p class="instead">Run instead: ${view.commandView('gdn', 'conversation', 'bundle', 'approve', changesetId, '--key', this.#key)}
        ${view.commandView('gdn', 'conversation', 'bundle', 'reject', changesetId, '--key', this.#key)}</p>`;
    }
    const say = (decision: 'approve' | 'reject'): Promise<void> =>
      decide(decision, this.#key, changesetId, studio.workspaceId, (what, action) => this.act(what, action));
    return html`<p class="actions">${this.#button('Approve…', 'primary', () => say('approve'), changesetId)}
      ${this.#button('Reject…', '', () => say('reject'), changesetId)}</p>`;
  }
}

customElements.define('gdn-bundles', BundlesPage);
