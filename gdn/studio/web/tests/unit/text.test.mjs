import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addressOf, routeOf } from '../../src/router.ts';
import { command, cutAt, fileName, harmless, head, oneLine, pieces } from '../../src/parts/text.ts';

test('what is not seen is written out, unless a script or an emoji needs it', () => {
  const hidden = ['\u009b', '\u007f', '\u202e', '\u2066', '\u200e', '\u061c', '\u200b', '\u200d', '\ufeff', '\u{e0041}', '\u00ad', '\ufe0f', '\u0000'];
  for (const c of hidden) {
    assert.equal(harmless(`a${c}b`), `a\\u{${c.codePointAt(0).toString(16)}}b`);
  }
  assert.equal(harmless('ü\u200d\u200d'), 'ü\u200d\\u{200d}');
  assert.equal(harmless('\u001b[31mred\r\n\t'), '\\u{1b}[31mred\\r\n\t');
  assert.equal(harmless('a\ud800b'), 'a\\u{d800}b');
  for (const fine of ['grün ☎\ufe0f 1\ufe0f', '👩\u200d👧', '❤\ufe0f\u200d🔥', 'می\u200cخواهم', 'line\nline\ttab', '']) {
    assert.equal(harmless(fine), fine);
  }
});

test('one line is one line, and its head is no longer than it may be', () => {
  assert.equal(oneLine('a\nb\tc'), 'a\\nb\\tc');
  assert.equal(head('abcdef', 3), 'abc…');
  assert.equal(head('abc', 3), 'abc');
  assert.equal(head('👩👩👩👩', 2), '👩👩…');
});

test('only http and https are links, and a link says where it leads', () => {
  const links = (text) => pieces(text).filter((piece) => piece.href !== undefined);
  assert.deepEqual(links('javascript:alert(1) data:text/html,x file:///etc/passwd //x.y'), []);
  assert.deepEqual(links('see https://example.org/a?b=1.'), [{ text: 'https://example.org/a?b=1', href: 'https://example.org/a?b=1' }]);
  assert.deepEqual(links('http://user:pw@example.org/'), [], 'a name before the host deceives');
  const text = 'a (https://example.org/) b https://x.y\u202e z';
  assert.equal(pieces(text).map((piece) => piece.text).join(''), harmless(text));
  assert.ok(links('https://еxample.org/').every(({ href }) => !href.includes('xn--')), 'letters that look like others');
});

test('a command can be pasted into a shell', () => {
  assert.equal(command('gdn', 'approve', 'a-7f3a9c21'), 'gdn approve a-7f3a9c21');
  assert.equal(command('gdn', 'rewind', "it's; rm -rf /"), "gdn rewind 'it'\\''s; rm -rf /'");
  assert.equal(command(''), "''");
});

test('an address leads back to where it came from', () => {
  for (const key of ['main', 'telegram:1', 'a/b', 'ä ?#%&', '100%']) {
    const route = routeOf(addressOf('w s', 'conversation', key));
    assert.deepEqual([route.page, route.arg, route.query.get('w')], ['conversation', key, 'w s']);
  }
  assert.equal(routeOf('').page, 'needs');
  assert.equal(routeOf('#t=0123').page, 'needs');
  assert.equal(routeOf('#/conversation/%E0%A4%A').arg, '%E0%A4%A');
});

test('a text is cut between characters, and a file is named by what no system minds', () => {
  assert.equal(cutAt('abc', 3), 3);
  assert.equal(cutAt('abcd', 3), 3);
  assert.equal(cutAt('ab😀d', 3), 2);
  assert.equal(cutAt('ab😀d', 4), 4);
  assert.equal(fileName('chat:42'), 'chat_42');
  assert.equal(fileName('../../etc/passwd'), '_etc_passwd');
  assert.equal(fileName('한글'), '_');
  assert.equal(fileName(''), '_');
  assert.equal(fileName('a'.repeat(500)).length, 80);
});
