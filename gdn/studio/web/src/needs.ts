// Everything in a workspace that waits for a person.

import { ApiError, asApiError, call, callPages } from './api.js';
import { readWaitingChangesets, type WaitingChangesets } from './changesets.js';
import { oneLine } from './parts/text.js';
import { studio } from './studio.js';
import { readWorkspace } from './workspaces.js';
import type {
  Approval, Budget, Json, Proposal, Question, Task, TaskDetail, UnknownCall, UsageReport, WaitingChangeset, WaitingEvent, Workspace,
} from './types.js';

/** An approval with its arguments, as far as they were read. */
export interface ApprovalWithInput {
  approval: Approval;
  input: Json | undefined;
}

/** A task that waits, with what it asks. */
export interface WaitingTask {
  task: Task;
  detail: TaskDetail | null;
}

/** All that waits for a person. */
export interface Needs {
  workspaceId: string;
  /** Name of the workspace for people. */
  workspace: string;
  approvals: ApprovalWithInput[];
  questions: Question[];
  calls: UnknownCall[];
  parked: WaitingEvent[];
  paused: WaitingEvent[];
  proposals: Proposal[];
  bundles: WaitingChangesets;
  tasks: WaitingTask[];
  consents: string[];
  budgets: Budget[];
  /** What could not be read. */
  failures: ApiError[];
}

/** Of that many approvals the arguments are read at once. */
const INPUTS_MAX = 30;
/** The most pages of events that are looked through. */
const EVENT_PAGES_MAX = 20;
/** The run of the merge queue, whose proposals need no person. */
const MERGE_QUEUE = 'merge-queue';
/** A budget is nearly spent from this part on. */
const NEARLY_SPENT = 0.9;

/** Kinds of items, in words. */
export const KINDS = {
  approval: 'Tool call', question: 'Question', call: 'Unknown outcome', parked: 'Parked event', proposal: 'Proposal', changeset: 'Configuration',
  unreadable: 'Unreadable configuration', task: 'Task', paused: 'Paused event', consent: 'Login', budget: 'Budget',
} as const;

type Thing =
  | { kind: 'approval'; thing: ApprovalWithInput }
  | { kind: 'question'; thing: Question }
  | { kind: 'call'; thing: UnknownCall }
  | { kind: 'parked' | 'paused'; thing: WaitingEvent }
  | { kind: 'proposal'; thing: Proposal }
  | { kind: 'changeset'; thing: WaitingChangeset }
  | { kind: 'unreadable' | 'consent'; thing: string }
  | { kind: 'task'; thing: WaitingTask }
  | { kind: 'budget'; thing: Budget };

/** One thing that a person decides. */
export type Item = Thing & {
  /** Unique among all items. */
  key: string;
  /** Its own id, for links. */
  id: string;
  workspaceId: string;
  workspace: string;
  title: string;
  /** Since when it waits; the end of time if that is unknown. */
  at: string;
};

/** Behind all times. */
const UNKNOWN_TIME = '9999';

/** The items of a workspace. */
export function itemsOf(needs: Needs): Item[] {
  const { workspaceId, workspace } = needs;
  const item = (of: Thing, id: string, title: string, at: string = UNKNOWN_TIME, more = ''): Item => ({
    ...of, id, workspaceId, workspace, at, title: oneLine(title), key: JSON.stringify([workspaceId, of.kind, id, more]),
  });
  return [
    ...needs.approvals.map((thing) => item({ kind: 'approval', thing }, thing.approval.approvalId, thing.approval.toolName, thing.approval.askedAt)),
    ...needs.questions.map((thing) => item({ kind: 'question', thing }, thing.questionId, thing.message.split('\n')[0] ?? '', thing.askedAt)),
    ...needs.calls.map((thing) => item({ kind: 'call', thing }, thing.toolCallId, thing.toolName, thing.at, thing.instanceKey)),
    ...needs.parked.map((thing) => item({ kind: 'parked', thing }, thing.eventId, thing.eventId, thing.since, thing.instanceKey)),
    ...needs.proposals.map((thing) => item({ kind: 'proposal', thing }, `${thing.runId}/${thing.agentId}`, `${thing.runId}/${thing.agentId}`, thing.createdAt)),
    ...needs.bundles.changesets.map((thing) =>
      item({ kind: 'changeset', thing }, thing.changeset.changesetId, thing.changeset.changesetId, thing.changeset.openedAt, thing.instanceKey)),
    ...needs.bundles.unreadable.map((thing) => item({ kind: 'unreadable', thing }, thing, thing)),
    ...needs.tasks.map((thing) => item({ kind: 'task', thing }, thing.task.taskId, thing.task.title === '' ? thing.task.taskId : thing.task.title, thing.task.updatedAt)),
    ...needs.paused.map((thing) => item({ kind: 'paused', thing }, thing.eventId, thing.eventId, thing.since, thing.instanceKey)),
    ...needs.consents.map((thing) => item({ kind: 'consent', thing }, thing, thing)),
    ...needs.budgets.map((thing, at) => item({ kind: 'budget', thing }, `budget-${at}`, `${thing.scope} ${thing.instanceKey ?? thing.agentName ?? ''}`)),
  ];
}

/** The part of a budget that is spent or set aside: the larger one of tokens and money. */
export function spentPart({ limit, spent, reserved }: Budget): number {
  const part = (of: 'tokens' | 'microUsd'): number => {
    const bound = limit[of];
    return bound === undefined || bound === 0 ? 0 : ((spent[of] ?? 0) + (reserved[of] ?? 0)) / bound;
  };
  return Math.max(part('tokens'), part('microUsd'));
}

/** Reads all of it. What cannot be read is told beside what can. */
export async function readNeeds(workspaceId: string): Promise<Needs> {
  const of = { workspaceId };
  const failures: ApiError[] = [];
  const or = async <T>(what: Promise<T>, otherwise: T): Promise<T> =>
    what.catch((thrown: unknown) => {
      failures.push(asApiError(thrown));
      return otherwise;
    });
  const listed = async <T>(method: string, items: string, more: string): Promise<T[]> => {
    const { all, isCut } = await callPages<T>(method, items, of);
    if (isCut) failures.push(new ApiError('tooMany', `Only the first ${all.length} ${items} are shown.`, `run \`${more}\``));
    return all;
  };
  const [approvals, questions, calls, events, proposals, bundles, tasks, workspace, usage] = await Promise.all([
    or(listed<Approval>('approval.list', 'approvals', 'gdn inbox approvals').then(withInputs), []),
    or(listed<Question>('question.list', 'questions', 'gdn inbox question list'), []),
    or(listed<UnknownCall>('call.unknown', 'calls', 'gdn inbox calls'), []),
    or(readEvents(of), []),
    or(listed<Proposal>('proposal.list', 'proposals', 'gdn proposal list'), []),
    or<WaitingChangesets>(readWaitingChangesets(workspaceId), { changesets: [], unreadable: [], more: false }),
    or(readTasks(of), []),
    or<Workspace | null>(readWorkspace(workspaceId), null),
    or(call<UsageReport | null>('workspace.usage', { ...of, by: 'agent', limit: 1 }), null),
  ]);
  const known = workspace ?? studio.workspaces.find((one) => one.workspaceId === workspaceId);
  return {
    workspaceId,
    workspace: oneLine(known?.package ?? known?.projectRoot ?? workspaceId),
    approvals,
    questions,
    calls,
    parked: events.filter((event) => event.standing === 'parked'),
    paused: events.filter((event) => event.standing === 'paused'),
    proposals: proposals.filter((proposal) => proposal.state === 'open' && proposal.runId !== MERGE_QUEUE),
    bundles,
    tasks,
    consents: workspace?.consents ?? [],
    budgets: (usage?.budgets ?? []).filter((budget) => spentPart(budget) >= NEARLY_SPENT),
    failures,
  };
}

async function withInputs(list: Approval[]): Promise<ApprovalWithInput[]> {
  const shown = list.map(async (approval, at): Promise<ApprovalWithInput> => {
    if (at >= INPUTS_MAX) return { approval, input: undefined };
    const params = { workspaceId: approval.workspaceId, approvalId: approval.approvalId };
    // One that was decided meanwhile is shown by its summary until the list is read again.
    const whole = await call<{ input: Json }>('approval.show', params).catch(() => null);
    return { approval, input: whole?.input };
  });
  return Promise.all(shown);
}

async function readEvents(of: Record<string, unknown>): Promise<WaitingEvent[]> {
  const events: WaitingEvent[] = [];
  let after: string | undefined;
  for (let page = 0; page < EVENT_PAGES_MAX; page += 1) {
    const params = { ...of, parked: false, limit: 1000, ...(after === undefined ? {} : { after }) };
    const told = await call<{ events: WaitingEvent[]; next?: string }>('event.list', params);
    events.push(...told.events.filter(({ standing }) => standing === 'parked' || standing === 'paused'));
    if (told.next === undefined) return events;
    after = told.next;
  }
  throw new ApiError('tooMany', 'There are more events than shown here.', 'run `gdn event list`');
}

/** The tasks that wait; of the first ones, also what they ask. */
async function readTasks(of: Record<string, unknown>): Promise<WaitingTask[]> {
  const told = await call<{ tasks: Task[] }>('task.list', { ...of, needsMe: true, all: false });
  return Promise.all(told.tasks.map(async (task, at): Promise<WaitingTask> => {
    const isRead = at < INPUTS_MAX && task.damaged === undefined;
    return { task, detail: isRead ? await call<TaskDetail>('task.show', { ...of, taskId: task.taskId }).catch(() => null) : null };
  }));
}
