// Reduces the events of streams to a state. Pure, so that all tabs have the same state.

import type { LifecycleEvent, Process, ProcessChange, ProcessKey, Workspace, WorkspaceChange } from './types.js';

/** What becomes of a notification. */
export type Verdict = 'applied' | 'duplicate' | 'gap' | 'partial';

/** How a kind of stream is reduced. States are plain data: tabs hand them to each other. */
export interface Reducer<State, Notice> {
  start(): State;
  apply(state: State, notice: Notice): { state: State; verdict: Verdict };
  /** What a stream that begins again is asked beside its parameters. */
  resume(state: State): Record<string, unknown>;
  /** The state when a stream begins again. */
  restarted(state: State): State;
  /** True if the stream ended because nothing follows for now. It is not reopened until the page requests it. */
  isOver?(state: State): boolean;
}

/** Something that happened, as it was told. */
export interface Told {
  cursor: string;
  at: string;
  event: LifecycleEvent;
}

/** A workspace as far as its stream tells it. */
export interface WorkspaceState {
  cursor: string | null;
  workspace: Workspace | null;
  /** The turns in progress by the keys of their conversations. */
  turns: Record<string, string>;
  /** The latest events, the newest last. */
  recent: Told[];
  /** The parts of a snapshot that is not complete. */
  partial: { cursor: string; processes: Process[] } | null;
}

/** How many events are kept. */
export const RECENT_MAX = 200;

/** A cursor in its parts: which opening of the workspace, and how many events there were. */
export function cursorParts(cursor: string): { epoch: string; count: number } | null {
  const match = /^([0-9a-f]{1,16})\.(\d+)$/.exec(cursor);
  return match === null ? null : { epoch: match[1]!, count: Number(match[2]) };
}

function follows(now: string | null, next: string): 'next' | 'old' | 'gap' {
  const before = now === null ? null : cursorParts(now);
  const after = cursorParts(next);
  if (before === null || after === null || before.epoch !== after.epoch) return 'gap';
  if (after.count <= before.count) return 'old';
  return after.count === before.count + 1 ? 'next' : 'gap';
}

function turnsOf(processes: Process[]): Record<string, string> {
  const turns: Record<string, string> = {};
  for (const process of processes) {
    if (process.instanceKey !== undefined && process.turnId !== undefined) turns[process.instanceKey] = process.turnId;
  }
  return turns;
}

function turnsAfter(turns: Record<string, string>, event: LifecycleEvent): Record<string, string> {
  const key = event.instanceKey;
  if (key === undefined) return turns;
  if (event.type === 'turn.started') return { ...turns, [key]: event.turnId ?? '' };
  if (['turn.committed', 'event.parked', 'instance.deleted', 'instance.rewound'].includes(event.type)) {
    const { [key]: _ended, ...others } = turns;
    return others;
  }
  return turns;
}

/** `workspace.watch`: events once each in their order; a snapshot replaces everything. */
export const workspaceReducer: Reducer<WorkspaceState, WorkspaceChange> = {
  start: () => ({ cursor: null, workspace: null, turns: {}, recent: [], partial: null }),
  resume: (state) => (state.cursor === null ? {} : { after: state.cursor }),
  restarted: (state) => ({ ...state, partial: null }),
  apply(state, change) {
    const { snapshot, event, cursor, at } = change;
    if (snapshot !== undefined) {
      const earlier = state.partial?.cursor === cursor ? state.partial.processes : [];
      const processes = [...earlier, ...snapshot.processes];
      if (snapshot.more === true) return { state: { ...state, partial: { cursor, processes } }, verdict: 'partial' };
      const whole = { cursor, workspace: snapshot.workspace, turns: turnsOf(processes), recent: [], partial: null };
      return { state: whole, verdict: 'applied' };
    }
    if (event === undefined) return { state, verdict: 'duplicate' };
    switch (follows(state.cursor, cursor)) {
      case 'old':
        return { state, verdict: 'duplicate' };
      case 'gap':
        return { state, verdict: 'gap' };
      case 'next': {
        const recent = [...state.recent, { cursor, at, event }].slice(-RECENT_MAX);
        return { state: { ...state, cursor, recent, turns: turnsAfter(state.turns, event) }, verdict: 'applied' };
      }
    }
  },
};

/** The processes by their keys. */
export interface ProcessesState {
  processes: Record<string, Process>;
  /** What a stream that began anew has told so far; it replaces the others once it is complete. */
  first: Record<string, Process> | null;
}

/** The name of a process among all. */
export function processName(key: ProcessKey): string {
  return JSON.stringify([key.workspaceId, key.role, key.name, key.instanceKey ?? null, key.taskId ?? null]);
}

/** `process.watch`: the first look holds all there are; each later one what is different. */
export const processReducer: Reducer<ProcessesState, ProcessChange> = {
  start: () => ({ processes: {}, first: {} }),
  resume: () => ({}),
  restarted: (state) => ({ ...state, first: {} }),
  apply(state, change) {
    const next = { ...(state.first ?? state.processes) };
    for (const process of change.processes) next[processName(process)] = process;
    for (const key of change.gone ?? []) delete next[processName(key)];
    if (state.first !== null && change.more === true) {
      return { state: { ...state, first: next }, verdict: 'partial' };
    }
    return { state: { processes: next, first: null }, verdict: 'applied' };
  },
};

/** A line of the log. */
export interface LogLine {
  timestamp: string;
  level: string;
  message: string;
  [field: string]: unknown;
}

/** The latest lines of the log. */
export interface LogState {
  lines: LogLine[];
  /** The lines of the latest moment, as JSON: a stream that begins again tells them again. */
  latest: string[];
  /** How many lines were told. */
  told: number;
}

/** How many lines are kept. */
export const LOG_LINES_MAX = 2000;

/** `logs.follow`: it has no cursor, so that one which begins again is asked for what came since the latest line. */
export const logReducer: Reducer<LogState, { line: LogLine }> = {
  start: () => ({ lines: [], latest: [], told: 0 }),
  resume: (state) => {
    const last = state.lines.at(-1);
    return last === undefined ? {} : { since: last.timestamp, tail: LOG_LINES_MAX };
  },
  restarted: (state) => state,
  apply(state, { line }) {
    const text = JSON.stringify(line);
    const isSameMoment = state.lines.at(-1)?.timestamp === line.timestamp;
    if (isSameMoment && state.latest.includes(text)) return { state, verdict: 'duplicate' };
    const latest = isSameMoment ? [...state.latest, text] : [text];
    const lines = [...state.lines, line].slice(-LOG_LINES_MAX);
    return { state: { lines, latest, told: state.told + 1 }, verdict: 'applied' };
  },
};
