import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EMPTY_LIST, withHead, without, withPage } from '../../src/conversations.ts';
import { NO_MESSAGES, ofPage, withEarlier, withNewest } from '../../src/messages.ts';

const messages = (from, to) => Array.from({ length: to - from }, (_, n) => ({ id: `m${from + n}` }));
/** The page of a conversation of `total` messages that ends at its end. */
const newest = (total, limit = 10) => {
  const first = Math.max(0, total - limit);
  return { messages: messages(first, total), pending: [], total, ...(first > 0 ? { previous: first } : {}) };
};
const ids = (state) => state.messages.map(({ id }) => id);
const all = (to) => messages(0, to).map(({ id }) => id);

test('what arrives is joined without a gap and without a duplicate', () => {
  let state = withNewest(NO_MESSAGES, newest(15)).state;
  state = withEarlier(state, { messages: messages(0, 5), pending: [], total: 15 });
  for (const total of [15, 16, 20, 25]) {
    const joined = withNewest(state, newest(total));
    assert.equal(joined.fit, 'joined', `${total}`);
    assert.deepEqual(ids(joined.state), all(total));
    assert.equal(joined.state.previous, null);
    state = joined.state;
  }
});

test('messages that are missing between are told as a gap', () => {
  const state = ofPage(newest(15));
  assert.equal(withNewest(state, newest(40)).fit, 'gap');
  const closed = withNewest(state, { ...newest(40), messages: messages(10, 40) });
  assert.equal(closed.fit, 'joined');
  assert.deepEqual(ids(closed.state), all(40).slice(5));
});

test('a conversation that was rewritten begins anew', () => {
  const state = ofPage(newest(15));
  assert.equal(withNewest(state, newest(12)).fit, 'rewritten', 'it is shorter');
  const other = { ...newest(15), messages: [{ id: 'm5' }, { id: 'x' }, ...messages(7, 15)] };
  assert.equal(withNewest(state, other).fit, 'rewritten', 'another message in the middle');
  const hidden = { ...newest(15), messages: messages(6, 16) };
  assert.equal(withNewest(state, hidden).fit, 'rewritten', 'one was removed that is not on the page, and one came');
});

test('an earlier page is there once', () => {
  const state = ofPage(newest(15));
  const page = { messages: messages(0, 6), pending: [], total: 15 };
  assert.deepEqual(ids(withEarlier(state, page)), all(15));
});

const instances = (from, to) => Array.from({ length: to - from }, (_, n) => ({ workspaceId: 'w', instanceKey: `k${from + n}` }));
const keys = (list) => list.instances.map(({ instanceKey }) => instanceKey);

test('pages of conversations follow each other, and one that moved to the front is there once', () => {
  const after = { workspaceId: 'w', instanceKey: 'k2' };
  let list = withPage(EMPTY_LIST, { instances: instances(0, 3), total: 6, next: after });
  list = withPage(list, { instances: instances(2, 6), total: 6 });
  assert.deepEqual(keys(list), ['k0', 'k1', 'k2', 'k3', 'k4', 'k5']);
  list = withHead(list, { instances: [{ workspaceId: 'w', instanceKey: 'k5' }, ...instances(0, 2)], total: 6, next: after });
  assert.deepEqual(keys(list), ['k5', 'k0', 'k1', 'k2', 'k3', 'k4']);
  assert.deepEqual(keys(without(list, 'k0')), ['k5', 'k1', 'k2', 'k3', 'k4']);
  assert.equal(without(list, 'k0').total, 5);
});

test('a list that fits on its first page is that page', () => {
  const list = withPage(EMPTY_LIST, { instances: instances(0, 3), total: 3 });
  assert.deepEqual(keys(withHead(list, { instances: instances(1, 3), total: 2 })), ['k1', 'k2']);
});

test('of which messages a part is known is known of all pages', () => {
  const cut = (...ids) => ids.map((messageId) => ({ messageId, offset: 7 }));
  const idsOf = (state) => [...state.cut.keys()].sort();
  let state = ofPage({ ...newest(15), cut: cut('m14', 'm10') });
  assert.deepEqual(idsOf(state), ['m10', 'm14']);
  state = withNewest(state, { ...newest(16), cut: cut('m15') }).state;
  assert.deepEqual(idsOf(state), ['m15'], 'both are whole on the newer page');
  const first = state.messages[0].id;
  const earlier = { ...newest(9), messages: messages(0, 4), cut: cut('m1') };
  state = withEarlier(state, earlier);
  assert.deepEqual(idsOf(state), ['m1', 'm15']);
  assert.notEqual(state.messages[0].id, first);
  assert.deepEqual(idsOf(ofPage(newest(3))), []);
});
