import assert from 'node:assert/strict';
import { test } from 'node:test';
import { byNext, fieldTime, timesText, typedTime } from '../../src/schedules.ts';

test('the schedule that is due next is the first, and one without a next time the last', () => {
  const [none, late, soon, other] = [
    { scheduleId: 's-1' },
    { scheduleId: 's-2', next: '2026-02-01T00:00:00.000Z' },
    { scheduleId: 's-4', next: '2026-01-01T00:00:00.000Z' },
    { scheduleId: 's-3', next: '2026-01-01T00:00:00.000Z' },
  ];
  assert.deepEqual(byNext([none, late, soon, other]), [other, soon, late, none]);
});

test('times are what `gdn event schedule list` prints', () => {
  assert.equal(timesText({ kind: 'once', at: '2026-01-01T00:00:00.000Z' }), 'once');
  assert.equal(timesText({ kind: 'cron', cron: '30 2 * * *', timeZone: 'Europe/Berlin' }), '30 2 * * * Europe/Berlin');
});

test('a typed local time is the instant that the field shows', () => {
  for (const text of ['2026-07-01T09:05', '2998-12-31T23:59']) assert.equal(fieldTime(new Date(typedTime(text))), text);
  assert.equal(fieldTime(new Date(2026, 0, 2, 3, 4, 59)), '2026-01-02T03:04');
  assert.deepEqual(['', '2026-07-01', 'tomorrow', '2026-13-01T00:00'].map(typedTime), [null, null, null, null]);
});
