// Audit: the end of the audit log, newest first.

import { html, type TemplateResult } from 'lit';
import { call } from '../api.js';
import { Page } from '../page.js';
import { counted } from '../parts/figures.js';
import { oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { studio } from '../studio.js';
import type { Json, WorkspaceChange } from '../types.js';

interface AuditPageTold {
  records: { workspaceId?: string; record: Record<string, Json> }[];
  /** Where the page before it ends, as it is handed back. */
  previous?: unknown;
  unreadable: number;
}

const RECORDS = 200;
const PAGES_MAX = 50;
/** Events come in a row; the log is read again after a pause. */
const SETTLE_MS = 1000;

class AuditPage extends Page {
  #told: AuditPageTold = { records: [], unreadable: 0 };
  #pages = 1;
  #containing = '';
  #isFilterRead = false;

  protected heading(): string {
    return 'Audit';
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    if (change?.event !== undefined) this.readSoon(SETTLE_MS);
    return super.concerns(change);
  }

  protected async read(): Promise<void> {
    const told: AuditPageTold = { records: [], unreadable: 0 };
    for (let page = 0; page < this.#pages; page += 1) {
      const before = told.previous === undefined ? {} : { before: told.previous };
      const earlier = await call<AuditPageTold>('workspace.audit', studio.of({ limit: RECORDS, ...before }));
      told.records.unshift(...earlier.records);
      told.unreadable += earlier.unreadable;
      told.previous = earlier.previous;
      if (told.previous === undefined) break;
    }
    this.#told = told;
  }

  protected content(): TemplateResult {
    if (!this.#isFilterRead) this.#containing = this.route.query.get('q') ?? '';
    this.#isFilterRead = true;
    const text = this.#containing.toLowerCase();
    const found = this.#told.records.filter(({ record }) => text === '' || JSON.stringify(record).toLowerCase().includes(text));
    const rows = [...found].reverse().map(({ record: { at, event, ...fields } }) => [
      view.timeView(String(at)),
      oneLine(String(event)),
      oneLine(Object.entries(fields).map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`).join(' ')),
    ]);
    const more = (): void => {
      this.#pages += 1;
      void this.reload();
    };
    return html`<p class="field search"><label for="search">Filter records by text</label>
        <input id="search" type="search" data-search autocomplete="off" .defaultValue=${this.#containing} @input=${(event: InputEvent) => {
          this.#containing = (event.target as HTMLInputElement).value.trim();
          this.requestUpdate();
        }}></p>
      ${this.#told.unreadable > 0 ? html`<p class="warn">${counted(this.#told.unreadable, 'line')} cannot be read.</p>` : ''}
      ${view.tableView('Records, newest first', ['When', 'What', 'Facts'], rows)}
      ${this.#told.previous !== undefined && this.#pages < PAGES_MAX ? html`<p><button type="button" @click=${more}>Earlier records</button></p>` : ''}`;
  }
}

customElements.define('gdn-audit', AuditPage);
