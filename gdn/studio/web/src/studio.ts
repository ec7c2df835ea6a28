// State shared by all pages of a tab: workspaces, the current workspace, its stream, and announcements.

import { addressOf, routeOf } from './router.js';
import { session } from './session.js';
import { workspaceReducer, type WorkspaceState } from './store.js';
import { Feed } from './stream.js';
import type { Workspace, WorkspaceChange } from './types.js';
import { readWorkspaces } from './workspaces.js';

/** Called with what happened, and without anything when all may be different. */
export type Listener = (change: WorkspaceChange | null) => void;

const KEPT = 'goondan.workspace';

/** The state that all pages of this tab share. */
class Studio {
  workspaces: Workspace[] = [];
  workspaceId: string | null = null;
  feed: Feed<WorkspaceState, WorkspaceChange> | null = null;
  /** Says something to people who do not see the page. */
  announce: (text: string) => void = () => undefined;
  readonly #listeners = new Set<Listener>();
  #standing = '';

  /** Whether this session may change anything. */
  get write(): boolean {
    return session.current?.write === true;
  }

  /** The shown workspace, as it was told last. */
  get workspace(): Workspace | null {
    const listed = this.workspaces.find((one) => one.workspaceId === this.workspaceId);
    return listed ?? this.feed?.state.workspace ?? null;
  }

  /** Reads which workspaces there are, and shows the one of the address, the one of before, or the first. */
  async readWorkspaces(): Promise<void> {
    this.workspaces = await readWorkspaces();
    const ids = this.workspaces.map((one) => one.workspaceId);
    const asked = routeOf(location.hash).query.get('w') ?? sessionStorage.getItem(KEPT) ?? this.#ofCaller();
    this.select(asked !== null && (ids.includes(asked) || ids.length === 0) ? asked : (ids[0] ?? null));
  }

  /** The workspace in whose project Studio was started. */
  #ofCaller(): string | null {
    const { workspaceId, projectRoot } = session.current ?? {};
    const found = this.workspaces.find((one) => one.workspaceId === workspaceId || one.projectRoot === projectRoot);
    return found?.workspaceId ?? null;
  }

  /** Reads again which workspaces there are; those of before stay if it cannot be read. */
  async lookAgain(): Promise<void> {
    const workspaces = await readWorkspaces().catch(() => null);
    if (workspaces === null) return;
    this.workspaces = workspaces;
    if (this.workspaceId === null && workspaces[0] !== undefined) this.select(workspaces[0].workspaceId);
    this.#tell({ cursor: '', at: '' });
  }

  /** Shows another workspace. */
  select(workspaceId: string | null): void {
    if (workspaceId === this.workspaceId) return;
    this.feed?.close();
    this.feed = null;
    this.workspaceId = workspaceId;
    if (workspaceId !== null) {
      sessionStorage.setItem(KEPT, workspaceId);
      this.feed = new Feed('workspace.watch', { workspaceId }, workspaceReducer);
      this.feed.onChange = (change) => this.#tell(change);
    }
    this.#tell(null);
  }

  /** Listens to what happens in the workspace; what is returned ends it. */
  listen(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The address of a page of this workspace. */
  href(page: string, arg = '', more: Record<string, string> = {}): string {
    return addressOf(this.workspaceId, page, arg, more);
  }

  /** Parameters that name the workspace. */
  of(more: Record<string, unknown> = {}): Record<string, unknown> {
    return { workspaceId: this.workspaceId, ...more };
  }

  #tell(change: WorkspaceChange | null): void {
    const standing = this.feed?.standing ?? '';
    const isAnew = standing !== this.#standing;
    this.#standing = standing;
    if (isAnew && standing !== 'connecting' && this.workspaceId !== null) void this.lookAgain();
    if (isAnew && standing === 'lost') this.announce('Cannot reach the daemon. Studio keeps retrying.');
    for (const listener of [...this.#listeners]) listener(change);
  }
}

/** The one of this tab. */
export const studio = new Studio();
