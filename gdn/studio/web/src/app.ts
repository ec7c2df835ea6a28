// Frame of all pages: navigation, workspace, connection state, and announcements for screen readers.

import { html, LitElement, nothing, type TemplateResult } from 'lit';
import { keyed } from 'lit/directives/keyed.js';
import { type ApiError, asApiError } from './api.js';
import { inbox, notifications } from './inbox.js';
import { isEvent } from './page.js';
import { NAVIGATION, pageView } from './pages.js';
import { ask, dialogsAbout } from './parts/dialog.js';
import { openPalette } from './parts/palette.js';
import { loadRich } from './parts/loader.js';
import { oneLine } from './parts/text.js';
import { failureView, standingView } from './parts/views.js';
import { type Route, routeOf } from './router.js';
import { session } from './session.js';
import { studio } from './studio.js';
import type { WorkspaceChange } from './types.js';

const NEEDS_SETTLE_MS = 300;
/** Other workspaces are counted again after this time. */
const OTHERS_MS = 15_000;

/** Announcements for screen readers, by event type. */
const SAID: Record<string, string> = {
  'approval.asked': 'A tool call waits for a person.',
  'question.asked': 'A question waits for a person.',
  'event.parked': 'An event was parked.',
  'call.unknown': 'A tool call was interrupted: check its effect.',
  'proposal.created': 'A proposal was submitted.',
  'budget.warning': 'A budget is nearly exhausted.',
};

class Studio extends LitElement {
  #route: Route = routeOf(location.hash);
  #failure: ApiError | null = null;
  #needs = 0;
  #said = '';
  #isReady = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The workspace that is counted next; all if null. */
  #counts: string | null = null;
  /** The first key of a sequence such as G I. */
  #first = '';

  protected override createRenderRoot(): HTMLElement {
    return this;
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.textContent = '';
    studio.announce = (text) => this.#say(text);
    studio.listen((change) => this.#hear(change));
    session.onChange = () => void this.#sessionChanged();
    window.addEventListener('hashchange', () => this.#moved());
    window.addEventListener('keydown', (event) => this.#key(event));
    inbox.listen(() => this.#counted());
    dialogsAbout(() => this.#about());
    setInterval(() => {
      if (inbox.isOld) this.#countNeeds(null);
    }, OTHERS_MS);
    document.addEventListener('visibilitychange', () => this.#countNeeds(studio.workspaceId));
    void session.start();
  }

  async #sessionChanged(): Promise<void> {
    this.requestUpdate();
    if (session.current === null) {
      studio.select(null);
      this.#isReady = false;
      return;
    }
    await this.#readWorkspaces();
  }

  async #readWorkspaces(): Promise<void> {
    try {
      await studio.readWorkspaces();
      this.#failure = null;
      this.#isReady = true;
      this.#countNeeds(null);
      // Nothing that is shown first waits for them.
      setTimeout(loadRich, 0);
    } catch (thrown) {
      this.#failure = asApiError(thrown);
      if (session.current !== null) setTimeout(() => void this.#readWorkspaces(), 2000);
    }
    this.requestUpdate();
  }

  #hear(change: WorkspaceChange | null): void {
    const type = change?.event?.type;
    const said = type === undefined ? undefined : SAID[type];
    if (said !== undefined) this.#say(said);
    if (type === 'bundle.changed' && change?.event?.['what'] === 'waits') this.#say('A change of an agent’s configuration waits for a person.');
    const kinds = ['approval.', 'question.', 'call.', 'event.', 'proposal.', 'bundle.', 'task.', 'budget.', 'configuration.', 'workspace.'];
    const isWhole = change !== null && change.snapshot !== undefined;
    if (isWhole || isEvent(change, ...kinds)) this.#countNeeds(studio.workspaceId);
    this.requestUpdate();
  }

  /** Counts what needs a person, unless its own page does so already. Nobody sees a hidden page, but it can notify. */
  #countNeeds(workspaceId: string | null): void {
    if (this.#route.page === 'needs' || studio.workspaceId === null || (document.hidden && notifications() !== 'on')) return;
    // All is more than one.
    this.#counts = this.#timer !== undefined && this.#counts === null ? null : workspaceId;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void inbox.read(this.#counts);
    }, NEEDS_SETTLE_MS);
  }

  #counted(): void {
    this.#needs = inbox.count;
    document.title = document.title.replace(/^(\(\d+\) )?/, this.#needs === 0 ? '' : `(${this.#needs}) `);
    this.requestUpdate();
  }

  /** The page and the workspace, for dialogs. */
  #about(): string {
    const { workspace } = studio;
    const title = this.querySelector('h1')?.textContent?.trim() ?? '';
    return oneLine([title, workspace?.package ?? workspace?.projectRoot ?? ''].filter((part) => part !== '').join(' · '));
  }

  #say(text: string): void {
    this.#said = text;
    this.requestUpdate();
  }

  #moved(): void {
    const route = routeOf(location.hash);
    this.#route = route;
    const asked = route.query.get('w');
    if (asked !== null && session.current !== null) studio.select(asked);
    this.requestUpdate();
    window.scrollTo(0, 0);
    void this.updateComplete.then(() => requestAnimationFrame(() => this.querySelector('h1')?.focus({ preventScroll: true })));
  }

  #key(event: KeyboardEvent): void {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k' && session.current !== null) {
      event.preventDefault();
      openPalette(NAVIGATION);
      return;
    }
    const isTyping = (event.target as HTMLElement).matches('input, textarea, select, dialog *');
    if (isTyping || event.ctrlKey || event.altKey || event.metaKey || session.current === null) return;
    const first = this.#first;
    this.#first = event.key === 'g' ? 'g' : '';
    const page = first === 'g' ? NAVIGATION.find(({ key }) => key === event.key) : undefined;
    if (page !== undefined) location.hash = studio.href(page.page);
    else if (event.key === '?') void this.#help();
    else if (event.key !== '/' || !this.#focusSearch()) return;
    event.preventDefault();
  }

  #focusSearch(): boolean {
    const search = this.querySelector<HTMLElement>('main [data-search]');
    search?.focus();
    return search !== null;
  }

  #help(): Promise<unknown> {
    const row = (keys: string, what: string): TemplateResult => html`<div><dt><kbd>${keys}</kbd></dt><dd>${what}</dd></div>`;
    return ask({
      title: 'Keys',
      confirm: 'Close',
      body: html`<dl>${row('Ctrl-K', 'Command palette')}${row('/', 'Search field of the page')}${row('J, K', 'Next, previous item of the inbox')}
        ${row('A, D', 'First, second button of the item: approve, deny')}${row('S, O', 'Show its patch, open it')}
        ${NAVIGATION.map(({ key, title }) => (key === undefined ? nothing : row(`G ${key.toUpperCase()}`, title)))}</dl>`,
    });
  }

  protected override render(): TemplateResult {
    if (session.locked !== null) return this.#locked();
    if (session.current === null) return beforeLogin();
    const route = this.#route;
    return html`
      <a class="skip" href="#main" @click=${(event: Event) => this.#skip(event)}>Skip to the page</a>
      <header class="top">
        <a class="brand" href=${studio.href('needs')}>goondan <b>Studio</b></a>
        ${this.#workspaces()}
        <button type="button" class="find" aria-keyshortcuts="Control+K" @click=${() => openPalette(NAVIGATION)}>Search or run… <kbd>Ctrl K</kbd></button>
        ${this.#standing()}
      </header>
      <div class="frame">
        <nav aria-label="Pages">
          <ul>
            ${NAVIGATION.map(
              ({ page, title }) => html`<li><a href=${studio.href(page)} aria-current=${isAt(route, page) ? 'page' : nothing}>
                ${title}${page === 'needs' && this.#needs > 0
                  ? html` <span class="count">${this.#needs}<span class="hidden"> waiting</span></span>`
                  : nothing}
              </a></li>`,
            )}
          </ul>
        </nav>
        <main id="main" tabindex="-1">${this.#page(route)}</main>
      </div>
      <div class="hidden" role="status" aria-live="polite">${this.#said}</div>
    `;
  }

  #page(route: Route): TemplateResult {
    if (this.#failure !== null && !this.#isReady) {
      return html`<h1 tabindex="-1">Not connected</h1>${failureView(this.#failure)}<p>Studio keeps retrying.</p>`;
    }
    if (!this.#isReady) return html`<h1 tabindex="-1">goondan Studio</h1><p class="faint">Reading…</p>`;
    if (studio.workspaceId === null) {
      return html`<h1 tabindex="-1">No workspace</h1><p>No project is running. In the directory of a project, run:
        <code class="command">gdn run</code></p>
        <p><button type="button" @click=${() => void this.#readWorkspaces()}>Refresh</button></p>`;
    }
    // Another place within the same item is another page: it is looked for when the page begins.
    const query = [...route.query].filter(([name]) => name !== 'w');
    return html`${keyed(JSON.stringify([studio.workspaceId, route.page, route.arg, query]), pageView(route))}`;
  }

  #locked(): TemplateResult {
    const { message, suggestion } = session.locked!;
    document.title = 'Logged out · goondan Studio';
    return html`<main class="locked" id="main"><h1>goondan Studio</h1>
      <p role="alert">${oneLine(message)}</p><p>Next step: ${oneLine(suggestion)}</p>
      <p><code class="command">gdn studio</code></p></main>`;
  }

  #workspaces(): TemplateResult | typeof nothing {
    const { workspaces, workspaceId } = studio;
    if (workspaces.length === 0) return nothing;
    const choose = (event: Event): void => {
      const chosen = (event.target as HTMLSelectElement).value;
      studio.select(chosen);
      location.hash = studio.href(this.#route.page);
    };
    const isGone = workspaceId !== null && !workspaces.some((one) => one.workspaceId === workspaceId);
    return html`<label class="workspace"><span>Workspace</span>
      <select @change=${choose} @focus=${() => void studio.lookAgain()}>
        ${isGone ? html`<option value=${workspaceId} selected>${oneLine(workspaceId)} (closed)</option>` : nothing}
        ${workspaces.map(
          (one) => html`<option value=${one.workspaceId} ?selected=${one.workspaceId === workspaceId}>
            ${oneLine(one.package ?? one.projectRoot)}
          </option>`,
        )}
      </select></label>`;
  }

  #standing(): TemplateResult {
    const { feed } = studio;
    const words = { connecting: 'connecting', live: 'live', lost: 'not connected' };
    const standing = feed?.standing ?? 'connecting';
    return html`<span class="side" title=${feed?.failure?.message ?? ''} data-standing=${standing}>
      ${standingView(standing === 'live' ? 'live' : standing === 'lost' ? 'lost' : 'connecting')}
      ${standing === 'lost' ? html`<span class="hidden">${words[standing]}</span>` : nothing}
      ${studio.write ? nothing : html`<span class="standing" title="Start gdn studio with --write to allow changes">read-only</span>`}</span>`;
  }

  #skip(event: Event): void {
    event.preventDefault();
    this.querySelector<HTMLElement>('#main')?.focus();
  }
}

/** Also in `index.html`, until this program runs. */
function beforeLogin(): TemplateResult {
  return html`<header class="top"><span class="brand">goondan <b>Studio</b></span></header>
    <main class="locked"><h1>goondan Studio</h1><p>Logging in…</p></main>`;
}

/** Whether a route is of the part that a page of the navigation begins. */
function isAt(route: Route, page: string): boolean {
  return route.page === page || (page === 'conversations' && route.page === 'conversation');
}

customElements.define('gdn-studio', Studio);
