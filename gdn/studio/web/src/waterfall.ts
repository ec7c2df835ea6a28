// What took how long in a trace: the spans of its events as rows of a waterfall. Pure.

import type { RuntimeEvent } from './types.js';

/** A turn, a step or a tool call. */
export interface Span {
  spanId: string;
  parentSpanId: string | undefined;
  kind: 'turn' | 'step' | 'call';
  name: string;
  agentName: string;
  instanceKey: string;
  startMs: number;
  /** The end, or that of the latest event if there is none. */
  endMs: number;
  outcome: 'completed' | 'failed' | 'open';
  detail: string | undefined;
  costMicroUsd: number | undefined;
  /** How many spans it stands below. */
  depth: number;
}

/** A trace, laid out. */
export interface Waterfall {
  spans: Span[];
  startMs: number;
  endMs: number;
}

const ENDS = /\.(completed|failed|parked)$/;

/** The spans of a trace, each below the one that caused it, in the order in which they began. */
export function waterfallOf(events: RuntimeEvent[]): Waterfall {
  const spans = spansOf(events);
  let startMs = Infinity;
  let endMs = -Infinity;
  for (const span of spans.values()) {
    startMs = Math.min(startMs, span.startMs);
    endMs = Math.max(endMs, span.endMs);
  }
  const bounds = spans.size === 0 ? { startMs: 0, endMs: 0 } : { startMs, endMs };
  return { spans: inOrder(spans), ...bounds };
}

function spansOf(events: RuntimeEvent[]): Map<string, Span> {
  const spans = new Map<string, Span>();
  let latestMs = 0;
  for (const event of events) {
    const atMs = Date.parse(event.timestamp);
    latestMs = Math.max(latestMs, atMs);
    let span = spans.get(event.spanId);
    if (span === undefined) {
      span = begun(event, atMs);
      spans.set(event.spanId, span);
    }
    if (event.detail !== undefined) span.detail = event.detail;
    if (!ENDS.test(event.type) || !/^(turn|step|tool)\./.test(event.type)) continue;
    span.outcome = event.type.endsWith('.completed') ? 'completed' : 'failed';
    span.endMs = atMs;
    span.costMicroUsd = event.costMicroUsd;
    // What began in a process that is gone has its begin from the duration, if that is told.
    if (event.durationMs !== undefined) span.startMs = Math.min(span.startMs, atMs - event.durationMs);
  }
  for (const span of spans.values()) if (span.outcome === 'open') span.endMs = Math.max(span.startMs, latestMs);
  return spans;
}

function begun(event: RuntimeEvent, atMs: number): Span {
  const isTurn = event.type.startsWith('turn.') || event.type.startsWith('message.');
  const kind = isTurn ? 'turn' : event.toolName !== undefined || event.toolCallId !== undefined ? 'call' : 'step';
  const names = { turn: `turn of ${event.agentName}`, step: `step ${event.stepId?.split('.').at(-1) ?? ''}`, call: event.toolName ?? 'tool call' };
  return {
    spanId: event.spanId,
    parentSpanId: event.parentSpanId,
    kind,
    name: names[kind],
    agentName: event.agentName,
    instanceKey: event.instanceKey,
    startMs: atMs,
    endMs: atMs,
    outcome: 'open',
    detail: undefined,
    costMicroUsd: undefined,
    depth: 0,
  };
}

/** Depth first. A span whose cause is not there, or that is its own cause, stands at the top. */
function inOrder(spans: Map<string, Span>): Span[] {
  const below = new Map<string, Span[]>();
  const tops: Span[] = [];
  for (const span of spans.values()) {
    const parent = span.parentSpanId;
    if (parent === undefined || parent === span.spanId || !spans.has(parent)) tops.push(span);
    else if (below.get(parent)?.push(span) === undefined) below.set(parent, [span]);
  }
  const byStart = (a: Span, b: Span): number => a.startMs - b.startMs;
  const out: Span[] = [];
  const shown = new Set<Span>();
  // What causes itself in a circle is below no top: it follows behind, when all others were taken.
  const stack = [...tops.sort(byStart), ...spans.values()].reverse();
  while (stack.length > 0) {
    const span = stack.pop()!;
    if (shown.has(span)) continue;
    shown.add(span);
    out.push(span);
    const children = (below.get(span.spanId) ?? []).sort(byStart);
    for (const child of children.reverse()) {
      if (shown.has(child)) continue;
      child.depth = span.depth + 1;
      stack.push(child);
    }
  }
  return out;
}

/** Where a span's bar begins and how wide it is, as parts of the whole. A bar can always be seen. */
export function barOf(span: Span, { startMs, endMs }: Waterfall, narrowest = 0.002): { left: number; width: number } {
  const whole = Math.max(endMs - startMs, 1);
  const width = Math.min(1, Math.max((span.endMs - span.startMs) / whole, narrowest));
  return { left: Math.min(Math.max((span.startMs - startMs) / whole, 0), 1 - width), width };
}

/** An agent that had another one work, and how often. */
export interface Asked {
  from: string;
  to: string;
  times: number;
}

/** Which agents had which others work in a trace. */
export function askedOf({ spans }: Waterfall): Asked[] {
  const byId = new Map(spans.map((span) => [span.spanId, span]));
  const asked = new Map<string, Asked>();
  for (const span of spans) {
    const parent = span.parentSpanId === undefined ? undefined : byId.get(span.parentSpanId);
    if (parent === undefined || span.kind !== 'turn' || parent.agentName === span.agentName) continue;
    const name = JSON.stringify([parent.agentName, span.agentName]);
    const known = asked.get(name) ?? { from: parent.agentName, to: span.agentName, times: 0 };
    known.times += 1;
    asked.set(name, known);
  }
  return [...asked.values()];
}
