// A search of the server: its answers, and the addresses of its hits. Pure.

import type { WireError } from './api.js';
import { addressOf } from './router.js';

/** A found place. */
export interface Hit {
  kind: string;
  /** Absent for the system's own records. */
  workspaceId?: string;
  id: string;
  title: string;
  text: { before: string; found: string; after: string };
  at?: string;
  /** Place within the item: a message, a span or a file. */
  place?: string;
}

/** State of a search. */
export interface Found {
  hits: Hit[];
  /** The hits as JSON. */
  known: ReadonlySet<string>;
  /** Conversations, tasks and proposals that were searched. */
  read: number;
  /** Those of complete answers: an answer that was stopped is repeated. */
  readBefore: number;
  /** What is being searched. */
  stage: string;
  /** Items that could not be read. */
  skipped: number;
  /** Where the search continues; absent at its start and at its end. */
  next?: unknown;
  isOver: boolean;
}

/** A line of an answer. */
export interface SearchLine {
  hit?: Hit;
  progress?: { stage: string; read: number };
  end?: { skipped: number; read: number; next?: unknown };
  error?: WireError;
}

/** A search that has found nothing yet. */
export const NOTHING: Found = { hits: [], known: new Set(), read: 0, readBefore: 0, stage: '', skipped: 0, isOver: false };

/** So many hits are shown; a search for a more special text has fewer. */
export const HITS_MAX = 1000;
/** An answer with fewer hits paused because it did enough work: the search continues at once. */
export const ANSWER_HITS = 100;

const KINDS: Record<string, string> = {
  workspace: 'Workspace', agent: 'Agent', connection: 'Connection', conversation: 'Conversation', approval: 'Approval', question: 'Question',
  event: 'Event', task: 'Task', work: 'Work of a task', proposal: 'Proposal', patch: 'Patch', audit: 'Audit', log: 'Log', message: 'Message', trace: 'Trace',
};

/** What a hit is, in words. */
export function kindOf({ kind }: Hit): string {
  return KINDS[kind] ?? kind;
}

/** The address of a hit. `text` is the searched text. */
export function hrefOf({ kind, workspaceId, id, place }: Hit, text: string): string {
  const of = workspaceId ?? null;
  const at = (page: string, arg: string, name: string): string => addressOf(of, page, arg, place === undefined ? {} : { [name]: place });
  switch (kind) {
    case 'workspace':
      return addressOf(of, 'needs');
    case 'agent':
    case 'connection':
      return addressOf(of, 'agents');
    case 'approval':
    case 'question':
      return addressOf(of, 'needs', '', { item: id });
    case 'task':
      return addressOf(of, 'tasks', id);
    case 'work':
      return addressOf(of, 'tasks', id, { find: text });
    case 'proposal':
    case 'patch':
      return at('proposals', id, 'file');
    case 'audit':
    case 'log':
      return addressOf(of, kind === 'log' ? 'logs' : 'audit', '', { q: text });
    case 'trace':
      return at('trace', id, 'span');
    default:
      return at('conversation', id, 'message');
  }
}

/** The state after a line. A conversation that changes during the search is searched twice: its hits are shown once. */
export function withLine(found: Found, { hit, progress, end }: SearchLine): Found {
  if (hit !== undefined) {
    const name = JSON.stringify(hit);
    if (found.hits.length >= HITS_MAX || found.known.has(name)) return found;
    return { ...found, hits: [...found.hits, hit], known: new Set([...found.known, name]) };
  }
  if (progress !== undefined) return { ...found, stage: progress.stage, read: found.readBefore + progress.read };
  if (end === undefined) return found;
  const read = found.readBefore + end.read;
  return { ...found, read, readBefore: read, skipped: found.skipped + end.skipped, next: end.next, isOver: end.next === undefined };
}
