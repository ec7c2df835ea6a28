// Answers of a search, and where its hits are.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { routeOf } from '../../src/router.ts';
import { HITS_MAX, hrefOf, NOTHING, withLine } from '../../src/search.ts';

const hit = (kind, more = {}) => ({ kind, workspaceId: 'w', id: 'a/b?#&', title: 't', text: { before: '', found: 'x', after: '' }, ...more });

test('each kind of hit has the address of its place', () => {
  const at = (one) => {
    const { page, arg, query } = routeOf(hrefOf(one, 'dune & co'));
    return [page, arg, ...[...query].filter(([name]) => name !== 'w').flat(), query.get('w')];
  };
  assert.deepEqual(at(hit('message', { place: 'm1' })), ['conversation', 'a/b?#&', 'message', 'm1', 'w']);
  assert.deepEqual(at(hit('conversation')), ['conversation', 'a/b?#&', 'w']);
  assert.deepEqual(at(hit('event')), ['conversation', 'a/b?#&', 'w']);
  assert.deepEqual(at(hit('trace', { place: 's1' })), ['trace', 'a/b?#&', 'span', 's1', 'w']);
  assert.deepEqual(at(hit('patch', { place: 'src/a.rs' })), ['proposals', 'a/b?#&', 'file', 'src/a.rs', 'w']);
  assert.deepEqual(at(hit('proposal')), ['proposals', 'a/b?#&', 'w']);
  assert.deepEqual(at(hit('task')), ['tasks', 'a/b?#&', 'w']);
  assert.deepEqual(at(hit('work')), ['tasks', 'a/b?#&', 'find', 'dune & co', 'w']);
  assert.deepEqual(at(hit('question')), ['needs', '', 'item', 'a/b?#&', 'w']);
  assert.deepEqual(at(hit('log')), ['logs', '', 'q', 'dune & co', 'w']);
  assert.deepEqual(at(hit('audit', { workspaceId: undefined })), ['audit', '', 'q', 'dune & co', null]);
});

test('a repeated answer adds nothing, and counts go on over answers', () => {
  const lines = [{ hit: hit('task') }, { progress: { stage: 'tasks', read: 2 } }, { hit: hit('work') }];
  const end = { end: { read: 3, skipped: 1, next: { stage: 'proposals' } } };
  let found = [...lines, ...lines, end].reduce(withLine, NOTHING);
  assert.deepEqual(found.hits.map(({ kind }) => kind), ['task', 'work']);
  assert.deepEqual([found.read, found.skipped, found.isOver, found.next.stage], [3, 1, false, 'proposals']);
  found = [{ progress: { stage: 'log', read: 4 } }, { end: { read: 5, skipped: 0 } }].reduce(withLine, found);
  assert.deepEqual([found.read, found.skipped, found.isOver, found.next], [8, 1, true, undefined]);
});

test('hits are bounded', () => {
  let found = NOTHING;
  for (let n = 0; n < HITS_MAX + 5; n += 1) found = withLine(found, { hit: hit('message', { place: `${n}` }) });
  assert.equal(found.hits.length, HITS_MAX);
});
