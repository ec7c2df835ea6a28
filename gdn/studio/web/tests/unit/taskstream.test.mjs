import assert from 'node:assert/strict';
import { test } from 'node:test';
import { changeLines, CHARACTERS_MAX, ENTRIES_MAX, requestLines, requestParts, sentMessages, taskReducer } from '../../src/taskstream.ts';

let clock = 0;
const item = (type, fields = {}) => ({ at: `${(clock += 1)}`, run: 1, type, ...fields });
const part = (after, next, items, more = {}) => ({ ...(after === null ? {} : { after }), next, items, ...more });
const applied = (parts, state = taskReducer.start()) => {
  const verdicts = parts.map((one) => {
    const step = taskReducer.apply(state, one);
    state = step.state;
    return step.verdict;
  });
  return { state, verdicts };
};
const itemsOf = (items) => applied([part(null, 1, items)]).state.entries.map((entry) => entry.item);

test('each part follows the one before, and a missed one is noticed', () => {
  const { state, verdicts } = applied([part(null, 10, [item('text', { text: 'a' })]), part(10, 20, []), part(10, 20, []), part(30, 40, [])]);
  assert.deepEqual(verdicts, ['applied', 'applied', 'duplicate', 'gap']);
  assert.deepEqual(taskReducer.resume(state), { after: 20 });
  assert.deepEqual(taskReducer.resume(taskReducer.start()), {}, 'the first part begins with the latest run');
  assert.equal(applied([part(10, 20, [])]).verdicts[0], 'gap');
  // A crash may lose the end of a stream.
  assert.equal(applied([part(20, 15, [])], state).state.next, 15);
  assert.equal(applied([part(null, 5, [])], state).state.entries.length, 0, 'a first part replaces everything');
});

test('a stream is over until it continues', () => {
  const { state } = applied([part(null, 10, []), part(10, 10, [], { isOver: true })]);
  assert.equal(taskReducer.isOver(state), true);
  assert.equal(taskReducer.isOver(taskReducer.restarted(state)), false);
});

test('the start and the end of a call are one entry', () => {
  const call = (state, fields) => item('command', { id: 'c', state, command: '', ...fields });
  const parts = [part(null, 1, [call('started', { command: 'npm test' }), item('text', { text: 'a' })]), part(1, 2, [call('failed', { exit: 1, output: 'no' })])];
  const { entries } = applied(parts).state;
  assert.equal(entries.length, 2);
  const [{ item: command, endedAt }] = entries;
  assert.deepEqual([command.command, command.state, command.exit, command.output], ['npm test', 'failed', 1, 'no']);
  assert.ok(Number(endedAt) > Number(command.at));
  // A call of another run, or without an id, is another call.
  assert.equal(itemsOf([call('started'), { ...call('completed'), run: 2 }, item('tool', { name: 'x', state: 'completed' })]).length, 3);
  const change = (state, files) => item('fileChange', { id: 'f', state, files });
  assert.deepEqual(itemsOf([change('started', [{ path: 'a' }]), change('completed', [])])[0].files, [{ path: 'a' }]);
});

test('lines of the same kind are one text, and the latest usage counts', () => {
  const text = (words, fields) => item('text', { text: words, ...fields });
  assert.deepEqual(itemsOf([text('a'), text('b'), item('thinking', { text: 'c' }), text('d'), text('e', { run: 2 })]).map((one) => one.text), ['a\nb', 'c', 'd', 'e']);
  assert.deepEqual(itemsOf([item('usage', { cost: 1 }), item('usage', { cost: 2 })]).map((one) => one.cost), [2]);
  assert.equal(itemsOf([item('problem', { text: 'a' }), item('problem', { text: 'a' })]).length, 2);
});

test('entries are kept up to the limits, and the last one always', () => {
  const many = Array.from({ length: ENTRIES_MAX + 5 }, (_, n) => item('event', { event: `e${n}` }));
  const { state } = applied([part(null, 1, many)]);
  assert.deepEqual([state.entries.length, state.isCut, state.entries[0].item.event], [ENTRIES_MAX, true, 'e5']);
  const large = (event) => item('event', { event, detail: 'x'.repeat(CHARACTERS_MAX / 2) });
  assert.deepEqual(itemsOf([large('a'), large('b'), large('c')]).map((one) => one.event), ['c']);
  assert.equal(itemsOf([item('event', { event: 'a', detail: 'x'.repeat(CHARACTERS_MAX * 2) })]).length, 1);
});

test('missed items are noted, but not those dropped before the start', () => {
  const first = part(null, 10, [item('event', { event: 'a' })], { skippedBytes: 5 });
  const { state } = applied([first, part(10, 20, [item('event', { event: 'b' })], { skippedBytes: 2048 })]);
  assert.deepEqual(state.entries.map((entry) => entry.item.type), ['event', 'problem', 'event']);
  assert.match(state.entries[1].item.text, /^2\.0 KiB /);
});

test('the lines of a change are added, removed or the same, without the path', () => {
  const diff = '--- a.js\n+++ a.js\n@@ line 3 @@\n same\n--- old\n+new\n';
  assert.deepEqual(changeLines(diff).map(({ kind, text }) => `${kind} ${text}`), ['place @@ line 3 @@', 'same  same', 'removed --- old', 'added +new']);
  assert.deepEqual(changeLines(''), []);
  // Several changes of a file.
  const change = '--- a.js\n+++ a.js\n@@ line 3 @@\n-old\n+new\n';
  assert.deepEqual(changeLines(change + change).map(({ kind }) => kind), ['place', 'removed', 'added', 'place', 'removed', 'added']);
  assert.deepEqual(changeLines('+new\n').map(({ kind }) => kind), ['added']);
});

test('a request for a permission is a command or a change', () => {
  assert.deepEqual(requestParts('Bash:\nnpm test --- x\nls:\n'), { title: 'Bash', body: 'npm test --- x\nls:\n', diff: '' });
  assert.deepEqual(requestParts('Run npm test'), { title: '', body: 'Run npm test', diff: '' });
  const kinds = requestLines('--- a\n+++ a\n@@ line 1 @@\n--- b\n+c\n').map(({ kind }) => kind);
  assert.deepEqual(kinds, ['file', 'file', 'place', 'removed', 'added'], 'the path is shown, and nothing is left out');
  assert.deepEqual(requestParts('Edit:\n--- a\n+++ a\n@@ line 1 @@\n-b\n'), { title: 'Edit', body: '', diff: '--- a\n+++ a\n@@ line 1 @@\n-b\n' });
});

test('a message is sent, then it waits, then it is delivered', () => {
  const sent = (at, text) => ({ at, event: 'message_sent', detail: text });
  const { entries } = applied([part(null, 1, [{ run: 1, type: 'event', ...sent('5', 'a\nb') }, { run: 1, type: 'event', ...sent('8', 'd') }])]).state;
  const states = (detail) => sentMessages(entries, { recent: [], ...detail }).map(({ at, text, state }) => [at, text, state]);
  const recent = [sent('4', 'z'), { at: '5', event: 'task_paused' }, sent('5', 'a b')];
  const info = { updatedAt: '7' };
  // The last one was sent after the task was read.
  assert.deepEqual(states({ info, recent, messages: ['a\nb'] }), [['4', 'z', 'delivered'], ['5', 'a\nb', 'waiting'], ['8', 'd', 'sent']]);
  assert.deepEqual(states({ info: { updatedAt: '9' }, recent }).map(([, , state]) => state), ['delivered', 'delivered', 'delivered']);
  // One that waits for longer than the page looks back.
  assert.deepEqual(states({ info, messages: ['old', 'a\nb'] }).slice(0, 2), [[undefined, 'old', 'waiting'], ['5', 'a\nb', 'waiting']]);
});
