// Rows of a trace's waterfall, from the spans of its events. Pure.

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

/** What an event of a type says of its span. */
interface Meaning {
  isTurn: boolean;
  /** The outcome, if it is the end. */
  end: 'completed' | 'failed' | null;
}

/** There are few types, and many events of each. */
const MEANINGS = new Map<string, Meaning>();

function meaningOf(type: string): Meaning {
  let meaning = MEANINGS.get(type);
  if (meaning === undefined) {
    const end = /^(?:turn|step|tool)\.(completed|failed|parked)$/.exec(type)?.[1];
    const isTurn = type.startsWith('turn.') || type.startsWith('message.');
    meaning = { isTurn, end: end === undefined ? null : end === 'completed' ? 'completed' : 'failed' };
    MEANINGS.set(type, meaning);
  }
  return meaning;
}

/** `2026-01-01T00:00:`: what times of the same minute have in common. */
const MINUTE_CHARACTERS = 17;
/** `2026-01-01T00:00:09.110Z`. */
const TIME_CHARACTERS = 24;

/** Reads the times of the daemon. Those of one minute come in a row, and all but the first are read by their digits. */
class Times {
  #minute = '?';
  #minuteMs = 0;

  read(text: string): number {
    if (text.length !== TIME_CHARACTERS || text.charCodeAt(TIME_CHARACTERS - 1) !== 90) return Date.parse(text);
    if (!text.startsWith(this.#minute)) {
      this.#minute = text.slice(0, MINUTE_CHARACTERS);
      this.#minuteMs = Date.parse(`${this.#minute}00.000Z`);
    }
    const digit = (at: number): number => text.charCodeAt(at) - 48;
    const seconds = digit(17) * 10 + digit(18);
    return this.#minuteMs + seconds * 1000 + digit(20) * 100 + digit(21) * 10 + digit(22);
  }
}

/** The spans of a trace, each below the one that caused it, in the order in which they began. */
export function waterfallOf(events: RuntimeEvent[]): Waterfall {
  const places = new Map<string, number>();
  const spans = spansOf(events, places);
  let startMs = Infinity;
  let endMs = -Infinity;
  for (const span of spans) {
    startMs = Math.min(startMs, span.startMs);
    endMs = Math.max(endMs, span.endMs);
  }
  const bounds = spans.length === 0 ? { startMs: 0, endMs: 0 } : { startMs, endMs };
  return { spans: inOrder(spans, places), ...bounds };
}

function spansOf(events: RuntimeEvent[], places: Map<string, number>): Span[] {
  const spans: Span[] = [];
  const times = new Times();
  let latestMs = 0;
  for (const event of events) {
    const atMs = times.read(event.timestamp);
    const { isTurn, end } = meaningOf(event.type);
    if (atMs > latestMs) latestMs = atMs;
    const place = places.get(event.spanId);
    let span: Span;
    if (place === undefined) {
      span = begun(event, isTurn, atMs);
      places.set(event.spanId, spans.length);
      spans.push(span);
    } else {
      span = spans[place]!;
    }
    if (event.detail !== undefined) span.detail = event.detail;
    if (end === null) continue;
    span.outcome = end;
    span.endMs = atMs;
    span.costMicroUsd = event.costMicroUsd;
    // The start of a span from an earlier process is computed from its duration, if known.
    if (event.durationMs !== undefined) span.startMs = Math.min(span.startMs, atMs - event.durationMs);
  }
  for (const span of spans) if (span.outcome === 'open') span.endMs = Math.max(span.startMs, latestMs);
  return spans;
}

function begun(event: RuntimeEvent, isTurn: boolean, atMs: number): Span {
  const isCall = !isTurn && (event.toolName !== undefined || event.toolCallId !== undefined);
  const name = isTurn
    ? `turn of ${event.agentName}`
    : isCall
      ? (event.toolName ?? 'tool call')
      : `step ${event.stepId?.slice(event.stepId.lastIndexOf('.') + 1) ?? ''}`;
  return {
    spanId: event.spanId,
    parentSpanId: event.parentSpanId,
    kind: isTurn ? 'turn' : isCall ? 'call' : 'step',
    name,
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

/** The places of spans in the order in which they began. */
function byStart(spans: Span[]): Int32Array {
  const order = Int32Array.from(spans, (_, at) => at);
  const isSorted = spans.every((span, at) => at === 0 || spans[at - 1]!.startMs <= span.startMs);
  return isSorted ? order : order.sort((a, b) => spans[a]!.startMs - spans[b]!.startMs || a - b);
}

const NONE = -1;

/** Depth first. A span whose cause is not there, or that is its own cause, stands at the top. */
function inOrder(spans: Span[], places: Map<string, number>): Span[] {
  const count = spans.length;
  // Lists of children, the latest first: the first child of each, and the next one of the same parent.
  const child = new Int32Array(count).fill(NONE);
  const next = new Int32Array(count).fill(NONE);
  const tops: number[] = [];
  for (const at of byStart(spans)) {
    const { parentSpanId } = spans[at]!;
    const parent = parentSpanId === undefined ? at : (places.get(parentSpanId) ?? at);
    if (parent === at) {
      tops.push(at);
      continue;
    }
    next[at] = child[parent]!;
    child[parent] = at;
  }
  const out: Span[] = [];
  const isShown = new Uint8Array(count);
  const stack: number[] = [];
  const showFrom = (top: number): void => {
    stack.push(top);
    while (stack.length > 0) {
      const at = stack.pop()!;
      if (isShown[at] === 1) continue;
      isShown[at] = 1;
      const span = spans[at]!;
      out.push(span);
      for (let below = child[at]!; below !== NONE; below = next[below]!) {
        if (isShown[below] === 1) continue;
        spans[below]!.depth = span.depth + 1;
        stack.push(below);
      }
    }
  };
  for (const top of tops) showFrom(top);
  // Spans in a cycle have no root, so they are appended.
  for (let at = 0; at < count && out.length < count; at += 1) showFrom(at);
  return out;
}

/** Position and width of a span's bar, as fractions of the total. Bars have a minimum width. */
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
  const turns = spans.filter((span) => span.kind === 'turn' && span.parentSpanId !== undefined);
  if (turns.length === 0) return [];
  const byId = new Map(spans.map((span) => [span.spanId, span]));
  const asked = new Map<string, Asked>();
  for (const span of turns) {
    const parent = byId.get(span.parentSpanId!);
    if (parent === undefined || parent.agentName === span.agentName) continue;
    const name = JSON.stringify([parent.agentName, span.agentName]);
    const known = asked.get(name) ?? { from: parent.agentName, to: span.agentName, times: 0 };
    known.times += 1;
    asked.set(name, known);
  }
  return [...asked.values()];
}
