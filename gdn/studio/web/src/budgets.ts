// Budgets of tasks. Pure.

import type { TaskBudget } from './types.js';

/** Bytes of a MiB. */
export const MIB = 1_048_576;
/** Millionths in a dollar. */
export const MICRO = 1_000_000;

/** What a task waits for that is out of the budget of its own. */
export function isOverOwnBudget(blockedBy: string | undefined): boolean {
  return blockedBy === 'budget' || blockedBy === 'quota';
}

/** What was typed, as a budget: it replaces the one of before, so that what was left empty has no bound. */
export function budgetOf(tokens: string, usd: string, diskMib: string): TaskBudget {
  const bound = (text: string, unit: number): number | undefined => (text.trim() === '' ? undefined : Math.round(Number(text) * unit));
  const [ofTokens, microUsd, diskBytes] = [bound(tokens, 1), bound(usd, MICRO), bound(diskMib, MIB)];
  return {
    ...(ofTokens === undefined ? {} : { tokens: ofTokens }),
    ...(microUsd === undefined ? {} : { microUsd }),
    ...(diskBytes === undefined ? {} : { diskBytes }),
  };
}

/** The command that sets a budget: the bounds of before, and of what the task is out of a word for the new one. */
export function budgetCommand(taskId: string, blockedBy: string | undefined, budget: TaskBudget): string[] {
  const isDisk = blockedBy === 'quota';
  const tokens = budget.tokens === undefined ? [] : ['--max-tokens', String(budget.tokens)];
  const usd = isDisk ? (budget.microUsd === undefined ? null : String(budget.microUsd / MICRO)) : 'DOLLARS';
  const mib = isDisk ? 'MIB' : budget.diskBytes === undefined ? null : String(Math.round(budget.diskBytes / MIB));
  return ['gdn', 'task', 'budget', taskId, ...tokens, ...(usd === null ? [] : ['--max-usd', usd]), ...(mib === null ? [] : ['--max-disk-mib', mib])];
}
