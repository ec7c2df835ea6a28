import assert from 'node:assert/strict';
import { test } from 'node:test';
import { logReducer, processReducer, RECENT_MAX, workspaceReducer } from '../../src/store.ts';

const epoch = '001b3144545b17e7';
const event = (count, fields = {}) => ({ cursor: `${epoch}.${count}`, at: 't', event: { type: 'event.accepted', eventId: `e${count}`, ...fields } });
const snapshot = (count, processes = [], more) => ({
  cursor: `${epoch}.${count}`, at: 't', snapshot: { workspace: { workspaceId: 'w' }, processes, ...(more ? { more } : {}) },
});
const applied = (changes, state = workspaceReducer.start()) => {
  const verdicts = changes.map((change) => {
    const step = workspaceReducer.apply(state, change);
    state = step.state;
    return step.verdict;
  });
  return { state, verdicts };
};

test('each event counts once, in its order', () => {
  const { state, verdicts } = applied([snapshot(4), event(5), event(5), event(4), event(6)]);
  assert.deepEqual(verdicts, ['applied', 'applied', 'duplicate', 'duplicate', 'applied']);
  assert.deepEqual(state.recent.map((told) => told.event.eventId), ['e5', 'e6']);
  assert.deepEqual(workspaceReducer.resume(state), { after: `${epoch}.6` });
});

test('a gap is told and changes nothing', () => {
  const { state, verdicts } = applied([snapshot(4), event(6)]);
  assert.deepEqual(verdicts, ['applied', 'gap']);
  assert.equal(state.cursor, `${epoch}.4`);
  assert.equal(applied([event(1)]).verdicts[0], 'gap', 'without a snapshot nothing can follow');
  assert.equal(applied([snapshot(4), { ...event(5), cursor: '1.5' }]).verdicts[1], 'gap', 'of another opening');
});

test('a snapshot replaces everything, and one in parts counts when all have come', () => {
  const a = { instanceKey: 'a', turnId: 't1' };
  const b = { instanceKey: 'b', turnId: 't2' };
  const { state, verdicts } = applied([snapshot(4, [a]), event(5), snapshot(9, [a], true)]);
  assert.deepEqual(verdicts, ['applied', 'applied', 'partial']);
  assert.equal(state.cursor, `${epoch}.5`, 'a part is no place to go on from');
  const whole = applied([snapshot(9, [b])], state).state;
  assert.deepEqual(whole.turns, { a: 't1', b: 't2' });
  assert.equal(whole.cursor, `${epoch}.9`);
  assert.deepEqual(whole.recent, []);
  const cut = workspaceReducer.restarted(state);
  assert.deepEqual(applied([snapshot(9, [b])], cut).state.turns, { b: 't2' }, 'parts of a stream that was cut do not count');
});

test('turns begin and end', () => {
  const begun = applied([snapshot(0), event(1, { type: 'turn.started', instanceKey: 'a', turnId: 't' })]).state;
  assert.deepEqual(begun.turns, { a: 't' });
  assert.deepEqual(applied([event(2, { type: 'turn.committed', instanceKey: 'a', turnId: 't' })], begun).state.turns, {});
});

test('no more events are kept than may be', () => {
  const many = Array.from({ length: RECENT_MAX + 50 }, (_, n) => event(n + 1));
  const { state } = applied([snapshot(0), ...many]);
  assert.equal(state.recent.length, RECENT_MAX);
  assert.equal(state.recent.at(-1).cursor, `${epoch}.${RECENT_MAX + 50}`);
});

test('the first look at processes replaces those of before, once it is complete', () => {
  const of = (name, state = 'idle') => ({ workspaceId: 'w', role: 'agent', name, state });
  const look = (processes, more, gone = []) => ({ at: 't', processes, gone, ...(more ? { more } : {}) });
  let state = processReducer.apply(processReducer.start(), look([of('a'), of('b')])).state;
  state = processReducer.apply(state, look([of('a', 'processing')], false, [of('b')])).state;
  assert.deepEqual(Object.values(state.processes).map(({ name, state: as }) => [name, as]), [['a', 'processing']]);
  state = processReducer.restarted(state);
  const part = processReducer.apply(state, look([of('c')], true));
  assert.equal(part.verdict, 'partial');
  assert.deepEqual(Object.values(part.state.processes).map(({ name }) => name), ['a'], 'the old ones stand until then');
  const whole = processReducer.apply(part.state, look([of('d')])).state;
  assert.deepEqual(Object.values(whole.processes).map(({ name }) => name), ['c', 'd']);
});

test('lines of the log that are told again after a break are there once', () => {
  const line = (timestamp, message) => ({ line: { timestamp, level: 'info', message } });
  let state = logReducer.start();
  for (const one of [line('1', 'a'), line('2', 'b'), line('2', 'c')]) state = logReducer.apply(state, one).state;
  assert.equal(logReducer.resume(state).since, '2');
  for (const one of [line('2', 'b'), line('2', 'c'), line('3', 'd')]) state = logReducer.apply(state, one).state;
  assert.deepEqual(state.lines.map(({ message }) => message), ['a', 'b', 'c', 'd']);
});
