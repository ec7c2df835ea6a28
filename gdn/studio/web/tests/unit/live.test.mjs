import assert from 'node:assert/strict';
import { test } from 'node:test';
import { liveReducer } from '../../src/live.ts';

const happens = (type, step = 1) => ({ event: { type, turnId: 't', stepId: `t.${step}` } });
const says = (text, step = 1, type = 'text') => ({ place: { turnId: 't', stepId: `t.${step}` }, piece: { type, text } });
const replyAfter = (...notices) => notices.reduce((state, notice) => liveReducer.apply(state, notice).state, liveReducer.start()).reply;

test('a reply grows piece by piece, and is over with its step', () => {
  const begun = [happens('step.started'), says('so ', 1, 'reasoning'), says('47 '), says('copies')];
  const reply = replyAfter(...begun);
  assert.deepEqual([reply.text, reply.reasoning, reply.isCut, reply.isOver], ['47 copies', 'so ', false, false]);
  assert.deepEqual(replyAfter(...begun, happens('step.completed')), { ...reply, isOver: true });
  assert.equal(replyAfter(...begun, happens('tool.called')).isOver, false);
});

test('the next step begins a reply of its own', () => {
  const reply = replyAfter(happens('step.started'), says('one'), happens('step.completed'), happens('step.started', 2), says('two', 2));
  assert.deepEqual([reply.stepId, reply.text, reply.isOver], ['t.2', 'two', false]);
});

test('whoever comes in the middle of a reply is told that its beginning is not there', () => {
  assert.equal(replyAfter(says('copies')).isCut, true);
  assert.equal(replyAfter(says('copies'), says('', 1, 'again'), says('all')).isCut, false);
});

test('what came of a call that is made again does not count', () => {
  const retry = { ...says(''), piece: { type: 'retry', attempt: 2, attemptsMax: 5, delayMs: 1500, code: 'rateLimited' } };
  const waits = replyAfter(says('half'), retry);
  assert.match(waits.note, /Attempt 2 of 5 starts in 2 s: rateLimited/);
  const again = replyAfter(says('half'), retry, says('', 1, 'again'), says('whole'));
  assert.deepEqual([again.text, again.note], ['whole', '']);
});

test('pieces of the calls of tools are no reply', () => {
  assert.equal(replyAfter({ place: { turnId: 't', stepId: 't.1', toolCallId: 'c' }, piece: { type: 'text', text: 'x' } }), null);
});

test('of a reply without end the end is kept', () => {
  const reply = replyAfter(happens('step.started'), says('a'.repeat(60_000)), says('b'.repeat(60_000)));
  assert.equal(reply.text.length, 64 * 1024);
  assert.equal(reply.isCut, true);
  assert.ok(reply.text.endsWith('b'));
});
