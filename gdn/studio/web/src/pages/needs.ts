// Needs a person: pending decisions, with buttons to decide.

import { html, nothing, type TemplateResult } from 'lit';
import { repeat } from 'lit/directives/repeat.js';
import { call } from '../api.js';
import { isOverOwnBudget } from '../budgets.js';
import { decide, patchOf } from '../changesets.js';
import { type ApprovalWithInput, countOf, type Needs, readNeeds, spentPart } from '../needs.js';
import { isEvent, Page } from '../page.js';
import { ask, fieldText, fieldTexts } from '../parts/dialog.js';
import { diffView } from '../parts/diff.js';
import { count, counted, dollars } from '../parts/figures.js';
import { answerOf, formView } from '../parts/form.js';
import { harmless, head, oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { raiseBudget } from '../raise.js';
import { studio } from '../studio.js';
import type { Budget, FormField, Proposal, Question, Task, UnknownCall, WaitingChangeset, WaitingEvent, WorkspaceChange } from '../types.js';

type Row = { key: string; row: TemplateResult };
type Section = { title: string; rows: Row[] };

/** The page. Its rows are kept by their keys, so that the focus never comes to stand on another decision. */
class NeedsPage extends Page {
  #needs: Needs | null = null;
  /** The patches that were asked for, by the changesets' names. */
  readonly #patches = new Map<string, string>();

  protected heading(): string {
    return 'Needs a person';
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    const kinds = ['approval.', 'question.', 'call.', 'event.p', 'event.r', 'event.dropped', 'event.cancelled', 'proposal.', 'bundle.', 'task.'];
    return super.concerns(change) || isEvent(change, ...kinds, 'budget.', 'configuration.', 'instance.deleted');
  }

  protected async read(): Promise<void> {
    this.#needs = await readNeeds();
    window.dispatchEvent(new CustomEvent('gdn-needs', { detail: countOf(this.#needs) }));
  }

  protected content(): TemplateResult | typeof nothing {
    const needs = this.#needs;
    if (needs === null) return nothing;
    const sections: Section[] = [
      { title: 'Tool calls to approve', rows: needs.approvals.map((one) => ({ key: one.approval.approvalId, row: this.#approval(one) })) },
      { title: 'Questions', rows: needs.questions.map((one) => ({ key: one.questionId, row: this.#question(one) })) },
      { title: 'Tool calls with an unknown outcome', rows: needs.calls.map((one) => ({ key: callName(one), row: this.#unknownCall(one) })) },
      { title: 'Parked events', rows: needs.parked.map((one) => ({ key: eventName(one), row: this.#parked(one) })) },
      { title: 'Proposals', rows: needs.proposals.map((one) => ({ key: `${one.runId}/${one.agentId}`, row: this.#proposal(one) })) },
      { title: 'Changes to agents’ own configuration', rows: needs.bundles.changesets.map((one) => ({ key: changesetName(one), row: this.#changeset(one) })) },
      { title: 'Unreadable configurations', rows: needs.bundles.unreadable.map((key) => ({ key, row: this.#unreadable(key) })) },
      { title: 'Tasks', rows: needs.tasks.map((one) => ({ key: one.taskId, row: this.#task(one) })) },
      { title: 'Paused events', rows: needs.paused.map((one) => ({ key: eventName(one), row: this.#paused(one) })) },
      { title: 'Logins', rows: needs.consents.map((one) => ({ key: one, row: this.#consent(one) })) },
      { title: 'Budgets nearly exhausted', rows: needs.budgets.map((one, at) => ({ key: `${at}`, row: this.#budget(one) })) },
    ];
    const filled = sections.filter((section) => section.rows.length > 0);
    return html`${needs.failures.map((failure) => view.failureView(failure))}
      ${needs.bundles.more ? html`<p class="warn">Only some of the waiting configuration changes are shown.</p>` : nothing}
      ${filled.length === 0 && needs.failures.length === 0 ? html`<p>Nothing needs a person.</p>` : nothing}
      ${repeat(
        filled,
        (section) => section.title,
        (section) => html`<section @keydown=${moveAmongItems}>
          <h2>${section.title} <span class="count">${section.rows.length}</span></h2>
          ${repeat(section.rows, ({ key }) => key, ({ row }) => row)}
        </section>`,
      )}`;
  }

  #buttons(commands: string[][], ...buttons: TemplateResult[]): TemplateResult {
    if (studio.write) return html`<p class="actions">${buttons}</p>`;
    return html`<p class="instead">Run instead: ${commands.map((words) => html`${view.commandView(...words)} `)}</p>`;
  }

  #button(label: string, name: string, tone: string, click: () => void): TemplateResult {
    return html`<button type="button" class=${tone} ?disabled=${this.isBusy} aria-label=${`${label} ${oneLine(name)}`}
      @click=${click}>${label}</button>`;
  }

  #approval({ approval, input }: ApprovalWithInput): TemplateResult {
    const { approvalId, toolName } = approval;
    return html`<article class="item" tabindex="0" data-item=${approvalId} aria-label=${`${oneLine(toolName)} ${approvalId}`}>
      <h3><span class="name">${oneLine(toolName)}</span> <small>${approvalId}</small></h3>
      <p>${oneLine(approval.agentName)} in ${view.conversationLink(approval.instanceKey)}, requested ${view.agoView(approval.askedAt)}.</p>
      ${approval.mayHaveBegun === true
        ? html`<p class="warn">A process that ended may have started this call already.</p>`
        : nothing}
      <p class="faint">The arguments were written by a model:</p>
      ${input === undefined
        ? html`<p><code>${oneLine(approval.summary)}</code></p>`
        : view.jsonView(input, `Arguments of ${oneLine(toolName)}`)}
      ${this.#buttons(
        [['gdn', 'approve', approvalId], ['gdn', 'deny', approvalId]],
        this.#button('Approve', `${toolName} ${approvalId}`, 'primary', () => void this.#decide(approvalId, 'approved')),
        this.#button('Deny…', `${toolName} ${approvalId}`, '', () => void this.#deny(approvalId, toolName)),
      )}
    </article>`;
  }

  async #deny(approvalId: string, toolName: string): Promise<void> {
    const answer = await ask({
      title: `Deny ${oneLine(toolName)}`,
      body: html`<p class="field"><label for="reason">Reason for the model (optional)</label>
        <textarea id="reason" name="reason" maxlength="4096" rows="3"></textarea></p>`,
      confirm: 'Deny',
    });
    if (answer !== null) await this.#decide(approvalId, 'denied', fieldText(answer, 'reason').trim());
  }

  async #decide(approvalId: string, decision: string, reason = ''): Promise<void> {
    await this.act(decision === 'approved' ? 'Approving' : 'Denying', async () => {
      const params = studio.of({ approvalId, decision, ...(reason === '' ? {} : { reason }) });
      const done = await call<{ decision: string; toolName: string }>('approval.decide', params);
      return `${oneLine(done.toolName)} (${approvalId}) is ${done.decision}.`;
    });
  }

  #unknownCall(one: UnknownCall): TemplateResult {
    const { instanceKey, toolCallId, toolName } = one;
    return html`<article class="item" tabindex="0" data-item=${toolCallId} aria-label=${`${oneLine(toolName)} ${oneLine(toolCallId)}`}>
      <h3><span class="name">${oneLine(toolName)}</span> <small>${oneLine(toolCallId)}</small></h3>
      <p>${oneLine(one.agentName)} in ${view.conversationLink(instanceKey)} called it; it was interrupted ${view.agoView(one.at)}:</p>
      <blockquote>${harmless(one.detail)}</blockquote>
      <p>The call is not repeated automatically. Check for its effect, and message the agent if it needs your finding.</p>
      ${this.#buttons(
        [['gdn', 'settle', instanceKey, toolCallId]],
        this.#button('Settle…', `${toolName} ${toolCallId}`, 'primary', () => void this.#settle(one)),
      )}
    </article>`;
  }

  async #settle({ instanceKey, toolCallId, toolName }: UnknownCall): Promise<void> {
    const answer = await ask({
      title: `Settle ${oneLine(toolName)}`,
      body: html`<p class="field"><label for="note">Your finding, for the audit log (optional)</label>
        <textarea id="note" name="note" maxlength="4096" rows="3"></textarea></p>`,
      confirm: 'Settle',
    });
    if (answer === null) return;
    await this.act('Settling', async () => {
      const note = fieldText(answer, 'note').trim();
      await call('call.settle', studio.of({ instanceKey, toolCallId, ...(note === '' ? {} : { note }) }));
      return `${oneLine(toolName)} (${oneLine(toolCallId)}) is settled.`;
    });
  }

  #question(question: Question): TemplateResult {
    const { questionId, source } = question;
    const asker = [source.connection, source.tool].filter((part) => part !== undefined).join(', ');
    return html`<article class="item" tabindex="0" data-item=${questionId} aria-label=${`Question ${questionId}`}>
      <h3>${oneLine(asker === '' ? source.kind : asker)} <small>${questionId}</small></h3>
      <p>In ${view.conversationLink(question.instanceKey)}, asked ${view.agoView(question.askedAt)}${
        question.expiresAt === undefined ? '' : html`; it ends at ${view.timeView(question.expiresAt)}`}.</p>
      <blockquote>${harmless(question.message)}</blockquote>
      ${this.#buttons(
        [['gdn', 'question', 'show', questionId], ['gdn', 'question', 'decline', questionId]],
        this.#button('Answer…', questionId, 'primary', () => void this.#answer(question)),
        this.#button('Decline', questionId, '', () => void this.act('Declining', async () => {
          await call('question.decline', studio.of({ questionId }));
          return `${questionId} is declined.`;
        })),
      )}
    </article>`;
  }

  async #answer(question: Question): Promise<void> {
    const { questionId } = question;
    let form: FormField[] = [];
    const isShown = await this.act('Loading the question', async () => {
      ({ form } = await call<{ form: FormField[] }>('question.show', studio.of({ questionId })));
      return '';
    });
    if (!isShown) return;
    const answer = await ask({
      title: `Answer ${questionId}`,
      body: html`<blockquote>${harmless(question.message)}</blockquote>${formView(form)}`,
      confirm: 'Send the answer',
    });
    if (answer === null) return;
    await this.act('Answering', async () => {
      const content = answerOf(form, (name) => fieldTexts(answer, name));
      await call('question.answer', studio.of({ questionId, content }));
      return `${questionId} was answered.`;
    });
  }

  #parked(event: WaitingEvent): TemplateResult {
    const of = studio.of({ instanceKey: event.instanceKey, eventId: event.eventId });
    return html`<article class="item" tabindex="0" data-item=${event.eventId} aria-label=${`Event ${oneLine(event.eventId)}`}>
      <h3><span class="name">${oneLine(event.eventId)}</span></h3>
      <p>In ${view.conversationLink(event.instanceKey)}, parked ${view.agoView(event.since)} after ${counted(event.crashes, 'crash', 'crashes')}.</p>
      ${event.reason === undefined ? nothing : html`<p>${harmless(event.reason)}</p>`}
      <blockquote>${harmless(event.input)}</blockquote>
      ${this.#buttons(
        [['gdn', 'event', 'retry', event.eventId], ['gdn', 'event', 'drop', event.eventId]],
        this.#button('Retry', event.eventId, 'primary', () => void this.act('Retrying', async () => {
          await call('event.retry', of);
          return `${oneLine(event.eventId)} is queued again.`;
        })),
        this.#button('Drop…', event.eventId, 'danger', () => void this.#drop(event, of)),
      )}
    </article>`;
  }

  async #drop(event: WaitingEvent, of: Record<string, unknown>): Promise<void> {
    const title = `Drop ${oneLine(event.eventId)}`;
    const body = html`<p>The event is dropped without an answer.</p><blockquote>${head(event.input, 200)}</blockquote>`;
    if ((await ask({ title, body, confirm: 'Drop', isDangerous: true })) === null) return;
    await this.act('Dropping', async () => {
      await call('event.drop', of);
      return `${oneLine(event.eventId)} was dropped.`;
    });
  }

  #paused(event: WaitingEvent): TemplateResult {
    return html`<article class="item" tabindex="0" data-item=${event.eventId} aria-label=${`Event ${oneLine(event.eventId)}`}>
      <h3><span class="name">${oneLine(event.eventId)}</span></h3>
      <p>In ${view.conversationLink(event.instanceKey)}, received ${view.agoView(event.since)}.</p>
      <blockquote>${harmless(event.input)}</blockquote>
      ${this.#buttons(
        [['gdn', 'event', 'resume', event.eventId]],
        this.#button('Resume', event.eventId, 'primary', () => void this.act('Resuming', async () => {
          await call('event.resume', studio.of({ instanceKey: event.instanceKey, eventId: event.eventId }));
          return `${oneLine(event.eventId)} is resumed.`;
        })),
      )}
    </article>`;
  }

  #proposal(proposal: Proposal): TemplateResult {
    const name = `${proposal.runId}/${proposal.agentId}`;
    return html`<article class="item" tabindex="0" data-item=${name} aria-label=${`Proposal ${oneLine(name)}`}>
      <h3><a href=${studio.href('proposals', name)} class="name">${oneLine(name)}</a></h3>
      <p>${counted(proposal.changedFiles, 'changed file')}, submitted ${view.agoView(proposal.createdAt)}.
        Review, apply or reject it on its page.</p>
      ${proposal.notes === undefined ? nothing : html`<blockquote>${harmless(proposal.notes)}</blockquote>`}
      ${proposal.problem === undefined ? nothing : html`<p class="warn">${harmless(proposal.problem)}</p>`}
    </article>`;
  }

  #task(task: Task): TemplateResult {
    const { taskId, title, status, blockedBy, damaged, updatedAt } = task;
    return html`<article class="item" tabindex="0" data-item=${taskId} aria-label=${`Task ${oneLine(taskId)}`}>
      <h3><a href=${studio.href('tasks', taskId)} class="name">${oneLine(title === '' ? taskId : title)}</a></h3>
      ${damaged === undefined
        ? html`<p>${view.standingView(status)} ${blockedBy === undefined ? nothing : html`(${oneLine(blockedBy)})`}
            since ${view.agoView(updatedAt)}. Answer it on its page.</p>
            ${this.#taskBudget(task)}`
        : html`<p>${view.damageView(damaged)}</p>
            <p>Fix the cause; the daemon then loads the task again automatically.</p>`}
    </article>`;
  }

  #taskBudget({ taskId, title, blockedBy }: Task): TemplateResult | typeof nothing {
    if (blockedBy === 'shared_budget') {
      return html`<p>A budget of its agent, its conversation or the workspace is exhausted. After you increase it in goondan.yaml, the task resumes automatically;
        <a href=${studio.href('usage')}>Usage</a> shows the usage.</p>`;
    }
    if (!isOverOwnBudget(blockedBy)) return nothing;
    const raise = (): void => void this.act('Setting the budget', () => raiseBudget(taskId));
    return this.#buttons([['gdn', 'task', 'show', taskId]], this.#button('Increase its budget…', title, 'primary', raise));
  }

  #changeset(one: WaitingChangeset): TemplateResult {
    const { instanceKey, agentName, changeset } = one;
    const { changesetId } = changeset;
    const name = changesetName(one);
    const patch = this.#patches.get(name);
    const show = (): void => void this.act('Loading the patch', async () => {
      this.#patches.set(name, await patchOf(instanceKey, changesetId));
      return 'The patch is shown.';
    });
    const say = (decision: 'approve' | 'reject') => (): void =>
      void decide(decision, instanceKey, changesetId, (what, action) => this.act(what, action));
    return html`<article class="item" tabindex="0" data-item=${changesetId} aria-label=${`Changeset ${oneLine(changesetId)} of ${oneLine(instanceKey)}`}>
      <h3><a href=${studio.href('bundles', instanceKey)} class="name">${oneLine(changesetId)}</a></h3>
      <p>${oneLine(agentName)} wants to change its configuration in ${view.conversationLink(instanceKey)},
        opened ${view.agoView(changeset.openedAt)}: ${(changeset.summary ?? []).map(oneLine).join('; ')}</p>
      ${changeset.message === undefined ? nothing : html`<blockquote>${harmless(changeset.message)}</blockquote>`}
      ${changeset.detail === undefined ? nothing : html`<p class="faint">${harmless(changeset.detail)}</p>`}
      ${patch === undefined
        ? html`<p class="actions">${this.#button('Show the patch', changesetId, '', show)}</p>`
        : diffView(patch, `Patch of ${oneLine(changesetId)}`)}
      ${this.#buttons(
        [['gdn', 'bundle', 'approve', changesetId, '--key', instanceKey], ['gdn', 'bundle', 'reject', changesetId, '--key', instanceKey]],
        this.#button('Approve…', changesetId, 'primary', say('approve')),
        this.#button('Reject…', changesetId, '', say('reject')),
      )}
    </article>`;
  }

  #unreadable(instanceKey: string): TemplateResult {
    return html`<article class="item" tabindex="0" aria-label=${`Configuration of ${oneLine(instanceKey)}`}>
      <p>Cannot read the change that the agent of ${view.conversationLink(instanceKey)} requests. To find the damage, run
        ${view.commandView('gdn', 'verify')}</p>
    </article>`;
  }

  #consent(app: string): TemplateResult {
    const name = app.replace(/^OAuthApp\//, '');
    return html`<article class="item" tabindex="0" data-item=${app} aria-label=${`Login ${oneLine(app)}`}>
      <h3><span class="name">${oneLine(app)}</span></h3>
      <p>A login is required. In the project's directory, run: ${view.commandView('gdn', 'oauth', 'login', name)}</p>
    </article>`;
  }

  #budget(budget: Budget): TemplateResult {
    const whose = budget.instanceKey ?? budget.agentName ?? 'the workspace';
    const { limit, spent } = budget;
    return html`<article class="item" tabindex="0" aria-label=${`Budget of ${oneLine(whose)}`}>
      <h3>${oneLine(budget.scope)}: <span class="name">${oneLine(whose)}</span></h3>
      <p>${Math.floor(spentPart(budget) * 100)} % is spent or reserved, period: ${oneLine(budget.period)}.
        ${limit.tokens === undefined ? nothing : `${count(spent.tokens ?? 0)} of ${count(limit.tokens)} tokens. `}
        ${limit.microUsd === undefined ? nothing : `${dollars(spent.microUsd ?? 0)} of ${dollars(limit.microUsd)}.`}</p>
      <p>When it is exhausted, models are not called${budget.period === 'day' ? ' until the next day (UTC)' : ''}. To increase it, change
        <code>budgets</code> in goondan.yaml, then run: ${view.commandView('gdn', 'reload')}</p>
    </article>`;
  }
}

/** Events of different conversations may have the same id. */
function eventName(event: WaitingEvent): string {
  return JSON.stringify([event.instanceKey, event.eventId]);
}

/** So may calls. */
function callName({ instanceKey, toolCallId }: UnknownCall): string {
  return JSON.stringify([instanceKey, toolCallId]);
}

/** So may changesets of different conversations. */
function changesetName({ instanceKey, changeset }: WaitingChangeset): string {
  return JSON.stringify([instanceKey, changeset.changesetId]);
}

/** Up and down move among the items of a list. */
function moveAmongItems(event: KeyboardEvent): void {
  if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
  const item = event.target as HTMLElement;
  if (!item.matches('.item')) return;
  const items = [...document.querySelectorAll<HTMLElement>('gdn-needs .item')];
  const next = items[items.indexOf(item) + (event.key === 'ArrowDown' ? 1 : -1)];
  if (next === undefined) return;
  event.preventDefault();
  next.focus();
}

customElements.define('gdn-needs', NeedsPage);
