// A person lets a task take more.

import { html, type TemplateResult } from 'lit';
import { call } from './api.js';
import { budgetOf, MIB, MICRO } from './budgets.js';
import { ask, fieldText } from './parts/dialog.js';
import { count, dollars } from './parts/figures.js';
import { oneLine } from './parts/text.js';
import type { TaskDetail } from './types.js';

/** Shows what a task may take, asks what it may take from now on, and says so. Tells in words what came of it. */
export async function raiseBudget(taskId: string, workspaceId: string | null): Promise<string> {
  const detail = await call<TaskDetail>('task.show', { workspaceId, taskId });
  const { info, budget = {} } = detail;
  const answer = await ask({ title: `Budget of ${oneLine(info.title)}`, body: budgetForm(detail), confirm: 'Set the budget' });
  if (answer === null) return 'Nothing was changed.';
  const typed = budgetOf(fieldText(answer, 'tokens'), fieldText(answer, 'usd'), fieldText(answer, 'disk'));
  if (JSON.stringify(typed) === JSON.stringify(budget)) return 'The budget is unchanged.';
  await call('task.budget', { workspaceId, taskId, budget: typed });
  if (info.blockedBy !== 'quota') return `${oneLine(taskId)} has a new budget.`;
  await call('task.resume', { workspaceId, taskId });
  return `${oneLine(taskId)} has a new budget, and resumes.`;
}

function budgetForm({ info, budget = {}, disk }: TaskDetail): TemplateResult {
  const field = (name: string, label: string, value: number | undefined, step: string): TemplateResult => html`<p class="field">
    <label for=${name}>${label}</label>
    <input id=${name} name=${name} type="number" min="0" step=${step} .value=${value === undefined ? '' : String(value)}></p>`;
  const usd = budget.microUsd === undefined ? undefined : budget.microUsd / MICRO;
  const mib = budget.diskBytes === undefined ? undefined : Math.round(budget.diskBytes / MIB);
  return html`<p>Used so far: ${count(info.tokens)} tokens, ${dollars(info.cost)}${
      disk === undefined ? '' : ` and ${count(Math.ceil(disk.bytes / MIB))} MiB of disk`}. An empty field means no limit.
      ${info.blockedBy === 'quota' ? 'The task then resumes.' : ''}</p>
    ${field('tokens', 'Maximum tokens', budget.tokens, '1')}
    ${field('usd', 'Maximum cost in dollars', usd, 'any')}
    ${field('disk', 'Maximum disk usage in MiB', mib, '1')}`;
}
