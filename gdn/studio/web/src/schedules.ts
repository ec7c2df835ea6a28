// Schedules: their order, their times in words, and the local time that a person types. Pure.

import type { Schedule, ScheduleTime, Time } from './types.js';

/** The schedules, the next one due first; those without a next time last. */
export function byNext(schedules: Schedule[]): Schedule[] {
  const dueMs = ({ next }: Schedule): number => (next === undefined ? Number.MAX_SAFE_INTEGER : Date.parse(next));
  return [...schedules].sort((a, b) => dueMs(a) - dueMs(b) || (a.scheduleId < b.scheduleId ? -1 : 1));
}

/** Times of a schedule, as `gdn event schedule list` prints them. */
export function timesText(time: ScheduleTime): string {
  return time.kind === 'once' ? 'once' : `${time.cron} ${time.timeZone}`;
}

/** An instant as a field for a local date and time has it, to the minute. */
export function fieldTime(at: Date): string {
  const two = (value: number): string => String(value).padStart(2, '0');
  const year = String(at.getFullYear()).padStart(4, '0');
  return `${year}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}`;
}

/** The instant of a typed local date and time; null if it is incomplete. */
export function typedTime(text: string): Time | null {
  // A date alone would be read as one in UTC.
  const at = text.includes('T') ? new Date(text) : new Date(Number.NaN);
  return Number.isNaN(at.getTime()) ? null : at.toISOString();
}
