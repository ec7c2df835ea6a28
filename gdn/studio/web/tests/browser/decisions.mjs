// Every decision by the keyboard alone: each method that needs `--write` is called from the page, and answered. The list
// of these methods is that of the server (`methods.rs`), so that a new one is missed here.
import { readFileSync } from 'node:fs';
import { must, open, settled, suite, tabTo, visit, watched } from './lib.mjs';

const METHODS = readFileSync(new URL('../../../src/methods.rs', import.meta.url), 'utf8');
const WRITES = [...METHODS.matchAll(/"([a-zA-Z.]+)", Access::Writes/g)].map(([, name]) => name);

/** Other suites call these, by the keyboard alone as well. */
const ELSEWHERE = { 'event.send': 'send', 'task.send': 'task', 'schedule.move': 'schedules', 'schedule.remove': 'schedules', 'instance.delete': 'whole' };

const item = (kind) => `.item[data-kind="${kind}"]`;

/** Each decision: its method, its page, its button (the beginning of its text, and what it is in), and what is typed. */
const DECISIONS = [
  ['approval.decide', '#/needs', 'Approve', item('approval')],
  ['approval.decide', '#/needs', 'Deny…', item('approval'), [['textarea', 'not now']]],
  ['question.answer', '#/needs', 'Answer…', item('question'), [['select', 's']]],
  ['question.decline', '#/needs', 'Decline', item('question')],
  ['call.settle', '#/needs', 'Settle…', item('call'), [['textarea', 'it was sent']]],
  ['event.retry', '#/needs', 'Retry', item('parked')],
  ['event.drop', '#/needs', 'Drop…', item('parked'), []],
  ['event.resume', '#/needs', 'Resume', item('paused')],
  ['bundle.approve', '#/needs', 'Approve…', item('changeset'), []],
  ['bundle.reject', '#/needs', 'Reject…', item('changeset'), []],
  ['task.budget', '#/needs', 'Increase its budget…', item('task'), [['#tokens', '200000']]],
  ['event.pause', '#/conversation/main', 'Pause', 'main'],
  ['event.move', '#/conversation/main', 'Move up', 'main'],
  ['event.cancel', '#/conversation/main', 'Cancel the turn…', 'main', []],
  ['instance.checkpoint', '#/conversation/main', 'Create a checkpoint…', 'main', [['input', 'early']]],
  ['instance.rewind', '#/conversation/main', 'Rewind…', 'main', [], 'Checkpoints'],
  ['bundle.pin', '#/bundles/main', 'Pin', 'main'],
  ['bundle.revert', '#/bundles/main', 'Revert…', 'main', []],
  ['task.answer', '#/tasks/fix-the-login', 'Answer…', 'main', [['textarea', 'ours']]],
  ['task.answer', '#/tasks/fix-the-login', 'Deny…', 'main', [['textarea', 'not on a Friday']]],
  ['task.provide', '#/tasks/fix-the-login', 'Provide…', 'main', [['input', 'key_example']]],
  ['task.checkpoint', '#/tasks/fix-the-login', 'Create a checkpoint', 'main'],
  ['task.pause', '#/tasks/fix-the-login', 'Pause', 'main'],
  ['task.restore', '#/tasks/fix-the-login', 'Restore…', 'main', []],
  ['task.resume', '#/tasks/fix-the-login', 'Resume', 'main'],
  ['task.cancel', '#/tasks/fix-the-login', 'Cancel…', 'main', []],
  ['task.start', '#/tasks/new', 'Start', 'main'],
  ['proposal.comment', '#/proposals/fix%2Fcoder', 'Comment on the file', 'main', null, null, 'Shorter.'],
  ['proposal.uncomment', '#/proposals/fix%2Fcoder', 'Remove', 'main'],
  ['task.rework', '#/tasks/fix', 'Request changes…', 'main', [['textarea', 'Shorter.']]],
  ['task.approve', '#/tasks/fix', 'Approve the phase', 'main'],
  ['proposal.apply', '#/proposals/r1%2Fcoder', 'Apply…', 'main', []],
  ['proposal.revert', '#/proposals/r1%2Fcoder', 'Revert…', 'main', []],
  ['proposal.reject', '#/proposals/bad%2Fcoder', 'Reject…', 'main', [['textarea', 'no']]],
  ['proposal.merge', '#/proposals/stale%2Fcoder', 'Merge', 'main'],
];

/** Presses Tab until a button or summary with this beginning of its text has the focus. */
async function reach(page, label, within) {
  await page.waitForFunction(([text, place]) => [...document.querySelectorAll(`${place} button, ${place} summary`)].some((one) => one.textContent.trim().startsWith(text)), [label, within]);
  for (let press = 0; press < 400; press += 1) {
    await page.keyboard.press('Tab');
    const isThere = await page.evaluate(([text, place]) => {
      const at = document.activeElement;
      return at?.matches('button, summary') === true && at.closest(place) !== null && at.textContent.trim().startsWith(text);
    }, [label, within]);
    if (isThere) return;
  }
  throw new Error(`by Tab, the focus never comes to ${label} in ${within}`);
}

await suite('decisions', async (browser) => {
  const context = await browser.newContext({ reducedMotion: 'reduce' });
  const faults = await watched(context);
  const answered = [];
  context.on('response', async (response) => {
    if (!response.url().endsWith('/api/call')) return;
    const { method, params } = response.request().postDataJSON();
    if (!WRITES.includes(method) || params.dryRun === true) return;
    const { error } = await response.json();
    answered.push({ method, error });
  });
  const page = await open(context);
  await settled(page);
  for (const [method, hash, label, within, typed, summary, text] of DECISIONS) {
    const before = answered.length;
    await visit(page, '#/usage');
    await visit(page, hash);
    if (typeof summary === 'string') {
      await reach(page, summary, 'main');
      await page.keyboard.press('Enter');
    }
    await reach(page, label, within);
    await page.keyboard.press('Enter');
    if (typeof text === 'string') {
      await page.keyboard.type(text);
      await page.keyboard.press('Control+Enter');
    }
    if (Array.isArray(typed)) {
      await page.waitForSelector('dialog[open]');
      for (const [field, words] of typed) {
        await tabTo(page, `dialog ${field}`);
        await page.keyboard.press('Control+a');
        await page.keyboard.type(words);
      }
      await tabTo(page, 'dialog button[type="submit"]');
      await page.keyboard.press('Enter');
    }
    for (let waits = 0; answered.length === before && waits < 300; waits += 1) await page.waitForTimeout(100);
    const last = answered.at(-1);
    must(answered.length > before && last.method === method, `${label} on ${hash} calls ${last?.method ?? 'nothing'}, not ${method}`);
    must(last.error === undefined, `${method} is refused: ${JSON.stringify(last.error)}`);
    await page.waitForFunction(() => document.querySelector('dialog') === null);
    console.log(`decided ${method}`);
  }
  const made = new Set(answered.map((one) => one.method));
  const missing = WRITES.filter((name) => !made.has(name) && !(name in ELSEWHERE));
  must(missing.length === 0, `no decision by the keyboard calls ${missing.join(', ')}`);
  must(faults.length === 0, faults.join('\n'));
});
