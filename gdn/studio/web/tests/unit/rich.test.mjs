// Pure parts of review, Markdown and the graph.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deflateSync } from 'node:zlib';
import { filesOfDiff, sideRows, treeOf } from '../../src/parts/patch.ts';
import { bytesOf85 } from '../../src/parts/image.ts';
import { changedWords, codeLines, markdownTokens } from '../../src/rich.ts';
import { flowName, recentOf, sumsOf, withSample } from '../../src/traffic.ts';

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

test('traffic counts from the sample before the last minutes, and from 0 after a restart', () => {
  const flow = { from: { kind: 'connection', name: 'hook' }, to: { kind: 'agent', name: 'clerk' }, lastAt: 't' };
  const report = (second, count, since = 'start') => ({ at: new Date(second * 1000).toISOString(), since, flows: [{ ...flow, count }] });
  const recent = (samples) => recentOf(samples).get(flowName(flow));
  let samples = withSample([], report(0, 7), 60_000);
  assert.equal(recent(samples), 0, 'what came before the page is not recent');
  samples = [20, 40, 70, 90].reduce((all, second, at) => withSample(all, report(second, 8 + at), 60_000), samples);
  assert.deepEqual(samples.map(({ at }) => Date.parse(at) / 1000), [20, 40, 70, 90]);
  assert.equal(recent(samples), 3);
  samples = withSample(samples, report(100, 2, 'restart'), 60_000);
  assert.equal(samples.length, 1);
  assert.equal(recent(samples), 0);
  const both = { at: 't', since: 't', flows: [{ ...flow, count: 2 }, { ...flow, from: flow.to, to: flow.from, count: 3 }] };
  assert.deepEqual(sumsOf(both, flow.to), { received: 2, sent: 3 });
  assert.deepEqual(sumsOf(undefined, flow.to), { received: 0, sent: 0 });
});
