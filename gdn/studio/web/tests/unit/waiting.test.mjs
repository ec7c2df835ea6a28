import assert from 'node:assert/strict';
import { test } from 'node:test';
import { budgetCommand, budgetOf, isOverOwnBudget } from '../../src/budgets.ts';
import { earlier, later } from '../../src/moving.ts';

const line = [
  { eventId: 'now', standing: 'processing' },
  { eventId: 'a', standing: 'waiting' },
  { eventId: 'b', standing: 'paused' },
  { eventId: 'c', standing: 'waiting' },
  { eventId: 'out', standing: 'parked' },
];

test('an event moves by one place, and what has no place in line does not move', () => {
  assert.deepEqual(line.map(({ eventId }) => earlier(line, eventId)), [null, null, { before: 'a' }, { before: 'b' }, null]);
  assert.deepEqual(line.map(({ eventId }) => later(line, eventId)), [null, { before: 'c' }, 'last', null, null]);
  assert.equal(earlier(line, 'none'), null);
  assert.equal(later(line, 'none'), null);
});

test('a budget is what was typed, and what was left empty has no bound', () => {
  assert.deepEqual(budgetOf('200000', '1.5', '2'), { tokens: 200_000, microUsd: 1_500_000, diskBytes: 2_097_152 });
  assert.deepEqual(budgetOf('', ' ', ''), {});
  assert.deepEqual(budgetOf('0', '0.000001', ''), { tokens: 0, microUsd: 1 });
});

test('a budget that is shared is not the task’s to raise', () => {
  assert.deepEqual(['budget', 'quota', 'shared_budget', 'question', undefined].map(isOverOwnBudget), [true, true, false, false, false]);
});

test('the command that raises one bound keeps the others', () => {
  const budget = { tokens: 1000, microUsd: 1_500_000, diskBytes: 2_097_152 };
  const words = (blockedBy, of) => budgetCommand('t', blockedBy, of).slice(4).join(' ');
  assert.equal(words('budget', budget), '--max-tokens 1000 --max-usd DOLLARS --max-disk-mib 2');
  assert.equal(words('quota', budget), '--max-tokens 1000 --max-usd 1.5 --max-disk-mib MIB');
  assert.equal(words(undefined, {}), '--max-usd DOLLARS');
});
