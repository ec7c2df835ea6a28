import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commentState, keyOf, placed, placeOf, placeText, unsent } from '../../src/comments.ts';
import { FILE_LINES_OPEN, filesOfDiff, LINES_OPEN, unfolded } from '../../src/parts/patch.ts';

const of = (diff) => filesOfDiff(diff).map(({ path, status, lines }) => [path, status, lines.map(({ kind, text, old, new: after }) => [kind, text, old, after])]);

test('the files of a patch have numbered lines, also where they look like something else', () => {
  const first = 'diff --git a/x b/x\nindex 12..34 100644\n--- a/x\n+++ b/x\n@@ -7,3 +7,2 @@\n same\n--- not a file\n-diff --git a/n b/n\n+++ new\n';
  const second = 'diff --git a/y z b/y z\nnew file mode 100755\nindex 0..1\n--- /dev/null\n+++ b/y z\t\n@@ -0,0 +1 @@\n+c\n\\ No newline at end of file\n';
  const third = 'diff --git a/gone b/gone\ndeleted file mode 100644\nindex 1..0\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-d\n';
  const [one, two, three] = of(first + second + third);
  assert.deepEqual(one, ['x', 'modified', [
    ['place', '@@ -7,3 +7,2 @@', undefined, undefined], ['same', 'same', 7, 7], ['removed', '-- not a file', 8, undefined],
    ['removed', 'diff --git a/n b/n', 9, undefined], ['added', '++ new', undefined, 8],
  ]]);
  assert.deepEqual(two, ['y z', 'added', [
    ['place', '@@ -0,0 +1 @@', undefined, undefined], ['added', 'c', undefined, 1], ['note', 'No newline at end of file', undefined, undefined],
  ]]);
  assert.deepEqual(three.slice(0, 2), ['gone', 'deleted']);
  const [{ added, removed }] = filesOfDiff(first);
  assert.deepEqual([added, removed], [1, 2]);
});

test('a patch without the headers of git, a binary file, and one that was cut are read', () => {
  const plain = '--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/y\n+++ b/y\n@@ -0,0 +1 @@\n+c\n--- /dev/null\n+++ b/z\n@@ -0,0 +1 @@\n+d\n';
  assert.deepEqual(of(plain).map(([path, , lines]) => [path, lines.length]), [['x', 3], ['y', 2], ['z', 2]]);
  const [binary] = filesOfDiff('diff --git a/i b/i\nindex 1..2 100644\nGIT binary patch\nliteral 3\nKcmZQ$00962\n\nliteral 0\nHcmV?d00001\n\n');
  assert.deepEqual([binary.isBinary, binary.lines], [true, []]);
  const [cut] = filesOfDiff('diff --git a/x b/x\n@@ -1,9 +1,9 @@\n a\n-b\n(the rest is left out)\n');
  assert.deepEqual(cut.lines.map(({ kind }) => kind), ['place', 'same', 'removed', 'note']);
  const [mode] = filesOfDiff('diff --git a/x b/x\nold mode 100644\nnew mode 100755\n');
  assert.deepEqual(mode.lines.map(({ text }) => text), ['old mode 100644', 'new mode 100755']);
  assert.deepEqual(of('configs/a: content not shown\n'), [['', 'modified', [['note', 'configs/a: content not shown', undefined, undefined]]]]);
  assert.deepEqual(filesOfDiff(''), []);
});

test('paths are the ones that the daemon expects', () => {
  const path = (names) => filesOfDiff(`diff --git ${names}\n`)[0].path;
  assert.equal(path('a/a b/c b/a b/c'), 'a b/c');
  assert.equal(path('"a/caf\\303\\251" "b/caf\\303\\251"'), 'café');
  assert.equal(path('"a/a\\\\b\\"c" "b/a\\\\b\\"c"'), 'a\\b"c');
  // These stay quoted: control characters, a quotation mark at the start, and bytes that are not UTF-8.
  for (const quoted of ['tab\\there', '\\"q', 'x\\377']) assert.equal(path(`"a/${quoted}" "b/${quoted}"`), `"${quoted}"`);
});

test('long files, and files after many lines, are folded', () => {
  const file = (lines) => ({ lines: Array.from({ length: lines }) });
  assert.deepEqual(unfolded([file(1), file(FILE_LINES_OPEN + 1), file(FILE_LINES_OPEN)]), [true, false, true]);
  const many = Array.from({ length: LINES_OPEN / 100 + 1 }, () => file(100));
  assert.deepEqual(unfolded(many).indexOf(false), LINES_OPEN / 100);
});

test('a comment is at its line, if the proposal that it is about is shown', () => {
  const files = filesOfDiff('diff --git a/x b/x\n@@ -4,2 +5,2 @@\n same\n-old\n+new\n');
  const [, same, old, added] = files[0].lines;
  assert.deepEqual([same, old, added].map((line) => placeOf('x', line)), [{ path: 'x', line: 5 }, { path: 'x', line: 5, old: true }, { path: 'x', line: 6 }]);
  assert.equal(placeOf('x', files[0].lines[0]), null);
  assert.deepEqual([placeText({ path: 'x', line: 5 }), placeText({ path: 'x' })], ['x:5', 'x']);
  const comment = (number, place, digest = 'd') => ({ number, path: 'x', digest, state: 'open', ...place });
  const comments = [
    comment(1, { line: 6 }), comment(2, { line: 5, old: true }), comment(3, { line: 4, old: true }), comment(4, {}), comment(5, { line: 90 }),
    comment(6, { line: 6 }, 'earlier'), comment(7, { path: 'gone', line: 1 }), comment(8, { line: 6 }),
  ];
  const { atLines, atFiles, others } = placed(files, comments, 'd');
  const numbers = (all) => (all ?? []).map(({ number }) => number);
  const at = (line) => numbers(atLines.get(keyOf(placeOf('x', line))));
  // An unchanged line has two numbers.
  assert.deepEqual([at(same), at(old), at(added)], [[3], [2], [1, 8]]);
  assert.deepEqual(numbers(atFiles.get('x')), [4, 5, 6]);
  assert.deepEqual(numbers(others), [7]);
});

test('the state of a comment says if the agent received it', () => {
  const states = [{ state: 'open', digest: 'd' }, { state: 'open', digest: 'c' }, { state: 'sent' }, { state: 'sent', addressedBy: 'd' }, { state: 'sent', addressedBy: 'e' }];
  assert.deepEqual(states.map((one) => commentState(one, 'd')), [
    'not sent', 'not sent, on an earlier proposal', 'sent to the agent', 'sent; this proposal addresses it', 'sent; an earlier proposal addressed it',
  ]);
  assert.equal(unsent(states), 2);
});
