// The inbox: everything that needs a person, in all workspaces. Read by the frame for its count, and by its page.

import { type ApiError, asApiError } from './api.js';
import { itemsOf, type Item, type Needs, readNeeds } from './needs.js';
import { studio } from './studio.js';

/** Other workspaces have no stream here: they are read again after this time. */
const OTHERS_MS = 15_000;
/** More workspaces are not read. */
const WORKSPACES_MAX = 50;

/** What the browser remembers of notifications. */
const WANTED = 'goondan.notifications';

/** The one inbox of a tab. */
class Inbox {
  readonly #needs = new Map<string, Needs>();
  readonly #listeners = new Set<(arrived: Item[]) => void>();
  #known: Set<string> | null = null;
  #readMs = 0;
  failures: ApiError[] = [];

  /** All items, the oldest first. */
  get items(): Item[] {
    return [...this.#needs.values()].flatMap(itemsOf).sort((one, other) => (one.at < other.at ? -1 : one.at > other.at ? 1 : 0));
  }

  get count(): number {
    return this.#needs.size === 0 ? 0 : this.items.length;
  }

  /** True if other workspaces were not read for a while. */
  get isOld(): boolean {
    return performance.now() - this.#readMs > OTHERS_MS;
  }

  /** Calls back after each reading, with the items that are new; what is returned ends that. */
  listen(listener: (arrived: Item[]) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Reads one workspace, or all. */
  async read(only: string | null): Promise<void> {
    const all = studio.workspaces.map(({ workspaceId }) => workspaceId).slice(0, WORKSPACES_MAX);
    if (studio.workspaceId !== null && !all.includes(studio.workspaceId)) all.push(studio.workspaceId);
    if (only === null) this.#readMs = performance.now();
    const failures: ApiError[] = [];
    for (const workspaceId of only === null ? all : [only]) {
      try {
        const needs = await readNeeds(workspaceId);
        this.#needs.set(workspaceId, needs);
        failures.push(...needs.failures);
      } catch (thrown) {
        failures.push(asApiError(thrown));
      }
    }
    for (const workspaceId of this.#needs.keys()) if (!all.includes(workspaceId)) this.#needs.delete(workspaceId);
    this.failures = failures;
    this.#tell();
  }

  #tell(): void {
    const { items } = this;
    const known = this.#known;
    const arrived = known === null ? [] : items.filter(({ key }) => !known.has(key));
    this.#known = new Set(items.map(({ key }) => key));
    if (arrived.length > 0) notify(arrived);
    for (const listener of [...this.#listeners]) listener(arrived);
  }
}

/** The one of this tab. */
export const inbox = new Inbox();

/** Whether the person wants to be notified by the browser: `default` until asked. */
export function notifications(): 'on' | 'off' | 'denied' {
  if (!('Notification' in window) || Notification.permission === 'denied') return 'denied';
  return Notification.permission === 'granted' && localStorage.getItem(WANTED) === 'on' ? 'on' : 'off';
}

/** Turns notifications on, with the browser's permission, or off. */
export async function toggleNotifications(): Promise<void> {
  if (notifications() === 'on') return localStorage.setItem(WANTED, 'off');
  if ((await Notification.requestPermission()) === 'granted') localStorage.setItem(WANTED, 'on');
}

/** Notifies a person who does not see the page. Tabs of the same browser replace each other's notification. */
function notify(items: Item[]): void {
  if (!document.hidden || notifications() !== 'on') return;
  const [first] = items;
  if (first === undefined) return;
  const title = items.length === 1 ? first.title : `${items.length} decisions are pending`;
  const shown = new Notification(title, { body: first.workspace, tag: `goondan ${first.key}` });
  shown.onclick = () => {
    window.focus();
    location.hash = studio.href('needs', '', { item: first.id });
  };
}
