// Traffic of a workspace, as the daemon counts it. Pure.

import type { Time } from './types.js';

/** A sender or receiver. */
export interface End {
  kind: 'agent' | 'connection';
  name: string;
}

/** What one sender sent to one receiver: events, or calls of a connection. */
export interface Flow {
  from: End;
  to: End;
  count: number;
  lastAt: Time;
}

/** The answer to `workspace.traffic`. */
export interface TrafficReport {
  at: Time;
  since: Time;
  flows: Flow[];
  others?: number;
}

/** Counts of several moments, the latest last. */
export type Samples = readonly TrafficReport[];

/** The samples with a further one. Those before `withinMs` are dropped, except the latest of them: counts begin there. */
export function withSample(samples: Samples, report: TrafficReport, withinMs: number): Samples {
  // The daemon was restarted, or the workspace opened again: it counts from 0.
  const same = samples.at(-1)?.since === report.since ? samples : [];
  const beginMs = Date.parse(report.at) - withinMs;
  const first = same.findLastIndex(({ at }) => Date.parse(at) <= beginMs);
  return [...same.slice(Math.max(0, first)), report];
}

/** The name of a flow among all. */
export function flowName({ from, to }: Flow): string {
  return JSON.stringify([from.kind, from.name, to.kind, to.name]);
}

/** How many came since the first of the samples, by flow. */
export function recentOf(samples: Samples): ReadonlyMap<string, number> {
  const before = new Map(samples[0]?.flows.map((flow) => [flowName(flow), flow.count]) ?? []);
  return new Map(samples.at(-1)?.flows.map((flow) => [flowName(flow), flow.count - (before.get(flowName(flow)) ?? 0)]) ?? []);
}

/** Sums of what a connection or agent received and sent. */
export function sumsOf(report: TrafficReport | undefined, { kind, name }: End): { received: number; sent: number } {
  const sum = (is: (flow: Flow) => boolean): number => (report?.flows ?? []).filter(is).reduce((total, { count }) => total + count, 0);
  return {
    received: sum(({ to }) => to.kind === kind && to.name === name),
    sent: sum(({ from }) => from.kind === kind && from.name === name),
  };
}
