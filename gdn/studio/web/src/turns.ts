// Turns, made of the runtime events of a conversation.

import type { RuntimeEvent } from './types.js';

/** A turn as far as it was recorded. */
export interface Turn {
  turnId: string;
  traceId: string;
  eventId: string | undefined;
  startedAt: string;
  durationMs: number | undefined;
  /** `completed`, `failed`, `parked`, or `processing` while there is no end of it. */
  outcome: string;
  steps: number;
  tools: number;
  costMicroUsd: number | undefined;
  reason: string | undefined;
}

const ENDS: Record<string, string> = { 'turn.completed': 'completed', 'turn.failed': 'failed', 'turn.parked': 'parked' };

/** The turns in the order in which they began. */
export function turnsOf(events: RuntimeEvent[]): Turn[] {
  const turns = new Map<string, Turn>();
  for (const event of events) {
    const turn = turns.get(event.turnId) ?? begun(event);
    turns.set(event.turnId, turn);
    if (event.type === 'step.started') turn.steps += 1;
    if (event.type === 'tool.called') turn.tools += 1;
    const outcome = ENDS[event.type];
    if (outcome === undefined) continue;
    turn.outcome = outcome;
    turn.durationMs = event.durationMs ?? Date.parse(event.timestamp) - Date.parse(turn.startedAt);
    turn.costMicroUsd = event.costMicroUsd;
    if (outcome !== 'completed') turn.reason = event.detail;
  }
  return [...turns.values()];
}

function begun({ turnId, traceId, eventId, timestamp }: RuntimeEvent): Turn {
  return {
    turnId,
    traceId,
    eventId,
    startedAt: timestamp,
    durationMs: undefined,
    outcome: 'processing',
    steps: 0,
    tools: 0,
    costMicroUsd: undefined,
    reason: undefined,
  };
}
