// Pure parts of review, Markdown and the graph.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deflateSync } from 'node:zlib';
import { filesOfDiff, sideRows, treeOf } from '../../src/parts/patch.ts';
import { bytesOf85 } from '../../src/parts/image.ts';
import { changedWords, codeLines, markdownTokens } from '../../src/rich.ts';
import { trafficOf } from '../../src/traffic.ts';

const DIFF = '--- a/a.rs\n+++ b/a.rs\n@@ -1,4 +1,4 @@\n same\n-old one\n-old two\n+new one\n end\n+more\n';

test('in two columns, removed lines are beside the added ones that replace them', () => {
  const rows = sideRows(filesOfDiff(DIFF)[0].lines).map(({ left, right, note }) => [left?.text, right?.text, note?.text]);
  assert.deepEqual(rows.slice(1), [['same', 'same', undefined], ['old one', 'new one', undefined], ['old two', undefined, undefined], ['end', 'end', undefined], [undefined, 'more', undefined]]);
});

test('the tree has folders, and those with one child are joined', () => {
  const tree = treeOf(['src/deep/a.rs', 'src/deep/b.rs', 'README.md']);
  assert.deepEqual(tree.map(({ name, file }) => [name, file]), [['src/deep', undefined], ['README.md', 2]]);
  assert.deepEqual(tree[0].children.map(({ name, file }) => [name, file]), [['a.rs', 0], ['b.rs', 1]]);
});

test('colors keep every character and every line', () => {
  const text = 'fn main() {\n\n    // <b>note</b>\n    let s = "two\nlines";\n}';
  const lines = codeLines(text, 'rust');
  assert.equal(lines.map((line) => line.map((piece) => piece.text).join('')).join('\n'), text);
  assert.ok(lines[0].some(({ tone }) => tone === 'hljs-keyword'));
  assert.equal(codeLines(text, 'no-such-language'), null);
});

test('changed words are ranges of both lines, unless nearly all is different', () => {
  const { old, next } = changedWords('let a = compute(1);', 'let b = compute(1);');
  assert.deepEqual([old, next], [[[4, 5]], [[4, 5]]]);
  assert.equal(changedWords('alpha beta gamma', 'delta epsilon zeta'), null);
});

test('markdown of strangers is tokens, and HTML in it stays text', () => {
  const [token] = markdownTokens('<img src=x onerror="alert(1)">');
  assert.equal(token.type, 'html');
  assert.equal(token.raw, '<img src=x onerror="alert(1)">');
});

test('the base 85 of git is read', () => {
  // `git diff --binary` of a file with the text `hello`.
  const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~';
  const zipped = deflateSync(Buffer.from('hello'));
  let line = String.fromCharCode(64 + zipped.length);
  for (let at = 0; at < zipped.length; at += 4) {
    let value = 0;
    for (let n = 0; n < 4; n += 1) value = value * 256 + (zipped[at + n] ?? 0);
    let group = '';
    for (let n = 0; n < 5; n += 1) {
      group = alphabet[value % 85] + group;
      value = Math.floor(value / 85);
    }
    line += group;
  }
  assert.deepEqual(Buffer.from(bytesOf85([line])), zipped);
  assert.equal(bytesOf85(['Z0']), null);
});

test('traffic is of the last minutes, by connection and agent', () => {
  const told = (ms, type, instanceKey) => ({ cursor: '', at: new Date(ms).toISOString(), event: { type, instanceKey } });
  const context = { agentOf: new Map([['hook:ann', 'clerk'], ['clerk:hook:bob', 'clerk'], ['main', 'clerk']]), connections: ['hook'], nowMs: 100_000, withinMs: 50_000 };
  const recent = [told(10_000, 'event.accepted', 'hook:ann'), told(60_000, 'event.accepted', 'hook:ann'), told(70_000, 'event.accepted', 'clerk:hook:bob'), told(90_000, 'turn.started', 'main'), told(90_000, 'event.accepted', 'unknown')];
  const { flows, agents } = trafficOf(recent, context);
  assert.deepEqual(flows, [{ from: 'hook', to: 'clerk', times: 2, lastMs: 70_000 }]);
  assert.deepEqual(agents.get('clerk'), { events: 2, lastMs: 90_000 });
});
