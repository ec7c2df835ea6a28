// Comments on the lines of a proposal, and where they belong in its patch. Pure.

import type { DiffFile, DiffLine } from './parts/patch.js';
import type { ProposalComment } from './types.js';

/** The line that a comment is about; none for the whole file. */
export interface Place {
  path: string;
  line?: number;
  /** True if it is a line of the file before the change. */
  old?: boolean;
}

/** Identifies a place. */
export function keyOf({ path, line, old }: Place): string {
  return JSON.stringify([path, line ?? 0, old === true]);
}

/** A place as `gdn proposal comment` takes it. */
export function placeText({ path, line }: Place): string {
  return line === undefined ? path : `${path}:${line}`;
}

/** The place of a line of a patch, if comments on it are possible: a line that still exists by its new number. */
export function placeOf(path: string, line: DiffLine): Place | null {
  if (line.new !== undefined) return { path, line: line.new };
  return line.old === undefined ? null : { path, line: line.old, old: true };
}

/** Comments by their places in a patch. */
export interface PlacedComments {
  /** On lines of the patch, by the keys of their places. */
  atLines: Map<string, ProposalComment[]>;
  /** On files, on lines that the patch does not show, and on earlier proposals: by path. */
  atFiles: Map<string, ProposalComment[]>;
  /** On files that the patch does not contain. */
  others: ProposalComment[];
}

/** Places the comments in the patch of the proposal with this digest. */
export function placed(files: DiffFile[], comments: ProposalComment[], digest: string): PlacedComments {
  if (comments.length === 0) return { atLines: new Map(), atFiles: new Map(), others: [] };
  const lines = new Map<string, string>();
  const paths = new Set<string>();
  for (const { path, lines: all } of files) {
    paths.add(path);
    for (const line of all) {
      const place = placeOf(path, line);
      if (place === null) continue;
      const key = keyOf(place);
      lines.set(key, key);
      if (line.old !== undefined) lines.set(keyOf({ path, line: line.old, old: true }), key);
    }
  }
  const out: PlacedComments = { atLines: new Map(), atFiles: new Map(), others: [] };
  const add = (to: Map<string, ProposalComment[]>, key: string, comment: ProposalComment): void => {
    to.set(key, [...(to.get(key) ?? []), comment]);
  };
  for (const comment of comments) {
    const key = comment.line === undefined || comment.digest !== digest ? undefined : lines.get(keyOf(comment));
    if (key !== undefined) add(out.atLines, key, comment);
    else if (paths.has(comment.path)) add(out.atFiles, comment.path, comment);
    else out.others.push(comment);
  }
  return out;
}

/** State of a comment in the review of the proposal with this digest. */
export function commentState(comment: ProposalComment, digest: string): string {
  if (comment.state === 'open') return comment.digest === digest ? 'not sent' : 'not sent, on an earlier proposal';
  if (comment.addressedBy === undefined) return 'sent to the agent';
  return comment.addressedBy === digest ? 'sent; this proposal addresses it' : 'sent; an earlier proposal addressed it';
}

/** Number of comments that the next request for changes sends. */
export function unsent(comments: ProposalComment[]): number {
  return comments.filter(({ state }) => state === 'open').length;
}
