// One task: state, pending requests, live work, the last run, checkpoints, and actions.

import { html, nothing, type TemplateResult } from 'lit';
import { type ApiError, asApiError, call, callPages } from '../api.js';
import { budgetCommand, isOverOwnBudget } from '../budgets.js';
import { FollowingPage } from '../following.js';
import { isEvent } from '../page.js';
import { type Decider, taskAskView } from '../decisions.js';
import { ask } from '../parts/dialog.js';
import { bytes, count, counted, dollars } from '../parts/figures.js';
import { markdownView } from '../parts/markdown.js';
import { sendView } from '../parts/sendbox.js';
import { messagesView, taskStreamView } from '../parts/taskstream.js';
import { harmless, oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { raiseBudget } from '../raise.js';
import { patchView, readProposal, requestChanges, type Reviewed } from '../review.js';
import { Feed } from '../stream.js';
import { studio } from '../studio.js';
import { sentMessages, taskReducer, type TaskStreamState } from '../taskstream.js';
import type { Checkpoint, TaskDetail, TaskItem, TaskPart, WorkspaceChange } from '../types.js';

/** So much of the end of the log is shown. */
const LOG_BYTES = 8192;
const ENDED = ['completed', 'failed', 'cancelled'];
/** The most files and phases that are listed. */
const FILES_SHOWN = 30;
const PHASES_SHOWN = 24;
/** Drawing takes at most one part in so many of the time, so that keys are handled while a long stream arrives. */
const DRAW_PART = 5;
/** The longest time from an item to its drawing. */
const DRAW_WAIT_MAX_MS = 500;
/** Distance from the end within which the stream follows new items. */
const NEAR_END_PX = 40;

class TaskPage extends FollowingPage<TaskStreamState, TaskPart> {
  #detail: TaskDetail | null = null;
  #checkpoints: Checkpoint[] = [];
  #checkpointsFailure: ApiError | null = null;
  /** The proposal in review. */
  #reviewed: Reviewed | null = null;
  #reviewFailure: ApiError | null = null;
  /** True from a message until the task is read again: then its delivery is known. */
  #isMessageDue = false;
  #log = '';
  #frame = 0;
  #drawing: ReturnType<typeof setTimeout> | undefined;
  /** Time before which the stream is not drawn again. */
  #restUntilMs = 0;
  #isAtEnd = true;
  /** The text of the address, until it was found in the live work. */
  #sought = '';

  protected heading(): string {
    return `Task ${oneLine(this.#detail?.info.title ?? this.route.arg)}`;
  }

  get #id(): string {
    return this.route.arg;
  }

  protected begin(): Feed<TaskStreamState, TaskPart> {
    this.#sought = this.route.query.get('find')?.toLowerCase() ?? '';
    this.#isAtEnd = this.#sought === '';
    return new Feed('task.watch', studio.of({ taskId: this.#id }), taskReducer);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    clearTimeout(this.#drawing);
    cancelAnimationFrame(this.#frame);
  }

  protected override told(part: TaskPart | null): void {
    // The task may have continued since it was read.
    if (this.feed?.standing === 'over' && !this.#hasEnded) this.readSoon();
    this.#followMessages(part?.items ?? []);
    this.#drawSoon();
  }

  /** Many parts in one frame are drawn once. */
  #drawSoon(): void {
    clearTimeout(this.#drawing);
    cancelAnimationFrame(this.#frame);
    const restMs = this.#restUntilMs - performance.now();
    if (restMs > 0) this.#drawing = setTimeout(() => this.#drawSoon(), restMs);
    else this.#frame = requestAnimationFrame(() => void this.#draw());
  }

  async #draw(): Promise<void> {
    const beganMs = performance.now();
    this.requestUpdate();
    await this.updateComplete;
    const endMs = performance.now();
    this.#restUntilMs = endMs + Math.min((endMs - beganMs) * (DRAW_PART - 1), DRAW_WAIT_MAX_MS);
  }

  /** Reads the task again if items of the stream can be a new message, or the sign that one was delivered. */
  #followMessages(items: TaskItem[]): void {
    const isNew = items.some((item) => item.type === 'event' && item.event === 'message_sent');
    const isWaiting = items.length > 0 && (this.#detail?.messages ?? []).length > 0;
    if (this.#isMessageDue || !(isNew || isWaiting)) return;
    this.#isMessageDue = true;
    this.readSoon();
  }

  get #hasEnded(): boolean {
    return ENDED.includes(this.#detail?.info.status ?? '');
  }

  protected override updated(): void {
    const box = this.querySelector('.stream');
    if (box !== null && this.#isAtEnd) box.scrollTop = box.scrollHeight;
    if (this.#sought !== '' && this.feed?.state.isBehind === false) this.#seek();
  }

  /** Moves to the latest entry of the live work with the text of the address. */
  #seek(): void {
    const entries = [...this.querySelectorAll<HTMLElement>('.stream .entry')];
    const found = entries.findLast((entry) => entry.textContent?.toLowerCase().includes(this.#sought));
    if (found === undefined) return;
    this.#sought = '';
    for (const details of found.querySelectorAll('details')) details.open = true;
    found.tabIndex = -1;
    found.classList.add('sought');
    found.focus({ preventScroll: true });
    found.scrollIntoView({ block: 'center' });
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    if (change === null || change.snapshot !== undefined) return true;
    if (isEvent(change, 'proposal.')) return change.event?.['runId'] === this.#detail?.sandbox?.at.runId;
    return isEvent(change, 'task.', 'process.', 'approval.') && (change.event?.taskId ?? this.#id) === this.#id;
  }

  protected override async read(): Promise<void> {
    this.#isMessageDue = false;
    this.#checkpointsFailure = null;
    const of = studio.of({ taskId: this.#id });
    const [detail, checkpoints, log] = await Promise.all([
      call<TaskDetail>('task.show', of),
      callPages<Checkpoint>('task.checkpoints', 'checkpoints', of).catch((thrown: unknown) => {
        this.#checkpointsFailure = asApiError(thrown);
        return { all: [] };
      }),
      call<{ text: string }>('task.logs', { ...of, log: 'agent', offset: -LOG_BYTES, wait: false }).catch(() => ({ text: '' })),
    ]);
    const reviewed = await this.#readProposal(detail);
    this.#detail = detail;
    this.#reviewed = reviewed;
    this.#checkpoints = checkpoints.all;
    this.#log = log.text;
    // The change that caused this read may have continued the task, even if it has ended again by now.
    if (this.feed?.standing === 'over') this.feed.continue();
  }

  async #readProposal({ review, sandbox, proposal }: TaskDetail): Promise<Reviewed | null> {
    this.#reviewFailure = null;
    if (review === undefined || sandbox === undefined || proposal === undefined) return null;
    return readProposal(sandbox.at, this.#reviewed, () => this.reload()).catch((thrown: unknown) => {
      this.#reviewFailure = asApiError(thrown);
      return null;
    });
  }

  protected content(): TemplateResult | typeof nothing {
    const detail = this.#detail;
    if (detail === null) return nothing;
    const { info } = detail;
    return html`<p><a href=${studio.href('tasks')}>All tasks</a></p>
      ${info.damaged === undefined
        ? nothing
        : html`<p class="warn">${view.damageView(info.damaged)}. Fix the cause; the daemon then loads the task again automatically.</p>`}
      ${info.warning === undefined ? nothing : html`<p class="warn">${harmless(info.warning)}</p>`}
      ${(detail.asks ?? []).map((one) => taskAskView(one, this.#id, studio.workspaceId, this.#decider))}
      ${(detail.approvals ?? []).map((id) => html`<p class="warn">The call ${oneLine(id)} waits for a person:
        <a href=${studio.href('needs')}>Needs a person</a></p>`)}
      ${detail.review === undefined ? nothing : this.#review(detail.review, detail.documents ?? [], detail.missingDocuments ?? [])}
      ${this.#buttons(info.status)} ${phasesView(detail)}
      <div class="task"><div>
        <h2>Live work ${this.#standing()}</h2>${this.#stream()}
        ${this.#talk(detail)}
        ${this.#failedRun(detail)}
      </div><aside aria-label="Facts of the task">
        ${detail.plan === undefined
          ? nothing
          : html`<h2>Plan</h2>
              <ol class="steps">${detail.plan.map((step) => html`<li>${oneLine(step.title)} ${view.standingView(step.state)}</li>`)}</ol>`}
        ${this.#changedFiles(detail)}
        <h2>State</h2>
        ${view.factsView([
          ['Status', html`${view.standingView(info.status)} ${oneLine(info.blockedBy ?? '')}`],
          ['Merge queue', info.held === undefined ? '' : `held: ${oneLine(info.held)}`],
          ['Failure', detail.failure === undefined ? '' : oneLine(detail.failure)],
          ['Progress', `${info.progress} %${detail.step === undefined ? '' : `, ${oneLine(detail.step)}`}`],
          ['Agent', this.#agents(detail)],
          ['Last run', this.#lastRun(detail)],
          ['Next run', detail.run === undefined && info.status === 'running' ? view.timeView(detail.notBefore) : ''],
          ['Usage', budgetText(detail)],
          ['Disk', detail.disk === undefined ? '' : `${bytes(detail.disk.bytes)} of ${bytes(detail.disk.quotaBytes)}`],
          ['Work area', html`<span class="name">${oneLine(detail.workArea)}</span>`],
          ['Works in', detail.sandbox === undefined ? '' : html`<span class="name">${oneLine(detail.sandbox.workDir)}</span>`],
          ['Last drill', drillText(detail.drill)],
        ])}
      </aside></div>
      <h2>Description</h2><div class="document">${markdownView(detail.description)}</div>
      <h2>Checkpoints</h2>${this.#checkpointsView(info.status)}
      <h2>Recent history</h2>${view.tableView('Recent history', ['When', 'What', 'Detail'],
        (detail.recent ?? []).map((fact) => [view.timeView(fact.at), oneLine(fact.event), oneLine(fact.detail ?? '')]))}
      <h2>Log</h2>${view.blockView(logText(this.#log), 'End of the log')}`;
  }

  /** Files that the agent reports to have changed in what is kept of the stream, and those of the proposal. */
  #changedFiles({ proposal }: TaskDetail): TemplateResult | typeof nothing {
    const changes = (this.feed?.state.entries ?? []).flatMap(({ item }) => (item.type === 'fileChange' ? item.files.map(({ path }) => path) : []));
    const states = new Map<string, string>(changes.map((path) => [path, '']));
    for (const { path, status } of proposal?.files ?? []) states.set(path, status);
    if (states.size === 0) return nothing;
    const shown = [...states].slice(0, FILES_SHOWN);
    return html`<h2>Changed files</h2><ul class="steps">${shown.map(([path, status]) => html`<li class="name">${oneLine(path)} ${status === '' ? nothing : view.standingView(status)}</li>`)}</ul>
      ${states.size > FILES_SHOWN || proposal?.moreFiles !== undefined ? html`<p class="faint">and more</p>` : nothing}`;
  }

  /** Its agents in order of preference, with the limits that they reached. */
  #agents({ info, agents = [] }: TaskDetail): TemplateResult | string {
    if (agents.length === 0) return oneLine(info.agent);
    return html`<ul>${agents.map(({ name, isCurrent, limitedUntil }) => html`<li>${oneLine(name)}
      ${isCurrent === true ? view.standingView('current') : nothing}
      ${limitedUntil === undefined || Date.parse(limitedUntil) < Date.now() ? nothing : html`<span class="faint">usage limit until ${view.timeView(limitedUntil)}</span>`}</li>`)}</ul>`;
  }

  #lastRun({ lastRun }: TaskDetail): TemplateResult | string {
    if (lastRun === undefined) return '';
    return html`<span class=${lastRun.isOk ? '' : 'warn'} data-last-run>${lastRun.number}: ${oneLine(lastRun.outcome)}</span>`;
  }

  /** Last words and errors of a failed run. A successful one is described by its documents. */
  #failedRun({ lastRun }: TaskDetail): TemplateResult | typeof nothing {
    if (lastRun === undefined || lastRun.isOk) return nothing;
    const part = (title: string, text = ''): TemplateResult | typeof nothing =>
      text === '' ? nothing : html`<h2>${title}</h2>${view.blockView(text, title)}`;
    return html`${part('Last output', lastRun.lastWords)} ${part('Error output', lastRun.stderr)}`;
  }

  #standing(): TemplateResult | typeof nothing {
    const standing = this.feed?.standing ?? 'connecting';
    return html`<small data-stream=${standing}>${view.standingView(standing === 'over' ? 'ended' : standing)}</small>`;
  }

  #stream(): TemplateResult {
    const { state, standing, failure } = this.feed ?? { state: taskReducer.start(), standing: 'connecting', failure: null };
    const scrolled = (event: Event): void => {
      const box = event.target as HTMLElement;
      this.#isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END_PX;
    };
    return html`${standing === 'lost' && failure !== null ? view.failureView(failure) : nothing}
      ${state.entries.length === 0 ? html`<p class="faint">No work yet.</p>` : taskStreamView(state, scrolled)}`;
  }

  /** Messages to the agent. */
  #talk(detail: TaskDetail): TemplateResult | typeof nothing {
    const { info, proposal } = detail;
    const messages = messagesView(sentMessages(this.feed?.state.entries ?? [], detail));
    const isDelivered = info.status === 'completed' && proposal?.isDelivered === true;
    const title = html`<h2>Messages to the agent</h2>${messages}`;
    if (info.status === 'cancelled' || isDelivered) return messages.length === 0 ? nothing : title;
    return html`${title}
      ${studio.write
        ? html`${sendView(`Message to ${oneLine(info.agent)}`, this.isBusy, (text, messageId) => this.#do('send', 'Sending', { text, messageId }))}
            ${this.#hasEnded ? html`<p class="faint">The task then continues.</p>` : nothing}`
        : html`<p class="instead">Run instead: ${view.commandView('gdn', 'task', 'send', this.#id, 'TEXT')}</p>`}`;
  }

  get #decider(): Decider {
    return { isBusy: this.isBusy, act: (what, action) => this.act(what, action) };
  }

  #do(method: string, what: string, more: Record<string, unknown> = {}): Promise<boolean> {
    return this.act(what, async () => {
      await call(`task.${method}`, studio.of({ taskId: this.#id, ...more }));
    });
  }

  #button(label: string, tone: string, go: () => Promise<unknown>): TemplateResult {
    return html`<button type="button" class=${tone} ?disabled=${this.isBusy} @click=${() => void go()}>${label}</button>`;
  }

  #review(phase: number, documents: string[], missing: string[]): TemplateResult {
    const rework = (): Promise<void> =>
      requestChanges((what, action) => this.act(what, action), this.#id, phase, this.#reviewed?.proposal);
    return html`<section class="item" aria-label="Review"><h2>Phase ${phase} is in review</h2>
      ${documents.length === 0 ? nothing : html`<p>Its documents: ${documents.map(oneLine).join(', ')}</p>`}
      ${missing.length === 0 ? nothing : html`<p class="warn">Missing documents: ${missing.map(oneLine).join(', ')}</p>`}
      ${this.#proposal()}
      ${studio.write
        ? html`<p class="actions">${this.#button('Approve the phase', 'primary', () => this.#do('approve', 'Approving', { phase }))}
            ${this.#button('Request changes…', '', rework)}</p>`
        : html`<p class="instead">Run instead: ${view.commandView('gdn', 'task', 'approve', this.#id)}
            ${view.commandView('gdn', 'task', 'rework', this.#id, 'TEXT')}</p>`}
    </section>`;
  }

  /** The proposal in review, if the task works on a copy of the project. */
  #proposal(): TemplateResult | typeof nothing {
    const { sandbox, proposal, proposalProblem, verified } = this.#detail ?? {};
    if (sandbox === undefined) return nothing;
    const name = `${sandbox.at.runId}/${sandbox.at.agentId}`;
    const more = proposal?.moreFiles === undefined ? nothing : html`<li>and ${counted(proposal.moreFiles, 'other file')}</li>`;
    return html`${proposalProblem === undefined ? nothing : html`<p class="warn">No proposal: ${oneLine(proposalProblem)}</p>`}
      ${proposal === undefined
        ? nothing
        : html`<p>The proposal changes <a href=${studio.href('proposals', name)}>these files of the project</a>:</p>
            ${this.#reviewFailure === null ? nothing : view.failureView(this.#reviewFailure)}
            ${this.#reviewed === null
              ? html`<ul>${proposal.files.map((file) => html`<li>${oneLine(file.path)} ${view.standingView(file.status)}</li>`)}${more}</ul>`
              : patchView(this.#reviewed)}`}
      ${verified === undefined
        ? nothing
        : verified.passed
          ? html`<p>Verification passed.</p>`
          : html`<p class="warn">Verification failed: ${oneLine(verified.why ?? '')}</p>
              ${view.blockView(verified.output ?? '', 'End of the output')}`}`;
  }

  #buttons(status: string): TemplateResult | typeof nothing {
    if (ENDED.includes(status)) return nothing;
    const verbs = status === 'idle' ? ['start'] : status === 'paused' ? ['resume'] : ['pause'];
    if (!studio.write) {
      const budget = budgetCommand(this.#id, this.#detail?.info.blockedBy, this.#detail?.budget ?? {});
      return html`<p class="instead">Run instead: ${[...verbs, 'cancel'].map((verb) => html`${view.commandView('gdn', 'task', verb, this.#id)} `)}
        ${view.commandView(...budget)}</p>`;
    }
    const labels: Record<string, string> = { start: 'Start', resume: 'Resume', pause: 'Pause' };
    const cancel = async (): Promise<void> => {
      const body = html`<p>The task and all its processes end permanently. Its work area stays.</p>`;
      if ((await ask({ title: 'Cancel the task', body, confirm: 'Cancel the task', isDangerous: true })) !== null) {
        await this.#do('cancel', 'Canceling');
      }
    };
    const isOver = isOverOwnBudget(this.#detail?.info.blockedBy);
    return html`<p class="actions">${this.#button('Change its budget…', isOver ? 'primary' : '', () =>
        this.act('Setting the budget', () => raiseBudget(this.#id, studio.workspaceId)))}
      ${verbs.map((verb) => this.#button(labels[verb]!, '', () => this.#do(verb, labels[verb]!)))}
      ${this.#button('Create a checkpoint', '', () => this.#do('checkpoint', 'Creating a checkpoint'))}
      ${this.#button('Cancel…', 'danger', cancel)}</p>`;
  }

  #checkpointsView(status: string): TemplateResult {
    if (this.#checkpointsFailure !== null) return view.failureView(this.#checkpointsFailure);
    const rows = [...this.#checkpoints].reverse().map((checkpoint) => [
      ...view.checkpointCells(checkpoint),
      checkpoint.damaged !== undefined
        ? view.damageView(checkpoint.damaged)
        : studio.write && status !== 'running'
          ? html`<button type="button" ?disabled=${this.isBusy} aria-label=${`Restore ${checkpoint.checkpointId}`}
              @click=${() => void this.#restore(checkpoint.checkpointId)}>Restore…</button>`
          : view.commandView('gdn', 'task', 'restore', this.#id, checkpoint.checkpointId),
    ]);
    return view.tableView('Checkpoints', ['Checkpoint', 'Created', 'Name', 'Size', 'Action'], rows);
  }

  async #restore(checkpointId: string): Promise<void> {
    await this.act('Restoring', async () => {
      type Restored = { added: string[]; changed: string[]; removed: string[]; preRestore?: string };
      const of = studio.of({ taskId: this.#id, checkpointId });
      const plan = await call<Restored>('task.restore', { ...of, dryRun: true });
      const line = (what: string, paths: string[]) => html`<li>${counted(paths.length, 'file')} ${what}: ${paths.slice(0, 20).map(oneLine).join(', ')}</li>`;
      const answer = await ask({
        title: `Restore ${oneLine(checkpointId)}`,
        body: html`<ul>${line('restored', plan.added)}${line('reverted', plan.changed)}${line('removed', plan.removed)}</ul>
          <p>First, a checkpoint of the current state is created.</p>`,
        confirm: 'Restore',
        isDangerous: true,
      });
      if (answer === null) return 'Nothing was changed.';
      const done = await call<Restored>('task.restore', { ...of, dryRun: false });
      return `The work area was restored from ${checkpointId}; the previous state is ${done.preRestore ?? 'not in a checkpoint'}.`;
    });
  }
}

/** The phases as a time line, with the time of each event that names its phase. */
function phasesView({ info, recent = [] }: TaskDetail): TemplateResult | typeof nothing {
  const { currentPhase, totalPhases, status } = info;
  if (totalPhases === 0) return nothing;
  const phases = Array.from({ length: Math.min(totalPhases, PHASES_SHOWN) }, (_, at) => at + 1);
  const words = (phase: number): string =>
    phase < currentPhase || status === 'completed' ? 'done' : phase === currentPhase ? (status === 'waiting_review' ? 'in review' : 'current') : 'pending';
  const isAbout = (phase: number, { event, detail = '' }: { event: string; detail?: string }): boolean =>
    event.includes('phase') && new RegExp(`(^|\\D)${phase}(\\D|$)`).test(detail);
  return html`<ol class="phases" aria-label="Phases">${phases.map((phase) => {
    const last = recent.filter((fact) => isAbout(phase, fact)).at(-1);
    const state = words(phase);
    return html`<li class=${state === 'done' ? 'done' : state === 'pending' ? '' : 'current'} aria-current=${state === 'current' || state === 'in review' ? 'step' : nothing}>Phase ${phase}: ${state}
      ${last === undefined ? nothing : html`<br><small>${view.timeView(last.at)}</small>`}</li>`;
  })}</ol>`;
}

/** Usage with the budget, if there is one. */
function budgetText({ info, budget = {} }: TaskDetail): string {
  const tokens = budget.tokens === undefined ? `${count(info.tokens)} tokens` : `${count(info.tokens)} of ${count(budget.tokens)} tokens`;
  return `${tokens}, ${dollars(info.cost)}${budget.microUsd === undefined ? '' : ` of ${dollars(budget.microUsd)}`}`;
}

function drillText(drill: TaskDetail['drill']): string {
  if (drill === undefined) return '';
  return oneLine(drill.problem ?? `${drill.checkpointId} can be restored`);
}

/** The lines of `agent.log` for people. Other lines, such as a truncated first one, stay unchanged. */
function logText(log: string): string {
  return log.split('\n').map((line) => {
    try {
      const { timestamp, level, message } = JSON.parse(line) as Record<string, string>;
      return timestamp === undefined || message === undefined ? line : `${timestamp} ${level ?? ''} ${message}`;
    } catch {
      return line;
    }
  }).join('\n');
}

customElements.define('gdn-task', TaskPage);
