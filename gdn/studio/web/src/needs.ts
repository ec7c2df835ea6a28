// Everything in the current workspace that waits for a person.

import { ApiError, asApiError, call, callPages } from './api.js';
import { readWaitingChangesets, type WaitingChangesets } from './changesets.js';
import { studio } from './studio.js';
import { readWorkspace } from './workspaces.js';
import type { Approval, Budget, Json, Proposal, Question, Task, UnknownCall, UsageReport, WaitingEvent, Workspace } from './types.js';

/** An approval with its arguments, as far as they were read. */
export interface ApprovalWithInput {
  approval: Approval;
  input: Json | undefined;
}

/** All that waits for a person. */
export interface Needs {
  approvals: ApprovalWithInput[];
  questions: Question[];
  calls: UnknownCall[];
  parked: WaitingEvent[];
  paused: WaitingEvent[];
  proposals: Proposal[];
  bundles: WaitingChangesets;
  tasks: Task[];
  consents: string[];
  budgets: Budget[];
  /** What could not be read. */
  failures: ApiError[];
}

/** Of that many approvals the arguments are read at once. */
const INPUTS_MAX = 30;
/** The most pages of events that are looked through. */
const EVENT_PAGES_MAX = 20;
/** A budget is nearly spent from this part on. */
const NEARLY_SPENT = 0.9;

/** How many things wait. */
export function countOf(needs: Needs): number {
  const { approvals, questions, calls, parked, paused, proposals, bundles, tasks, consents, budgets } = needs;
  const all = [approvals, questions, calls, parked, paused, proposals, bundles.changesets, bundles.unreadable, tasks, consents, budgets];
  return all.reduce((sum, of) => sum + of.length, 0);
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
export async function readNeeds(): Promise<Needs> {
  const failures: ApiError[] = [];
  const or = async <T>(what: Promise<T>, otherwise: T): Promise<T> =>
    what.catch((thrown: unknown) => {
      failures.push(asApiError(thrown));
      return otherwise;
    });
  const listed = async <T>(method: string, items: string, more: string): Promise<T[]> => {
    const { all, isCut } = await callPages<T>(method, items, studio.of());
    if (isCut) failures.push(new ApiError('tooMany', `Only the first ${all.length} ${items} are shown.`, `run \`${more}\``));
    return all;
  };
  const [approvals, questions, calls, events, proposals, bundles, tasks, workspace, usage] = await Promise.all([
    or(listed<Approval>('approval.list', 'approvals', 'gdn approvals').then(withInputs), []),
    or(listed<Question>('question.list', 'questions', 'gdn question list'), []),
    or(listed<UnknownCall>('call.unknown', 'calls', 'gdn calls'), []),
    or(readEvents(), []),
    or(listed<Proposal>('proposal.list', 'proposals', 'gdn proposal list'), []),
    or<WaitingChangesets>(readWaitingChangesets(), { changesets: [], unreadable: [], more: false }),
    or(readTasks(), []),
    or<Workspace | null>(readWorkspace(studio.workspaceId), null),
    or(call<UsageReport | null>('workspace.usage', studio.of({ by: 'agent', limit: 1 })), null),
  ]);
  return {
    approvals,
    questions,
    calls,
    parked: events.filter((event) => event.standing === 'parked'),
    paused: events.filter((event) => event.standing === 'paused'),
    proposals: proposals.filter((proposal) => proposal.state === 'open'),
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

async function readEvents(): Promise<WaitingEvent[]> {
  const events: WaitingEvent[] = [];
  let after: string | undefined;
  for (let page = 0; page < EVENT_PAGES_MAX; page += 1) {
    const params = studio.of({ parked: false, limit: 1000, ...(after === undefined ? {} : { after }) });
    const told = await call<{ events: WaitingEvent[]; next?: string }>('event.list', params);
    events.push(...told.events.filter(({ standing }) => standing === 'parked' || standing === 'paused'));
    if (told.next === undefined) return events;
    after = told.next;
  }
  throw new ApiError('tooMany', 'There are more events than shown here.', 'run `gdn event list`');
}

async function readTasks(): Promise<Task[]> {
  const told = await call<{ tasks: Task[] }>('task.list', studio.of({ needsMe: true, all: false }));
  return told.tasks;
}
