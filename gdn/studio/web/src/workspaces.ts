// Which workspaces there are.

import { call } from './api.js';
import type { Workspace } from './types.js';

interface WorkspacePage {
  workspaces: Workspace[];
  next?: string;
}

/** More pages are not read: nobody chooses among so many in a list. */
const PAGES_MAX = 20;

/** The registered workspaces, by their ids. */
export async function readWorkspaces(): Promise<Workspace[]> {
  const all: Workspace[] = [];
  let after: string | undefined;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const told: WorkspacePage = await call('workspace.list', after === undefined ? {} : { after });
    all.push(...told.workspaces);
    if (told.next === undefined) break;
    after = told.next;
  }
  return all;
}

/** One of them, or null if it is closed. */
export async function readWorkspace(workspaceId: string | null): Promise<Workspace | null> {
  const { workspaces } = await call<WorkspacePage>('workspace.list', { workspaceId });
  return workspaces.find((one) => one.workspaceId === workspaceId) ?? null;
}
