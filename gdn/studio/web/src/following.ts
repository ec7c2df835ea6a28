// Pages with a stream of their own, which is followed while the page is visible.

import { Page } from './page.js';
import type { Feed } from './stream.js';
import type { WorkspaceChange } from './types.js';

/** A page whose stream is given back while nobody sees it: a browser has few connections for one server. */
export abstract class FollowingPage<State, Notice> extends Page {
  protected feed: Feed<State, Notice> | null = null;
  readonly #seen = (): void => this.#follow();

  /** Begins to follow. */
  protected abstract begin(): Feed<State, Notice>;

  /** Something was told. */
  protected told(_notice: Notice | null): void {
    this.requestUpdate();
  }

  protected override concerns(_change: WorkspaceChange | null): boolean {
    return false;
  }

  protected async read(): Promise<void> {
    // The stream contains all data.
  }

  override connectedCallback(): void {
    super.connectedCallback();
    document.addEventListener('visibilitychange', this.#seen);
    this.#follow();
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    document.removeEventListener('visibilitychange', this.#seen);
    this.#follow();
  }

  #follow(): void {
    this.feed?.close();
    this.feed = null;
    if (document.hidden || !this.isConnected) return;
    this.feed = this.begin();
    this.feed.onChange = (notice) => this.told(notice);
  }
}
