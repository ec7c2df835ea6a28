// Usage of models, and state of budgets.

import { html, type TemplateResult } from 'lit';
import { call } from '../api.js';
import { spentPart } from '../needs.js';
import { isEvent, Page } from '../page.js';
import { count, counted, dollars } from '../parts/figures.js';
import { oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { studio } from '../studio.js';
import type { Budget, Spending, UsageReport, WorkspaceChange } from '../types.js';

const BY = ['agent', 'instance', 'day', 'model', 'revision'];
/** More rows are told by the command. */
const ROWS_MAX = 200;
/** Replies come in a row; the sums are read again after a pause. */
const SETTLE_MS = 2000;

class UsagePage extends Page {
  #by = 'agent';
  #since = '';
  #report: UsageReport | null = null;

  protected heading(): string {
    return 'Usage';
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    if (isEvent(change, 'turn.committed', 'budget.')) this.readSoon(SETTLE_MS);
    return super.concerns(change);
  }

  protected async read(): Promise<void> {
    const since = this.#since === '' ? {} : { since: this.#since };
    this.#report = await call<UsageReport>('workspace.usage', studio.of({ by: this.#by, ...since, limit: ROWS_MAX }));
  }

  protected content(): TemplateResult {
    const report = this.#report;
    return html`<div class="filters">
        <p class="field"><label for="by">Group by</label><select id="by" @change=${(event: Event) => {
          this.#by = (event.target as HTMLSelectElement).value;
          void this.reload();
        }}>${BY.map((by) => html`<option value=${by} ?selected=${by === this.#by}>${by === 'instance' ? 'conversation' : by}</option>`)}</select></p>
        <p class="field"><label for="since">Since (UTC)</label><input id="since" type="date" @change=${(event: Event) => {
          this.#since = (event.target as HTMLInputElement).value;
          void this.reload();
        }}></p>
      </div>
      ${report === null ? '' : this.#reportView(report)}`;
  }

  #reportView(report: UsageReport): TemplateResult {
    const rows = report.rows.map((row) => [html`<span class="name">${oneLine(row.key)}</span>`, ...spendingCells(row.spending)]);
    const { unpriced = 0, unmetered = 0 } = report.total;
    return html`${view.tableView('Usage', [this.#by === 'instance' ? 'Conversation' : 'Key', 'Replies', 'In', 'Cached', 'Out', 'Cost'],
        rows.length === 0 ? [] : [...rows, [html`<strong>Total</strong>`, ...spendingCells(report.total)]])}
      ${report.leftOut > 0 ? html`<p class="faint">${counted(report.leftOut, 'row')} not shown: ${view.commandView('gdn', 'usage', '--by', this.#by)}</p>` : ''}
      ${unpriced > 0 ? html`<p class="faint">The cost of ${counted(unpriced, 'reply', 'replies')} is unknown.</p>` : ''}
      ${unmetered > 0 ? html`<p class="faint">The tokens of ${counted(unmetered, 'reply', 'replies')} are unknown.</p>` : ''}
      ${report.unreadable > 0 ? html`<p class="warn">${counted(report.unreadable, 'record')} cannot be read.</p>` : ''}
      <h2>Budgets</h2>
      ${view.tableView('Budgets', ['Owner', 'Period', 'Spent', 'Limit', 'Share'], report.budgets.map(budgetCells))}`;
  }
}

function spendingCells({ replies, usage, costMicroUsd }: Spending): TemplateResult[] {
  const figures = [replies, usage.inputTokens, usage.cacheReadTokens, usage.outputTokens].map(count);
  return [...figures, dollars(costMicroUsd)].map((figure) => html`<span class="number">${figure}</span>`);
}

function budgetCells(budget: Budget): unknown[] {
  const spent = ({ tokens, microUsd }: Budget['spent']): string =>
    [tokens === undefined ? '' : `${count(tokens)} tokens`, microUsd === undefined ? '' : dollars(microUsd)].filter((part) => part !== '').join(', ');
  return [
    `${oneLine(budget.scope)} ${oneLine(budget.instanceKey ?? budget.agentName ?? '')}`,
    oneLine(budget.period),
    spent(budget.spent),
    spent(budget.limit),
    `${Math.floor(spentPart(budget) * 100)} %`,
  ];
}

customElements.define('gdn-usage', UsagePage);
