// The live stream of a task, reduced to the entries of its page. Pure, and bounded.

import { bytes } from './parts/figures.js';
import type { Reducer } from './store.js';
import type { TaskDetail, TaskItem, TaskPart, Time } from './types.js';

/** The most entries that are kept. */
export const ENTRIES_MAX = 500;
/** The most characters of all entries, as JSON. */
export const CHARACTERS_MAX = 512 * 1024;
/** The most characters of texts that are joined to one entry. */
const JOINED_MAX = 8 * 1024;

/** An entry: an item, or several that belong together, such as the start and the end of a command. */
export interface Entry {
  /** Its number, which rises. */
  number: number;
  item: TaskItem;
  /** Time of the end of a call that had a start. */
  endedAt?: Time;
  /** Characters as JSON; absent until they are counted, because most entries of a long part are dropped. */
  size?: number;
}

/** A task's stream: its latest entries. */
export interface TaskStreamState {
  /** Position of the next part; null before the first. */
  next: number | null;
  entries: Entry[];
  /** The number of the next entry. */
  count: number;
  /** True if earlier entries were dropped. */
  isCut: boolean;
  /** True if items are known to follow at once. */
  isBehind: boolean;
  /** True if the task has ended and none of its processes runs. */
  isOver: boolean;
}

const START: TaskStreamState = { next: null, entries: [], count: 0, isCut: false, isBehind: false, isOver: false };

type Call = Extract<TaskItem, { state: string }>;

function isCall(item: TaskItem): item is Call {
  return item.type === 'command' || item.type === 'fileChange' || item.type === 'tool';
}

/** The report of a call with what earlier reports of the same call had. */
function joinedCall(before: Call, item: Call): Call {
  if (before.type === 'command' && item.type === 'command') return { ...before, ...item, command: item.command || before.command };
  if (before.type === 'fileChange' && item.type === 'fileChange') {
    return { ...item, files: item.files.length === 0 ? before.files : item.files };
  }
  return { ...before, ...item };
}

/** A longer text of two items; null if they are separate. */
function joinedText(before: TaskItem, item: TaskItem): TaskItem | null {
  if (before.run !== item.run) return null;
  if (before.type === 'usage' && item.type === 'usage') return item;
  if (!('text' in before && 'text' in item) || before.type !== item.type) return null;
  if (item.type !== 'text' && item.type !== 'thinking' && item.type !== 'output') return null;
  const text = `${before.text}\n${item.text}`;
  return text.length > JOINED_MAX ? null : { ...item, at: before.at, text };
}

function entryOf(number: number, item: TaskItem): Entry {
  return { number, item };
}

/** Name of a call among all of a stream; null for an item that cannot be joined with a later one. */
function callName(item: TaskItem): string | null {
  return isCall(item) && item.id !== undefined ? JSON.stringify([item.type, item.id, item.run]) : null;
}

/** Places of the latest entries of calls: a part has many items, so that a search for each would hold up the page. */
function placesOf(entries: Entry[]): Map<string, number> {
  const places = new Map<string, number>();
  entries.forEach(({ item }, at) => {
    const name = callName(item);
    if (name !== null) places.set(name, at);
  });
  return places;
}

/** Adds an item to the entries, or joins it with one of them. */
function add(entries: Entry[], places: Map<string, number>, count: number, item: TaskItem): number {
  const name = callName(item);
  if (name !== null) {
    const at = places.get(name) ?? -1;
    const before = entries[at]?.item;
    if (before !== undefined && isCall(before) && isCall(item) && before.state === 'started') {
      const entry = entryOf(entries[at]!.number, { ...joinedCall(before, item), at: before.at });
      entries[at] = item.state === 'started' ? entry : { ...entry, endedAt: item.at };
      return count;
    }
    places.set(name, entries.length);
  }
  const last = entries.at(-1);
  const joined = last === undefined ? null : joinedText(last.item, item);
  if (last !== undefined && joined !== null) {
    entries[entries.length - 1] = entryOf(last.number, joined);
    return count;
  }
  entries.push(entryOf(count, item));
  return count + 1;
}

/** Number of entries to drop, so that the rest is within the limits. The last one stays. */
function surplus(entries: Entry[]): number {
  let characters = 0;
  for (let at = entries.length - 1; at >= 0; at -= 1) {
    const entry = entries[at]!;
    entry.size ??= JSON.stringify(entry.item).length;
    characters += entry.size;
    const isTooMuch = characters > CHARACTERS_MAX || entries.length - at > ENTRIES_MAX;
    if (isTooMuch && at < entries.length - 1) return at + 1;
  }
  return 0;
}

/** `task.watch`: each part begins where the previous one ended. The first one begins with the latest run. */
export const taskReducer: Reducer<TaskStreamState, TaskPart> = {
  start: () => START,
  resume: ({ next }) => (next === null ? {} : { after: next }),
  restarted: (state) => ({ ...state, isOver: false }),
  isOver: ({ isOver }) => isOver,
  apply(before, { after, items, next, skippedBytes, isEnd, isOver }) {
    const state = after === undefined ? START : before;
    if (after !== undefined && after !== state.next) {
      return { state, verdict: state.next !== null && next <= state.next ? 'duplicate' : 'gap' };
    }
    const entries = [...state.entries];
    const places = placesOf(entries);
    let { count } = state;
    // At the start, the page has missed nothing.
    if (after !== undefined && skippedBytes !== undefined && skippedBytes > 0) {
      count = add(entries, places, count, missing(items[0]?.at, skippedBytes));
    }
    for (const item of items) count = add(entries, places, count, item);
    const dropped = surplus(entries);
    entries.splice(0, dropped);
    return {
      state: { next, entries, count, isCut: state.isCut || dropped > 0, isBehind: isEnd === false, isOver: isOver === true },
      verdict: 'applied',
    };
  },
};

function missing(at: Time | undefined, size: number): TaskItem {
  return { at: at ?? '', type: 'problem', text: `${bytes(size)} of the stream are missing: they are no longer kept.` };
}

/** A person's message to the agent, and its delivery. */
export interface SentMessage {
  /** Absent if the message is older than what the page has. */
  at?: Time;
  text: string;
  /** `sent` until the task is read again. */
  state: 'sent' | 'waiting' | 'delivered';
}

/** The latest messages, the oldest first: from the stream, the recent history, and the list of those that wait. */
export function sentMessages(entries: Entry[], detail: Pick<TaskDetail, 'recent' | 'messages'> & { info: { updatedAt?: Time } }): SentMessage[] {
  const texts = new Map<Time, string>();
  const add = (at: Time, { event, detail: text = '' }: { event: string; detail?: string }): void => {
    if (event === 'message_sent') texts.set(at, text);
  };
  for (const line of detail.recent ?? []) add(line.at, line);
  // The stream has more of a text than the history.
  for (const { item } of entries) if (item.type === 'event') add(item.at, item);
  const all = [...texts].map(([at, text]) => ({ at, text })).sort((one, other) => (one.at < other.at ? -1 : 1));
  const isRead = ({ at }: { at: Time }): boolean => detail.info.updatedAt !== undefined && at <= detail.info.updatedAt;
  const waiting = detail.messages ?? [];
  const read = all.filter(isRead);
  const received = read.slice(0, Math.max(0, read.length - waiting.length));
  const times = read.slice(received.length);
  return [
    ...received.map((one): SentMessage => ({ ...one, state: 'delivered' })),
    ...waiting.map((text, n): SentMessage => {
      const at = times[n - (waiting.length - times.length)]?.at;
      return { ...(at === undefined ? {} : { at }), text, state: 'waiting' };
    }),
    ...all.filter((one) => !isRead(one)).map((one): SentMessage => ({ ...one, state: 'sent' })),
  ];
}

/** A request for a permission, in parts: the tool, and its command or arguments, or the change of a file as a diff. */
export function requestParts(text: string): { title: string; body: string; diff: string } {
  const at = text.search(/^--- .*\n\+\+\+ /m);
  const before = at === -1 ? text : text.slice(0, at).trimEnd();
  const diff = at === -1 ? '' : text.slice(at);
  const title = /^(.*):\n([^]*)$/.exec(before);
  if (title !== null) return { title: title[1]!, body: title[2]!, diff };
  return before.endsWith(':') && !before.includes('\n')
    ? { title: before.slice(0, -1), body: '', diff }
    : { title: '', body: before, diff };
}

/** A line of a change, and its kind. */
export interface ChangeLine {
  kind: 'added' | 'removed' | 'place' | 'file' | 'same';
  text: string;
}

/** The lines of a file's diff as programs report it, without the lines before each change that repeat the path. */
export function changeLines(diff: string): ChangeLine[] {
  if (diff === '') return [];
  const lines = diff.endsWith('\n') ? diff.slice(0, -1).split('\n') : diff.split('\n');
  const [from, to] = lines;
  const isHead = (at: number): boolean => lines[at] === from && lines[at + 1] === to;
  const hasHeads = from?.startsWith('--- ') === true && to?.startsWith('+++ ') === true;
  const shown = hasHeads ? lines.filter((_, at) => !isHead(at) && !isHead(at - 1)) : lines;
  return shown.map(changeLine);
}

function changeLine(text: string): ChangeLine {
  if (text.startsWith('@@')) return { kind: 'place', text };
  return { kind: text.startsWith('+') ? 'added' : text.startsWith('-') ? 'removed' : 'same', text };
}

/** All lines of a diff that a person decides about, with the paths. */
export function requestLines(diff: string): ChangeLine[] {
  const lines = diff.trimEnd().split('\n');
  const isHead = (at: number): boolean =>
    lines[at]?.startsWith('--- ') === true && lines[at + 1]?.startsWith('+++ ') === true && lines[at + 2]?.startsWith('@@') === true;
  return lines.map((text, at) => (isHead(at) || isHead(at - 1) ? { kind: 'file', text } : changeLine(text)));
}
