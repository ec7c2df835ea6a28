// Proposals of workers as patches, which a person applies or rejects.

import { html, nothing, type TemplateResult } from 'lit';
import { call, callPages } from '../api.js';
import { isEvent, Page } from '../page.js';
import { ask, fieldText } from '../parts/dialog.js';
import { bytes, counted } from '../parts/figures.js';
import { harmless, oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { patchView, readProposal, requestChanges, type Reviewed } from '../review.js';
import { studio } from '../studio.js';
import type { Proposal, ProposalCheck, Sandbox, TaskDetail, WorkspaceChange } from '../types.js';

/** Refusals that a person may pass over. */
const MOVED = ['baseChanged', 'headMoved'];
/** Refusals that a merge may help against. */
const STALE = ['changed', 'deleted', 'created', ...MOVED];

class ProposalsPage extends Page {
  #list: Proposal[] = [];
  #reviewed: Reviewed | null = null;
  #check: ProposalCheck | null = null;
  /** The task whose result the proposal is. */
  #task: TaskDetail | null = null;

  protected heading(): string {
    return this.route.arg === '' ? 'Proposals' : `Proposal ${oneLine(this.route.arg)}`;
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    return super.concerns(change) || isEvent(change, 'proposal.') || (this.#task !== null && isEvent(change, 'task.'));
  }

  /** The run and the worker of the address: neither has a slash in it. */
  get #sandbox(): Sandbox {
    const [runId = '', agentId = ''] = this.route.arg.split('/');
    return { runId, agentId };
  }

  protected async read(): Promise<void> {
    if (this.route.arg === '') {
      const { all } = await callPages<Proposal>('proposal.list', 'proposals', studio.of());
      this.#list = all.sort((one, other) => one.createdAt.localeCompare(other.createdAt));
      return;
    }
    const of = studio.of({ sandbox: this.#sandbox });
    let check: ProposalCheck | null = null;
    const [reviewed, task] = await Promise.all([
      readProposal(this.#sandbox, this.#reviewed, () => this.reload(), async ({ state }) => {
        if (state === 'open') check = await call<ProposalCheck>('proposal.check', of);
      }),
      this.#readTask(),
    ]);
    // Assigned together, so that all parts of the page belong together.
    this.#task = task;
    this.#check = check;
    this.#reviewed = reviewed;
  }

  /** The run of a task has its name. */
  async #readTask(): Promise<TaskDetail | null> {
    const { runId, agentId } = this.#sandbox;
    const task = await call<TaskDetail>('task.show', studio.of({ taskId: runId })).catch(() => null);
    return task?.sandbox?.at.runId === runId && task.sandbox.at.agentId === agentId ? task : null;
  }

  protected content(): TemplateResult | typeof nothing {
    if (this.route.arg !== '') return this.#one();
    const rows = [...this.#list].reverse().map((proposal) => [
      proposalLink(proposal),
      view.standingView(proposal.state),
      counted(proposal.changedFiles, 'file'),
      view.timeView(proposal.createdAt),
      oneLine(proposal.problem ?? proposal.notes ?? ''),
    ]);
    return view.tableView('Proposals, newest first', ['Proposal', 'State', 'Changes', 'Submitted', 'Notes'], rows);
  }

  #one(): TemplateResult | typeof nothing {
    if (this.#reviewed === null) return nothing;
    const { proposal } = this.#reviewed;
    const check = this.#check;
    const files = (proposal.files ?? []).map((file) => [
      html`<span class="name">${oneLine(file.path)}</span>`,
      file.renamedFrom === undefined ? oneLine(file.status) : `moved from ${oneLine(file.renamedFrom)}`,
      `${file.oldBytes === undefined ? '—' : bytes(file.oldBytes)} → ${file.newBytes === undefined ? '—' : bytes(file.newBytes)}`,
    ]);
    const history = (proposal.history ?? []).map((line) => [view.timeView(line.at), oneLine(line.type), oneLine(line.detail ?? '')]);
    return html`<p><a href=${studio.href('proposals')}>All proposals</a></p>
      <p>${view.standingView(proposal.state)} submitted ${view.timeView(proposal.createdAt)} · ${counted(proposal.changedFiles, 'changed file')}</p>
      ${proposal.problem === undefined ? nothing : html`<p class="warn">${harmless(proposal.problem)}</p>`}
      ${proposal.notes === undefined ? nothing : html`<blockquote>${harmless(proposal.notes)}</blockquote>`}
      ${this.#taskView(proposal)}
      ${check === null ? nothing : this.#checkView(check)} ${this.#actions(proposal, check)}
      <h2>Patch</h2>${patchView(this.#reviewed, this.route.query.get('file') ?? '')}
      <h2>Files</h2>${view.tableView('Files', ['File', 'What', 'Size'], files)}
      ${proposal.summary === undefined ? nothing : html`<h2>Summary of the worker</h2>${view.blockView(proposal.summary, 'Summary')}`}
      ${proposal.testLog === undefined ? nothing : html`<h2>Test output</h2>${view.blockView(proposal.testLog, 'Test log')}`}
      <h2>History</h2>${view.tableView('History', ['When', 'What', 'Detail'], history)}`;
  }

  /** Its task, whose agent receives the comments. */
  #taskView(proposal: Proposal): TemplateResult | typeof nothing {
    if (this.#task === null) return nothing;
    const { info, review, proposal: reviewed } = this.#task;
    const isInReview = review !== undefined && reviewed?.digest === proposal.digest;
    const request = (): Promise<void> => requestChanges((what, action) => this.act(what, action), info.taskId, review ?? 0, proposal);
    return html`<p>Result of the task <a href=${studio.href('tasks', info.taskId)}>${oneLine(info.title)}</a></p>
      ${!isInReview
        ? nothing
        : studio.write
          ? html`<p class="actions">${this.#button('Request changes…', '', request)}</p>`
          : html`<p class="instead">Run instead: ${view.commandView('gdn', 'task', 'rework', info.taskId, 'TEXT')}</p>`}`;
  }

  #checkView(check: ProposalCheck): TemplateResult {
    if (check.canApply) return html`<p class="good">The proposal can be applied.</p>`;
    return html`<p class="warn">The proposal cannot be applied:</p>
      <ul>${check.refusals.map(
        ({ path, reason }) => html`<li>${path === undefined ? '' : html`${view.nameView(path)}: `}${oneLine(reason)}</li>`,
      )}</ul>`;
  }

  #actions(proposal: Proposal, check: ProposalCheck | null): TemplateResult | typeof nothing {
    const words = (verb: string): TemplateResult => view.commandView('gdn', 'proposal', verb, proposal.runId, proposal.agentId);
    if (proposal.state === 'applied') {
      if (!studio.write) return html`<p class="instead">Run instead: ${words('revert')}</p>`;
      return html`<p class="actions">${this.#button('Revert…', 'danger', () => this.#revert())}</p>`;
    }
    if (proposal.state !== 'open' || check === null) return nothing;
    const refusals = check.refusals.map(({ kind }) => kind);
    const isOnlyMoved = !check.canApply && refusals.every((kind) => MOVED.includes(kind));
    const isStale = !check.canApply && refusals.every((kind) => STALE.includes(kind));
    if (!studio.write) {
      return html`<p class="instead">Run instead: ${words('apply')} ${isStale ? words('merge') : ''} ${words('reject')}</p>`;
    }
    return html`<p class="actions">
      ${check.canApply ? this.#button('Apply…', 'primary', () => this.#apply(proposal, false)) : nothing}
      ${isOnlyMoved ? this.#button('Apply although the project changed…', '', () => this.#apply(proposal, true)) : nothing}
      ${isStale ? this.#button('Merge', '', () => this.#merge()) : nothing}
      ${this.#button('Reject…', 'danger', () => this.#reject())}
    </p>`;
  }

  #button(label: string, tone: string, go: () => Promise<unknown>): TemplateResult {
    return html`<button type="button" class=${tone} ?disabled=${this.isBusy} @click=${() => void go()}>${label}</button>`;
  }

  async #apply(proposal: Proposal, allowMovedBase: boolean): Promise<void> {
    const body = html`<p>${counted(proposal.changedFiles, 'file')} of the project ${proposal.changedFiles === 1 ? 'is' : 'are'} changed:
      exactly the displayed patch, completely or not at all.</p>`;
    if ((await ask({ title: 'Apply the proposal', body, confirm: 'Apply' })) === null) return;
    await this.act('Applying', async () => {
      const params = studio.of({ sandbox: this.#sandbox, digest: proposal.digest, allowMovedBase });
      const done = await call<{ files: string[]; kept?: unknown }>('proposal.apply', params);
      return `Applied: ${counted(done.files.length, 'file')}.`;
    });
  }

  async #reject(): Promise<void> {
    const answer = await ask({
      title: 'Reject the proposal',
      body: html`<p class="field"><label for="reason">Reason for the author (optional)</label>
        <textarea id="reason" name="reason" rows="3"></textarea></p>`,
      confirm: 'Reject',
      isDangerous: true,
    });
    if (answer === null) return;
    const reason = fieldText(answer, 'reason').trim();
    await this.act('Rejecting', async () => {
      await call('proposal.reject', studio.of({ sandbox: this.#sandbox, ...(reason === '' ? {} : { reason }) }));
      return 'The proposal was rejected.';
    });
  }

  async #merge(): Promise<void> {
    await this.act('Merging', async () => {
      const done = await call<{ proposal: Proposal | null; conflicts: { path?: string }[] }>('proposal.merge', studio.of({ sandbox: this.#sandbox }));
      if (done.proposal !== null) return `Created a new proposal: ${done.proposal.runId}/${done.proposal.agentId}.`;
      return `No proposal was created: conflicts in ${done.conflicts.map(({ path }) => oneLine(path ?? '')).join(', ')}.`;
    });
  }

  async #revert(): Promise<void> {
    const body = html`<p>Restores all files to their state before the proposal was applied.</p>`;
    if ((await ask({ title: 'Revert the proposal', body, confirm: 'Revert', isDangerous: true })) === null) return;
    await this.act('Reverting', async () => {
      const done = await call<{ files: string[] }>('proposal.revert', studio.of({ sandbox: this.#sandbox }));
      return `Reverted: ${counted(done.files.length, 'file')}.`;
    });
  }
}

function proposalLink({ runId, agentId }: Sandbox): TemplateResult {
  const name = `${runId}/${agentId}`;
  return html`<a href=${studio.href('proposals', name)} class="name">${oneLine(name)}</a>`;
}

customElements.define('gdn-proposals', ProposalsPage);
