// The list of conversations as far as it was read: pure, so that pages may come while conversations change.

import type { Instance } from './types.js';

/** Where the next page begins. */
export type After = { workspaceId: string; instanceKey: string; updatedAt?: string };

/** The answer to `instance.list`. */
export interface InstancePage {
  instances: Instance[];
  total: number;
  next?: After;
}

/** The conversations that were read, those that changed last first. */
export interface ListState {
  instances: Instance[];
  total: number;
  next: After | null;
}

/** A list of which nothing was read. */
export const EMPTY_LIST: ListState = { instances: [], total: 0, next: null };

function nameOf(instance: Instance): string {
  return JSON.stringify([instance.workspaceId, instance.instanceKey]);
}

/** The list with one page more behind it. What moved to the front meanwhile is not there twice. */
export function withPage(list: ListState, page: InstancePage): ListState {
  const known = new Set(list.instances.map(nameOf));
  const more = page.instances.filter((instance) => !known.has(nameOf(instance)));
  return { instances: [...list.instances, ...more], total: page.total, next: page.next ?? null };
}

/** The list with its first page read again: what is on it comes first, all else behind it in its order. */
export function withHead(list: ListState, head: InstancePage): ListState {
  if (head.next === undefined || list.instances.length === 0) return withPage(EMPTY_LIST, head);
  const ahead = new Set(head.instances.map(nameOf));
  const behind = list.instances.filter((instance) => !ahead.has(nameOf(instance)));
  const instances = [...head.instances, ...behind];
  // A list that was read to its end and is shorter than it says has to be read on from its first page.
  const isWhole = list.next !== null || instances.length >= head.total;
  return { instances, total: head.total, next: isWhole ? list.next : head.next };
}

/** The list without a conversation that was deleted. */
export function without(list: ListState, instanceKey: string): ListState {
  const instances = list.instances.filter((instance) => instance.instanceKey !== instanceKey);
  return { ...list, instances, total: list.total - (list.instances.length - instances.length) };
}
