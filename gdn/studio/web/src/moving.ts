// Target position of a waiting event that moves up or down. Pure.

import type { WaitingEvent } from './types.js';

/** A place as `event.move` takes it. */
export type Place = 'first' | 'last' | { before: string };

/** The events of a conversation that have their turns one after the other: parked ones have none. */
function inLine(events: WaitingEvent[]): WaitingEvent[] {
  return events.filter(({ standing }) => standing === 'waiting' || standing === 'paused');
}

/** The place one turn earlier; null for the first, and for what does not wait in line. */
export function earlier(events: WaitingEvent[], eventId: string): Place | null {
  const line = inLine(events);
  const before = line[line.findIndex((event) => event.eventId === eventId) - 1];
  return before === undefined ? null : { before: before.eventId };
}

/** The place one turn later; null for the last, and for what does not wait in line. */
export function later(events: WaitingEvent[], eventId: string): Place | null {
  const line = inLine(events);
  const at = line.findIndex((event) => event.eventId === eventId);
  if (at === -1 || at === line.length - 1) return null;
  const behind = line[at + 2];
  return behind === undefined ? 'last' : { before: behind.eventId };
}
