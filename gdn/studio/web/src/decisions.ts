// Everything that a person decides, with what it is about: the same on the inbox, on the page of a conversation, and on
// that of a task. Texts of agents, models and strangers are untrusted.

import { html, nothing, type TemplateResult } from 'lit';
import { call } from './api.js';
import { isOverOwnBudget } from './budgets.js';
import { decide, patchOf } from './changesets.js';
import { type ApprovalWithInput, type Item, KINDS, spentPart, type WaitingTask } from './needs.js';
import { codeView } from './parts/code.js';
import { ask, fieldText, fieldTexts } from './parts/dialog.js';
import { diffView } from './parts/diff.js';
import { count, counted, dollars } from './parts/figures.js';
import { answerOf, formView } from './parts/form.js';
import { markdownView } from './parts/markdown.js';
import { requestView } from './parts/taskstream.js';
import { harmless, head, oneLine } from './parts/text.js';
import * as view from './parts/views.js';
import { raiseBudget } from './raise.js';
import { readPatch } from './review.js';
import { addressOf } from './router.js';
import { studio } from './studio.js';
import type { Approval, Budget, FormField, Proposal, Question, TaskAsk, UnknownCall, WaitingChangeset, WaitingEvent } from './types.js';

/** The page on which a decision is made. */
export interface Decider {
  isBusy: boolean;
  /** Does something, then reads again. */
  act: (what: string, action: () => Promise<string | void>) => Promise<boolean>;
  /** Patches that were loaded, by the keys of their items. */
  patches?: Map<string, string>;
}

/** Buttons for the answers to a request for a permission. */
const PERMISSION_LABELS: Record<string, string> = {
  allow: 'Allow once', 'allow for this task': 'Allow for this task', refuse: 'Deny…',
};

/** Who asks, since when, and what happens without a decision. */
interface Facts {
  who?: unknown;
  since?: string | undefined;
  otherwise?: unknown;
}

/** An item of the inbox. */
export function itemView(item: Item, decider: Decider): TemplateResult {
  switch (item.kind) {
    case 'approval':
      return approvalView(item.thing, decider, item);
    case 'question':
      return questionView(item.thing, decider, item);
    case 'call':
      return unknownCallView(item.thing, decider, item);
    case 'parked':
      return parkedView(item.thing, decider, item);
    case 'paused':
      return pausedView(item.thing, decider, item);
    case 'proposal':
      return proposalView(item.thing, decider, item);
    case 'changeset':
      return changesetView(item.thing, decider, item);
    case 'unreadable':
      return itemFrame(item, {}, html`<p>Cannot read the change that the agent of ${view.conversationLink(item.thing, item.workspaceId)} requests.
        To find the damage, run ${view.commandView('gdn', 'daemon', 'verify')}</p>`);
    case 'task':
      return taskView(item.thing, decider, item);
    case 'consent':
      return itemFrame(item, { otherwise: 'calls that need it fail' }, html`<p>A login is required. In the project’s directory, run:
        ${view.commandView('gdn', 'secret', 'oauth', 'login', item.thing.replace(/^OAuthApp\//, ''))}</p>`);
    case 'budget':
      return budgetView(item.thing, item);
  }
}

/** The frame of an item: its kind, name and workspace, who asks, since when, and the default. */
function itemFrame(item: Item, { who, since, otherwise }: Facts, content: unknown, href?: string): TemplateResult {
  const name = html`<span class="name">${head(item.title, 120)}</span>`;
  return html`<article class="item" tabindex="0" data-item=${item.id} data-key=${item.key} data-kind=${item.kind}
      aria-label=${`${KINDS[item.kind]} ${head(item.title, 80)} ${oneLine(item.id)}`}>
    <header><span class="kind">${KINDS[item.kind]}</span> <span class="faint">${item.workspace}</span></header>
    <h2>${href === undefined ? name : html`<a href=${href} data-open>${name}</a>`} ${item.title === item.id ? nothing : html`<small>${oneLine(item.id)}</small>`}</h2>
    <p class="facts">${who === undefined ? nothing : html`<span>${who}</span>`}
      ${since === undefined ? nothing : html`<span>since ${view.timeView(since)}, ${view.agoView(since)}</span>`}
      <span>Without a decision: ${otherwise ?? 'it keeps waiting'}.</span></p>
    ${content}
  </article>`;
}

function buttons(commands: string[][], ...all: (TemplateResult | typeof nothing)[]): TemplateResult {
  if (studio.write) return html`<p class="actions">${all}</p>`;
  return html`<p class="instead">Run instead: ${commands.map((words) => html`${view.commandView(...words)} `)}</p>`;
}

/** A button. `key` presses it while its item has the focus. */
function button(decider: Decider, label: string, name: string, tone: string, click: () => void, key = ''): TemplateResult {
  return html`<button type="button" class=${tone} ?disabled=${decider.isBusy} aria-label=${`${label} ${oneLine(name)}`}
    data-press=${key === '' ? nothing : key} aria-keyshortcuts=${key === '' ? nothing : key.toUpperCase()}
    title=${key === '' ? nothing : `Key: ${key.toUpperCase()}`} @click=${click}>${label}</button>`;
}

/** Arguments that a model wrote: a single program text as such, all else as JSON. */
function argumentsView(input: unknown, toolName: string): TemplateResult {
  const label = `Arguments of ${oneLine(toolName)}`;
  if (input !== null && typeof input === 'object' && !Array.isArray(input)) {
    const entries = Object.entries(input);
    const [first] = entries;
    if (entries.length === 1 && first !== undefined && typeof first[1] === 'string') {
      return html`<p class="faint">${oneLine(first[0])}:</p>${codeView(first[1], first[0] === 'command' ? 'bash' : '', label)}`;
    }
  }
  return codeView(JSON.stringify(input, null, 2) ?? '', 'json', label);
}

function approvalView({ approval, input }: ApprovalWithInput, decider: Decider, item: Item): TemplateResult {
  const { agentName, instanceKey, askedAt, deniedAt } = approval;
  const who = html`${oneLine(agentName)} in ${view.conversationLink(instanceKey, item.workspaceId)}, written by a model`;
  const otherwise = deniedAt === undefined ? 'the turn keeps waiting' : html`it is denied at ${view.timeView(deniedAt)}`;
  return itemFrame(item, { who, since: askedAt, otherwise },
    html`${approval.mayHaveBegun === true ? html`<p class="warn">A process that ended may have started this call already.</p>` : nothing}
      ${consentView(approval)}
      ${input === undefined ? html`<p><code>${oneLine(approval.summary)}</code></p>` : argumentsView(input, approval.toolName)}
      ${approvalButtons(approval, decider)}`);
}

/** Approvals so far of a call that two people must approve. */
function consentView({ needsTwo, firstApproval }: Approval): TemplateResult | typeof nothing {
  if (needsTwo !== true) return nothing;
  const approved = firstApproval === undefined ? '0 of 2' : `1 of 2, by ${oneLine(firstApproval.by ?? 'the operator')}`;
  return html`<p>Two people must approve it. Approved: ${approved}</p>`;
}

function approvalButtons({ approvalId, toolName, workspaceId }: Approval, decider: Decider): TemplateResult {
  return buttons(
    [['gdn', 'inbox', 'approve', approvalId], ['gdn', 'inbox', 'deny', approvalId]],
    button(decider, 'Approve', `${toolName} ${approvalId}`, 'primary', () => void decideCall(decider, workspaceId, approvalId, 'approved'), 'a'),
    button(decider, 'Deny…', `${toolName} ${approvalId}`, '', () => void denyCall(decider, workspaceId, approvalId, toolName), 'd'),
  );
}

/** A tool call that waits, at the call itself. */
export function approvalDecision(approval: Approval, decider: Decider): TemplateResult {
  const { approvalId, toolName, askedAt, summary } = approval;
  return html`<section class="item decision" data-item=${approvalId} aria-label=${`Decision about ${oneLine(toolName)} ${approvalId}`}>
    <p><strong>Waits for a person</strong>, asked ${view.agoView(askedAt)}: <span class="name">${oneLine(toolName)}</span></p>
    <p><code>${oneLine(summary)}</code></p>
    ${approval.mayHaveBegun === true ? html`<p class="warn">A process that ended may have started this call already.</p>` : nothing}
    ${consentView(approval)}
    ${approvalButtons(approval, decider)}</section>`;
}

async function denyCall(decider: Decider, workspaceId: string, approvalId: string, toolName: string): Promise<void> {
  const answer = await ask({
    title: `Deny ${oneLine(toolName)}`,
    body: html`<p class="field"><label for="reason">Reason for the model (optional)</label>
      <textarea id="reason" name="reason" maxlength="4096" rows="3"></textarea></p>`,
    confirm: 'Deny',
  });
  if (answer !== null) await decideCall(decider, workspaceId, approvalId, 'denied', fieldText(answer, 'reason').trim());
}

async function decideCall(decider: Decider, workspaceId: string, approvalId: string, decision: string, reason = ''): Promise<void> {
  await decider.act(decision === 'approved' ? 'Approving' : 'Denying', async () => {
    const params = { workspaceId, approvalId, decision, ...(reason === '' ? {} : { reason }) };
    const done = await call<{ decision: string; toolName: string; needsAnother?: boolean }>('approval.decide', params);
    if (done.needsAnother === true) return `${oneLine(done.toolName)} (${approvalId}): 1 of 2, another person must approve it.`;
    return `${oneLine(done.toolName)} (${approvalId}) is ${done.decision}.`;
  });
}

function unknownCallView(one: UnknownCall, decider: Decider, item: Item): TemplateResult {
  const { instanceKey, toolCallId, toolName } = one;
  const who = html`${oneLine(one.agentName)} in ${view.conversationLink(instanceKey, item.workspaceId)} called it`;
  return itemFrame(item, { who, since: one.at, otherwise: 'it stays listed, and is not repeated' },
    html`<blockquote>${harmless(one.detail)}</blockquote>
      <p>Check for its effect, and message the agent if it needs your finding.</p>
      ${buttons([['gdn', 'inbox', 'settle', instanceKey, toolCallId]],
        button(decider, 'Settle…', `${toolName} ${toolCallId}`, 'primary', () => void settle(one, item.workspaceId, decider), 'a'))}`);
}

async function settle({ instanceKey, toolCallId, toolName }: UnknownCall, workspaceId: string, decider: Decider): Promise<void> {
  const answer = await ask({
    title: `Settle ${oneLine(toolName)}`,
    body: html`<p class="field"><label for="note">Your finding, for the audit log (optional)</label>
      <textarea id="note" name="note" maxlength="4096" rows="3"></textarea></p>`,
    confirm: 'Settle',
  });
  if (answer === null) return;
  await decider.act('Settling', async () => {
    const note = fieldText(answer, 'note').trim();
    await call('call.settle', { workspaceId, instanceKey, toolCallId, ...(note === '' ? {} : { note }) });
    return `${oneLine(toolName)} (${oneLine(toolCallId)}) is settled.`;
  });
}

function questionView(question: Question, decider: Decider, item: Item): TemplateResult {
  const { questionId, source } = question;
  const asker = [source.connection, source.tool].filter((part) => part !== undefined).join(', ');
  const who = html`${oneLine(asker === '' ? source.kind : asker)} in ${view.conversationLink(question.instanceKey, item.workspaceId)}`;
  const otherwise = question.expiresAt === undefined ? undefined : html`it is canceled at ${view.timeView(question.expiresAt)}`;
  return itemFrame(item, { who, since: question.askedAt, otherwise },
    html`<blockquote>${harmless(question.message)}</blockquote>
      ${buttons(
        [['gdn', 'inbox', 'question', 'show', questionId], ['gdn', 'inbox', 'question', 'decline', questionId]],
        button(decider, 'Answer…', questionId, 'primary', () => void answerQuestion(question, item.workspaceId, decider), 'a'),
        button(decider, 'Decline', questionId, '', () => void decider.act('Declining', async () => {
          await call('question.decline', { workspaceId: item.workspaceId, questionId });
          return `${questionId} is declined.`;
        }), 'd'),
      )}`);
}

async function answerQuestion(question: Question, workspaceId: string, decider: Decider): Promise<void> {
  const { questionId } = question;
  let form: FormField[] = [];
  const isShown = await decider.act('Loading the question', async () => {
    ({ form } = await call<{ form: FormField[] }>('question.show', { workspaceId, questionId }));
    return '';
  });
  if (!isShown) return;
  const answer = await ask({
    title: `Answer ${questionId}`,
    body: html`<blockquote>${harmless(question.message)}</blockquote>${formView(form)}`,
    confirm: 'Send the answer',
  });
  if (answer === null) return;
  await decider.act('Answering', async () => {
    const content = answerOf(form, (name) => fieldTexts(answer, name));
    await call('question.answer', { workspaceId, questionId, content });
    return `${questionId} was answered.`;
  });
}

function parkedView(event: WaitingEvent, decider: Decider, item: Item): TemplateResult {
  const of = { workspaceId: item.workspaceId, instanceKey: event.instanceKey, eventId: event.eventId };
  const who = html`in ${view.conversationLink(event.instanceKey, item.workspaceId)}, after ${counted(event.crashes, 'crash', 'crashes')}`;
  return itemFrame(item, { who, since: event.since, otherwise: 'it stays parked' },
    html`${event.reason === undefined ? nothing : html`<p>${harmless(event.reason)}</p>`}
      <blockquote>${harmless(event.input)}</blockquote>
      ${buttons(
        [['gdn', 'event', 'retry', event.eventId], ['gdn', 'event', 'drop', event.eventId]],
        button(decider, 'Retry', event.eventId, 'primary', () => void decider.act('Retrying', async () => {
          await call('event.retry', of);
          return `${oneLine(event.eventId)} is queued again.`;
        }), 'a'),
        button(decider, 'Drop…', event.eventId, 'danger', () => void drop(event, of, decider), 'd'),
      )}`);
}

async function drop(event: WaitingEvent, of: Record<string, unknown>, decider: Decider): Promise<void> {
  const title = `Drop ${oneLine(event.eventId)}`;
  const body = html`<p>The event is dropped without an answer.</p><blockquote>${head(event.input, 200)}</blockquote>`;
  if ((await ask({ title, body, confirm: 'Drop', isDangerous: true })) === null) return;
  await decider.act('Dropping', async () => {
    await call('event.drop', of);
    return `${oneLine(event.eventId)} was dropped.`;
  });
}

function pausedView(event: WaitingEvent, decider: Decider, item: Item): TemplateResult {
  const { instanceKey, eventId } = event;
  return itemFrame(item, { who: html`in ${view.conversationLink(instanceKey, item.workspaceId)}`, since: event.since, otherwise: 'it stays paused' },
    html`<blockquote>${harmless(event.input)}</blockquote>
      ${buttons([['gdn', 'event', 'resume', eventId]],
        button(decider, 'Resume', eventId, 'primary', () => void decider.act('Resuming', async () => {
          await call('event.resume', { workspaceId: item.workspaceId, instanceKey, eventId });
          return `${oneLine(eventId)} is resumed.`;
        }), 'a'))}`);
}

function proposalView(proposal: Proposal, decider: Decider, item: Item): TemplateResult {
  const { workspaceId } = item;
  const href = addressOf(workspaceId, 'proposals', item.id);
  const patch = decider.patches?.get(item.key);
  const sandbox = { runId: proposal.runId, agentId: proposal.agentId };
  const show = (): void => void decider.act('Loading the patch', async () => {
    decider.patches?.set(item.key, await readPatch(sandbox, workspaceId));
    return 'The patch is shown.';
  });
  const who = html`${oneLine(proposal.agentId)}, ${counted(proposal.changedFiles, 'changed file')}`;
  return itemFrame(item, { who, since: proposal.createdAt, otherwise: 'nothing is applied' },
    html`${proposal.notes === undefined ? nothing : html`<blockquote>${harmless(proposal.notes)}</blockquote>`}
      ${proposal.problem === undefined ? nothing : html`<p class="warn">${harmless(proposal.problem)}</p>`}
      ${patch === undefined ? nothing : diffView(patch, `Patch of ${oneLine(item.id)}`)}
      <p class="actions">${patch === undefined ? button(decider, 'Show the patch', item.id, '', show, 's') : nothing}
        ${studio.write && patch !== undefined
          ? html`${button(decider, 'Apply…', item.id, 'primary', () => void applyProposal(proposal, workspaceId, decider), 'a')}
              ${button(decider, 'Reject…', item.id, 'danger', () => void rejectProposal(proposal, workspaceId, decider), 'd')}`
          : nothing}
        <a href=${href}>Review with comments</a></p>`, href);
}

/** Asks, and applies a proposal as it was shown. */
async function applyProposal({ runId, agentId, digest, changedFiles }: Proposal, workspaceId: string, decider: Decider): Promise<void> {
  const body = html`<p>${counted(changedFiles, 'file')} of the project ${changedFiles === 1 ? 'is' : 'are'} changed:
    exactly the displayed patch, completely or not at all.</p>`;
  if ((await ask({ title: `Apply ${oneLine(`${runId}/${agentId}`)}`, body, confirm: 'Apply' })) === null) return;
  await decider.act('Applying', async () => {
    const done = await call<{ files: string[] }>('proposal.apply', { workspaceId, sandbox: { runId, agentId }, digest, allowMovedBase: false });
    return `Applied: ${counted(done.files.length, 'file')}.`;
  });
}

async function rejectProposal({ runId, agentId }: Proposal, workspaceId: string, decider: Decider): Promise<void> {
  const answer = await ask({
    title: `Reject ${oneLine(`${runId}/${agentId}`)}`,
    body: html`<p class="field"><label for="reason">Reason for the author (optional)</label>
      <textarea id="reason" name="reason" rows="3"></textarea></p>`,
    confirm: 'Reject',
    isDangerous: true,
  });
  if (answer === null) return;
  const reason = fieldText(answer, 'reason').trim();
  await decider.act('Rejecting', async () => {
    await call('proposal.reject', { workspaceId, sandbox: { runId, agentId }, ...(reason === '' ? {} : { reason }) });
    return `${oneLine(`${runId}/${agentId}`)} was rejected.`;
  });
}

function changesetView(one: WaitingChangeset, decider: Decider, item: Item): TemplateResult {
  const { instanceKey, agentName, changeset } = one;
  const { changesetId } = changeset;
  const { workspaceId } = item;
  const patch = decider.patches?.get(item.key);
  const show = (): void => void decider.act('Loading the patch', async () => {
    decider.patches?.set(item.key, await patchOf(instanceKey, changesetId, workspaceId));
    return 'The patch is shown.';
  });
  const say = (decision: 'approve' | 'reject') => (): void => void decide(decision, instanceKey, changesetId, workspaceId, decider.act);
  const who = html`${oneLine(agentName)} wants to change its configuration in ${view.conversationLink(instanceKey, workspaceId)}`;
  return itemFrame(item, { who, since: changeset.openedAt, otherwise: 'the agent keeps its configuration' },
    html`<p>${(changeset.summary ?? []).map(oneLine).join('; ')}</p>
      ${changeset.message === undefined ? nothing : html`<blockquote>${harmless(changeset.message)}</blockquote>`}
      ${changeset.detail === undefined ? nothing : html`<p class="faint">${harmless(changeset.detail)}</p>`}
      ${patch === undefined
        ? html`<p class="actions">${button(decider, 'Show the patch', changesetId, '', show, 's')}</p>`
        : diffView(patch, `Patch of ${oneLine(changesetId)}`)}
      ${buttons(
        [['gdn', 'conversation', 'bundle', 'approve', changesetId, '--key', instanceKey], ['gdn', 'conversation', 'bundle', 'reject', changesetId, '--key', instanceKey]],
        button(decider, 'Approve…', changesetId, 'primary', say('approve'), 'a'),
        button(decider, 'Reject…', changesetId, '', say('reject'), 'd'),
      )}`, addressOf(workspaceId, 'bundles', instanceKey));
}

/** The reason why the merge queue holds a proposal, and the commands that end this. */
function heldView(held: string, taskId: string): TemplateResult {
  return html`<p>Held in the merge queue: ${oneLine(held)}</p>
    <p>${view.commandView('gdn', 'task', 'queue', 'release', taskId)} ${view.commandView('gdn', 'task', 'queue', 'drop', taskId)}</p>`;
}

function taskView({ task, detail }: WaitingTask, decider: Decider, item: Item): TemplateResult {
  const { taskId, status, blockedBy, held, damaged, updatedAt, agent } = task;
  const href = addressOf(item.workspaceId, 'tasks', taskId);
  if (damaged !== undefined) {
    return itemFrame(item, {}, html`<p>${view.damageView(damaged)}</p>
      <p>Fix the cause; the daemon then loads the task again automatically.</p>`, href);
  }
  const asks = detail?.asks ?? [];
  const [first] = asks;
  const otherwise = first?.until === undefined
    ? undefined
    : html`${first.default === undefined ? 'the request expires' : `the answer is “${oneLine(first.default)}”`} at ${view.timeView(first.until)}`;
  return itemFrame(item, { who: oneLine(agent), since: updatedAt, otherwise },
    html`<p>${view.standingView(status)} ${blockedBy === undefined ? nothing : html`(${oneLine(blockedBy)})`}</p>
      ${held === undefined ? nothing : heldView(held, taskId)}
      ${asks.map((one) => taskAskView(one, taskId, item.workspaceId, decider, 'ask'))}
      ${detail?.review === undefined ? nothing : reviewView(detail.review, taskId, item.workspaceId, detail.proposal?.files.map(({ path }) => path) ?? detail.documents ?? [], decider, href)}
      ${budgetOfTask(task.blockedBy, taskId, task.title, item.workspaceId, decider)}`, href);
}

/** A phase in review: it is reviewed on its page, and approved there or here. */
function reviewView(phase: number, taskId: string, workspaceId: string, paths: string[], decider: Decider, href: string): TemplateResult {
  return html`<p>Phase ${phase} is in review: ${paths.slice(0, 8).map(oneLine).join(', ')}${paths.length > 8 ? ', …' : ''}.
      <a href=${href}>Review with comments</a></p>
    ${buttons([['gdn', 'task', 'approve', taskId]],
      button(decider, 'Approve the phase…', taskId, 'primary', () => void approvePhase(phase, taskId, workspaceId, paths, decider), 'a'))}`;
}

async function approvePhase(phase: number, taskId: string, workspaceId: string, paths: string[], decider: Decider): Promise<void> {
  const body = html`<p>Phase ${phase} is approved${paths.length === 0 ? '' : ', with'}:</p><ul>${paths.slice(0, 20).map((path) => html`<li>${oneLine(path)}</li>`)}</ul>`;
  if ((await ask({ title: `Approve phase ${phase} of ${oneLine(taskId)}`, body, confirm: 'Approve' })) === null) return;
  await decider.act('Approving', async () => {
    await call('task.approve', { workspaceId, taskId, phase });
    return `Phase ${phase} of ${oneLine(taskId)} is approved.`;
  });
}

function budgetOfTask(blockedBy: string | undefined, taskId: string, title: string, workspaceId: string, decider: Decider): TemplateResult | typeof nothing {
  if (blockedBy === 'shared_budget') {
    return html`<p>A budget of its agent, its conversation or the workspace is exhausted. After you increase it in goondan.yaml, the task resumes automatically;
      <a href=${addressOf(workspaceId, 'usage')}>Usage</a> shows the usage.</p>`;
  }
  if (!isOverOwnBudget(blockedBy)) return nothing;
  const raise = (): void => void decider.act('Setting the budget', () => raiseBudget(taskId, workspaceId));
  return buttons([['gdn', 'task', 'show', taskId]], button(decider, 'Increase its budget…', title, 'primary', raise, 'a'));
}

function budgetView(budget: Budget, item: Item): TemplateResult {
  const { limit, spent } = budget;
  return itemFrame(item, { otherwise: `models are not called when it is exhausted${budget.period === 'day' ? ', until the next day (UTC)' : ''}` },
    html`<p>${Math.floor(spentPart(budget) * 100)} % is spent or reserved, period: ${oneLine(budget.period)}.
        ${limit.tokens === undefined ? nothing : `${count(spent.tokens ?? 0)} of ${count(limit.tokens)} tokens. `}
        ${limit.microUsd === undefined ? nothing : `${dollars(spent.microUsd ?? 0)} of ${dollars(limit.microUsd)}.`}</p>
      <p>To increase it, change <code>budgets</code> in goondan.yaml, then run: ${view.commandView('gdn', 'config', 'reload')}</p>`);
}

/** Something that a task asks of a person. */
export function taskAskView(one: TaskAsk, taskId: string, workspaceId: string | null, decider: Decider, className = 'item'): TemplateResult {
  const isPermission = one.kind === 'permission';
  const isAnswered = one.kind === 'question' || isPermission;
  const choices = one.options ?? (isPermission ? ['allow', 'refuse'] : []);
  const send = (method: string, what: string, more: Record<string, unknown>): Promise<boolean> =>
    decider.act(what, async () => {
      await call(`task.${method}`, { workspaceId, taskId, id: one.id, ...more });
    });
  const choose = (choice: string): Promise<unknown> =>
    isPermission && choice === 'refuse' ? refuse(one, send) : send('answer', 'Answering', { text: choice });
  const plain = (label: string, tone: string, go: () => Promise<unknown>): TemplateResult =>
    html`<button type="button" class=${tone} ?disabled=${decider.isBusy} @click=${() => void go()}>${label}</button>`;
  return html`<section class=${className} aria-label=${`Waits for ${oneLine(one.id)}${className === 'item' ? '' : ` of ${oneLine(taskId)}`}`}>
    ${className === 'item' ? html`<h2>${oneLine(one.kind)} <small>${oneLine(one.id)}</small></h2>` : html`<p><strong>${oneLine(one.kind)}</strong> <small>${oneLine(one.id)}</small></p>`}
    ${isPermission
      ? requestView(one.text)
      : html`<div class="question">${markdownView(one.text)}${one.description === undefined ? nothing : html`<p class="faint">${harmless(one.description)}</p>`}</div>`}
    ${one.until === undefined
      ? nothing
      : html`<p>At ${view.timeView(one.until)}
          ${one.default === undefined ? 'the request expires' : `the answer is “${oneLine(one.default)}”`}.</p>`}
    ${!studio.write
      ? html`<p class="instead">Run instead: ${isAnswered
          ? html`${view.commandView('gdn', 'task', 'answer', taskId, choices[0] ?? 'ANSWER', '--id', one.id)}
              ${isPermission ? view.commandView('gdn', 'task', 'answer', taskId, 'refuse: REASON', '--id', one.id) : nothing}`
          : view.commandView('gdn', 'task', 'provide', taskId, one.id)}</p>`
      : html`<p class="actions">
          ${choices.map((choice) => plain((isPermission ? PERMISSION_LABELS[choice] : undefined) ?? oneLine(choice), '', () => choose(choice)))}
          ${isPermission
            ? nothing
            : isAnswered
              ? plain('Answer…', 'primary', () => answerTask(one, send))
              : plain('Provide…', 'primary', () => provide(one, send))}
        </p>`}
  </section>`;
}

type Send = (method: string, what: string, more: Record<string, unknown>) => Promise<boolean>;

async function answerTask(one: TaskAsk, send: Send): Promise<void> {
  const answer = await ask({
    title: `Answer ${oneLine(one.id)}`,
    body: html`<blockquote>${harmless(one.text)}</blockquote><p class="field"><label for="text">Answer</label>
      <textarea id="text" name="text" rows="3" required></textarea></p>`,
    confirm: 'Answer',
  });
  if (answer !== null) await send('answer', 'Answering', { text: fieldText(answer, 'text') });
}

async function refuse(one: TaskAsk, send: Send): Promise<void> {
  const answer = await ask({
    title: `Deny ${oneLine(one.id)}`,
    body: html`${requestView(one.text)}<p class="field"><label for="reason">Reason for the agent (optional)</label>
      <textarea id="reason" name="reason" rows="3"></textarea></p>`,
    confirm: 'Deny',
  });
  if (answer === null) return;
  const reason = fieldText(answer, 'reason').trim();
  await send('answer', 'Denying', { text: reason === '' ? 'refuse' : `refuse: ${reason}` });
}

async function provide(one: TaskAsk, send: Send): Promise<void> {
  const answer = await ask({
    title: `Provide ${oneLine(one.text)}`,
    body: html`<p class="field"><label for="value">Value, which is stored encrypted</label>
      <input id="value" name="value" type=${one.kind === 'secret' ? 'password' : 'text'} autocomplete="off" required></p>`,
    confirm: 'Provide',
  });
  if (answer !== null) await send('provide', 'Providing', { value: fieldText(answer, 'value') });
}
