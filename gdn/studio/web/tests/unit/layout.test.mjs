import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bytes, dollars, duration } from '../../src/parts/figures.ts';
import { answerOf } from '../../src/parts/form.ts';
import { chunksOf, ROWS_MAX, rowByKey, scrollTo, windowOf } from '../../src/parts/virtual.ts';
import { LOG_END, NO_TURNS, turnsOf, turnsOfLog, withEvents, withPageBefore } from '../../src/turns.ts';
import { askedOf, barOf, waterfallOf } from '../../src/waterfall.ts';
import { longConversation, longTrace, turnEvents } from '../fake-data.mjs';

test('few rows are in the document, and all that can be seen are among them', () => {
  for (const total of [0, 1, 30, 10_000]) {
    for (const height of [0, 56, 600, 2000]) {
      for (const top of [-10, 0, 55, 56, 5000, total * 56 - height, total * 56]) {
        const { first, end } = windowOf(total, 56, top, height);
        const label = JSON.stringify({ total, height, top, first, end });
        assert.ok(end - first <= ROWS_MAX && first >= 0 && end <= total, label);
        const scrolled = Math.max(0, Math.min(top, total * 56 - height));
        const seenEnd = Math.min(total, Math.ceil((scrolled + height) / 56));
        assert.ok(first <= Math.floor(scrolled / 56) && (end >= seenEnd || height > 56 * ROWS_MAX), label);
      }
    }
  }
});

test('keys move within a list, and the row is scrolled to', () => {
  assert.equal(rowByKey('ArrowDown', 0, 3, 2), 1);
  assert.equal(rowByKey('ArrowUp', 0, 3, 2), 0);
  assert.equal(rowByKey('PageDown', 0, 3, 10), 2);
  assert.equal(rowByKey('End', 0, 10_000, 2), 9999);
  assert.equal(rowByKey('x', 0, 3, 2), null);
  assert.equal(rowByKey('End', 0, 0, 2), null);
  assert.equal(scrollTo(10, 56, 0, 112), 10 * 56 - 56);
  assert.equal(scrollTo(0, 56, 500, 112), 0);
  assert.equal(scrollTo(1, 56, 0, 112), 0);
});

test('a trace is laid out below what caused what', () => {
  const { spans, startMs, endMs } = waterfallOf(turnEvents);
  assert.deepEqual(spans.map(({ kind, depth, outcome }) => [kind, depth, outcome]), [
    ['turn', 0, 'completed'], ['step', 1, 'completed'], ['call', 2, 'completed'],
  ]);
  assert.equal(endMs - startMs, 300);
  const bar = barOf(spans[2], { spans, startMs, endMs });
  assert.ok(Math.abs(bar.left - 1 / 3) < 0.001 && Math.abs(bar.width - 1 / 3) < 0.001);
});

test('ten thousand spans are laid out in time, and none is lost', () => {
  const tookMs = (events) => {
    const tries = [1, 2, 3].map(() => {
      const beganMs = performance.now();
      waterfallOf(events);
      return performance.now() - beganMs;
    });
    return Math.min(...tries);
  };
  const events = longTrace(10_000);
  const [few, many] = [tookMs(longTrace(1_000)), tookMs(events)];
  const waterfall = waterfallOf(events);
  assert.equal(waterfall.spans.length, 10_000);
  // Ten times the work; a hundred times if each span looked at all others.
  assert.ok(many < 50 * few, `${few} ms for a thousand, ${many} ms for ten thousand`);
  for (const span of waterfall.spans) {
    const { left, width } = barOf(span, waterfall);
    assert.ok(left >= 0 && left + width <= 1 + 1e-9 && width > 0);
  }
});

test('spans without a cause, in a circle or without an end do not harm', () => {
  const of = (spanId, parentSpanId, type = 'tool.called', agentName = 'a') => ({ type, timestamp: '2026-01-01T00:00:00.000Z', spanId, parentSpanId, agentName, instanceKey: 'k', turnId: 't' });
  assert.equal(waterfallOf([of('1', 'none')]).spans[0].outcome, 'open');
  assert.equal(waterfallOf([of('1', '1')]).spans.length, 1);
  assert.equal(waterfallOf([of('1', '2'), of('2', '1')]).spans.length, 2, 'a circle is shown, too');
  assert.deepEqual(waterfallOf([]), { spans: [], startMs: 0, endMs: 0 });
  const asked = askedOf(waterfallOf([of('1', undefined, 'turn.started'), of('2', '1'), of('3', '2', 'turn.started', 'b')]));
  assert.deepEqual(asked, [{ from: 'a', to: 'b', times: 1 }]);
});

test('chunks hold each entry once, and keep their numbers when earlier ones are loaded', () => {
  for (const [before, loaded] of [[0, 0], [0, 7], [3, 4], [95, 5], [90, 15], [9_950, 50]]) {
    const chunks = chunksOf(before, loaded, 10);
    const places = chunks.flatMap(({ first, end }) => Array.from({ length: end - first }, (_, at) => first + at));
    assert.deepEqual(places, Array.from({ length: loaded }, (_, at) => at));
    for (const { number, first, end } of chunks) {
      for (const place of [first, end - 1]) assert.equal(Math.floor((before + place) / 10), number);
    }
  }
  const numbers = (before) => chunksOf(before, 100 - before, 10).map(({ number }) => number);
  assert.deepEqual(numbers(40).slice(-3), numbers(95 - 20).slice(-3));
});

test('turns that are read in pages are those that are read at once', () => {
  const whole = withEvents(NO_TURNS, turnEvents);
  for (let at = 0; at <= turnEvents.length; at += 1) {
    const first = withEvents(NO_TURNS, turnEvents.slice(0, at));
    // The last page is read more than once.
    withEvents(first, turnEvents.slice(at, at + 1));
    assert.deepEqual(withEvents(first, turnEvents.slice(at)), whole);
  }
  assert.deepEqual([...whole.steps], [['t.1', { traceId: 'a'.repeat(32), durationMs: 240, costMicroUsd: 600 }]]);
  assert.equal(NO_TURNS.turns.size, 0);
});

test('turns are made of their events', () => {
  const [turn] = turnsOf(turnEvents);
  assert.deepEqual([turn.outcome, turn.durationMs, turn.steps, turn.tools, turn.costMicroUsd], ['completed', 300, 1, 1, 1155]);
  assert.equal(turnsOf(turnEvents.slice(0, 3))[0].outcome, 'processing');
});

test('an answer has the values that its form wants', () => {
  const form = [
    { name: 'size', required: true, takes: { type: 'choice', choices: [{ value: 'm' }] } },
    { name: '__proto__', required: false, takes: { type: 'integer' } },
    { name: 'yes', required: false, takes: { type: 'boolean' } },
    { name: 'mail', required: false, takes: { type: 'string' } },
    { name: 'text', required: true, takes: { type: 'string' } },
    { name: 'extras', required: false, takes: { type: 'choices', choices: [{ value: 'a' }, { value: 'b' }] } },
    { name: 'others', required: false, takes: { type: 'choices', choices: [{ value: 'a' }] } },
  ];
  const typed = { 'field-0': ['m'], 'field-1': ['3'], 'field-2': ['false'], 'field-3': [''], 'field-4': [''], 'field-5': ['b', 'a'], 'field-6': [] };
  const json = JSON.stringify(answerOf(form, (name) => typed[name]));
  assert.equal(json, '{"size":"m","__proto__":3,"yes":false,"text":"","extras":["b","a"]}');
});

test('figures say what they mean', () => {
  assert.deepEqual([duration(12), duration(1500), duration(61_000), duration(3_660_000)], ['12 ms', '1.5 s', '1 min 1 s', '1 h 1 min']);
  assert.deepEqual([bytes(1023), bytes(1536)], ['1023 B', '1.5 KiB']);
  assert.deepEqual([dollars(0), dollars(1155), dollars(5_000_000)], ['$0.00', '$0.0012', '$5.00']);
});

test('a log that is read from its end lists a turn once its beginning was read', () => {
  const { events } = longConversation(3);
  const perTurn = events.length / 3;
  const cut = perTurn + 2;
  const log = withPageBefore({ instanceKey: 'main', agentName: 'clerk', events: [], previous: LOG_END }, { events: events.slice(cut), previous: cut });
  assert.deepEqual(turnsOfLog(log).map(({ turnId }) => turnId), ['n2']);
  const whole = withPageBefore(log, { events: events.slice(0, cut) });
  assert.deepEqual(turnsOfLog(whole), turnsOf(events));
});
