// Turns and steps, made of the runtime events of a conversation. Pure.

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

/** What a step took. */
export interface StepFigures {
  durationMs?: number;
  costMicroUsd?: number;
  traceId?: string;
}

/** The turns of a conversation in the order in which they began, and its steps, by their ids. */
export interface TurnLog {
  turns: ReadonlyMap<string, Turn>;
  steps: ReadonlyMap<string, StepFigures>;
}

/** A log of which nothing was read. */
export const NO_TURNS: TurnLog = { turns: new Map(), steps: new Map() };

const ENDS: Record<string, string> = { 'turn.completed': 'completed', 'turn.failed': 'failed', 'turn.parked': 'parked' };

/** The log with further events; the one before is unchanged, so that its last page can be read again. */
export function withEvents(log: TurnLog, events: RuntimeEvent[]): TurnLog {
  const turns = new Map(log.turns);
  const steps = new Map(log.steps);
  const changed = new Set<string>();
  for (const event of events) {
    let turn = turns.get(event.turnId) ?? begun(event);
    if (!changed.has(event.turnId)) turn = { ...turn };
    changed.add(event.turnId);
    turns.set(event.turnId, turn);
    addTo(turn, event);
    if (event.stepId !== undefined && event.type.startsWith('step.')) {
      steps.set(event.stepId, { ...steps.get(event.stepId), ...figuresOf(event) });
    }
  }
  return { turns, steps };
}

/** The turns in the order in which they began. */
export function turnsOf(events: RuntimeEvent[]): Turn[] {
  return [...withEvents(NO_TURNS, events).turns.values()];
}

/** An offset beyond every log: `InstanceTurns::END` of the control API. */
export const LOG_END = Number.MAX_SAFE_INTEGER;

/** A page of `instance.turns` that was read from the end. */
export interface EventPage {
  events: RuntimeEvent[];
  previous?: number;
}

/** The events of a conversation as far as they were read, from the end. */
export interface BackwardLog {
  instanceKey: string;
  agentName: string;
  /** Oldest first. */
  events: RuntimeEvent[];
  /** End of what was not read yet. */
  previous: number | undefined;
}

/** The log with the page before it. */
export function withPageBefore(log: BackwardLog, { events, previous }: EventPage): BackwardLog {
  return { ...log, events: [...events, ...log.events], previous };
}

/** The turns of a log that were read from their beginnings. */
export function turnsOfLog({ events, previous }: BackwardLog): Turn[] {
  const turns = turnsOf(events);
  if (previous === undefined) return turns;
  const begun = new Set(events.filter(({ type }) => type === 'turn.started').map(({ turnId }) => turnId));
  return turns.filter(({ turnId }) => begun.has(turnId));
}

function addTo(turn: Turn, event: RuntimeEvent): void {
  if (event.type === 'step.started') turn.steps += 1;
  if (event.type === 'tool.called') turn.tools += 1;
  const outcome = ENDS[event.type];
  if (outcome === undefined) return;
  turn.outcome = outcome;
  turn.durationMs = event.durationMs ?? Date.parse(event.timestamp) - Date.parse(turn.startedAt);
  turn.costMicroUsd = event.costMicroUsd;
  if (outcome !== 'completed') turn.reason = event.detail;
}

function figuresOf({ traceId, durationMs, costMicroUsd }: RuntimeEvent): StepFigures {
  return {
    traceId,
    ...(durationMs === undefined ? {} : { durationMs }),
    ...(costMicroUsd === undefined ? {} : { costMicroUsd }),
  };
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
