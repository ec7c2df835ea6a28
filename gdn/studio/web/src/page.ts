// Base of all pages: loads the data, reloads it after events, and shows failures.

import { html, LitElement, nothing, type TemplateResult } from 'lit';
import { ApiError, asApiError } from './api.js';
import { inbox } from './inbox.js';
import { onRich } from './parts/loader.js';
import { failureView } from './parts/views.js';
import type { Route } from './router.js';
import { studio } from './studio.js';
import type { WorkspaceChange } from './types.js';

/** Events that come in a row are one reason to read again. */
const SETTLE_MS = 80;

/** A page, rendered into the document itself so that one style sheet holds for all. */
export abstract class Page extends LitElement {
  route!: Route;
  /** Why the last reading failed. */
  protected failure: ApiError | null = null;
  /** Why the last action was refused: it stays until the next one. */
  #refusal: ApiError | null = null;
  protected isRead = false;
  /** What the last action came to, in words. */
  protected outcome = '';
  protected isBusy = false;
  #stop: () => void = () => undefined;
  #stopRich: () => void = () => undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #reading: Promise<void> | null = null;
  #again = false;
  readonly #seen = (): void => {
    if (!document.hidden && this.#isStale) this.readSoon();
  };
  #isStale = false;

  protected abstract heading(): string;
  protected abstract content(): TemplateResult | typeof nothing;
  /** Reads what is shown. */
  protected abstract read(): Promise<void>;

  /** Whether what happened is a reason to read again. Without a change, all may be different. */
  protected concerns(change: WorkspaceChange | null): boolean {
    return change === null || change.snapshot !== undefined;
  }

  protected override createRenderRoot(): HTMLElement {
    return this;
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.#stop = studio.listen((change) => {
      if (this.concerns(change)) this.readSoon();
      else this.requestUpdate();
    });
    document.addEventListener('visibilitychange', this.#seen);
    this.#stopRich = onRich(() => this.requestUpdate());
    void this.reload();
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.#stop();
    this.#stopRich();
    document.removeEventListener('visibilitychange', this.#seen);
    clearTimeout(this.#timer);
  }

  /** Reads again once what happens in a row has happened; a page that nobody sees, when it is seen. */
  protected readSoon(afterMs = SETTLE_MS): void {
    clearTimeout(this.#timer);
    this.#isStale = document.hidden;
    if (!this.#isStale) this.#timer = setTimeout(() => void this.reload(), afterMs);
  }

  /** Reads again; if that is under way, once more behind it. */
  async reload(): Promise<void> {
    if (this.#reading !== null) {
      this.#again = true;
      return this.#reading;
    }
    this.#reading = this.#readAll().finally(() => {
      this.#reading = null;
    });
    return this.#reading;
  }

  async #readAll(): Promise<void> {
    do {
      this.#again = false;
      try {
        await this.read();
        this.failure = null;
        this.isRead = true;
      } catch (thrown) {
        this.failure = asApiError(thrown);
      }
      if (this.isConnected) this.requestUpdate();
    } while (this.#again && this.isConnected);
  }

  /** Does something, then reads again: what is shown afterwards is what the daemon says. */
  protected async act(what: string, action: () => Promise<string | void>): Promise<boolean> {
    if (this.isBusy) return false;
    this.isBusy = true;
    this.outcome = '';
    this.#refusal = null;
    this.requestUpdate();
    let refused: ApiError | null = null;
    let outcome = `${what} failed.`;
    try {
      outcome = (await action()) ?? `${what}: done.`;
    } catch (thrown) {
      refused = asApiError(thrown);
    }
    await this.reload();
    this.isBusy = false;
    this.outcome = outcome;
    this.#refusal = refused;
    studio.announce(refused === null ? this.outcome : `${this.outcome} ${refused.message}`);
    this.requestUpdate();
    await this.updateComplete;
    if (document.activeElement === null || document.activeElement === document.body) this.focusTitle();
    return refused === null;
  }

  /** Moves the focus to the page's title. */
  focusTitle(): void {
    this.querySelector('h1')?.focus({ preventScroll: true });
  }

  protected override render(): TemplateResult {
    document.title = `${inbox.count === 0 ? '' : `(${inbox.count}) `}${this.heading()} · goondan Studio`;
    return html`
      <h1 tabindex="-1">${this.heading()}</h1>
      ${this.failure === null ? nothing : failureView(this.failure)}
      ${this.#refusal === null ? nothing : failureView(this.#refusal)}
      ${this.outcome === '' ? nothing : html`<p class="outcome">${this.outcome}</p>`}
      ${this.isRead || this.failure !== null ? this.content() : html`<p class="faint">Reading…</p>`}
    `;
  }
}

/** Whether a change is an event whose type begins with one of these. */
export function isEvent(change: WorkspaceChange | null, ...beginnings: string[]): boolean {
  const type = change?.event?.type;
  return type !== undefined && beginnings.some((beginning) => type.startsWith(beginning));
}
