// List of workspaces.

import { call, callPages } from './api.js';
import type { Workspace } from './types.js';

/** The registered workspaces, by their ids. */
export async function readWorkspaces(): Promise<Workspace[]> {
  const { all } = await callPages<Workspace>('workspace.list', 'workspaces');
  return all;
}

/** One of them, or null if it is closed. */
export async function readWorkspace(workspaceId: string | null): Promise<Workspace | null> {
  const { workspaces } = await call<{ workspaces: Workspace[] }>('workspace.list', { workspaceId });
  return workspaces.find((one) => one.workspaceId === workspaceId) ?? null;
}
