// Processes of a workspace, live.

import { html, type TemplateResult } from 'lit';
import { FollowingPage } from '../following.js';
import { bytes, counted } from '../parts/figures.js';
import { oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { processReducer, type ProcessesState } from '../store.js';
import { Feed } from '../stream.js';
import { studio } from '../studio.js';
import type { Process, ProcessChange } from '../types.js';

/** More are not shown; the filter finds the others. */
const ROWS_MAX = 200;

class ProcessesPage extends FollowingPage<ProcessesState, ProcessChange> {
  #containing = '';

  protected heading(): string {
    return 'Processes';
  }

  protected begin(): Feed<ProcessesState, ProcessChange> {
    return new Feed('process.watch', studio.of({ memory: true }), processReducer);
  }

  protected content(): TemplateResult {
    const feed = this.feed;
    const all = Object.values(feed?.state.processes ?? {});
    const text = this.#containing.toLowerCase();
    const has = (process: Process): boolean =>
      [process.name, process.instanceKey, process.taskId, process.role, process.state].some((part) => part?.toLowerCase().includes(text));
    const found = text === '' ? all : all.filter(has);
    found.sort((a, b) => a.role.localeCompare(b.role) || (a.instanceKey ?? a.name).localeCompare(b.instanceKey ?? b.name));
    const narrow = (event: InputEvent): void => {
      this.#containing = (event.target as HTMLInputElement).value.trim();
      this.requestUpdate();
    };
    return html`${feed?.standing === 'lost' && feed.failure !== null ? view.failureView(feed.failure) : ''}
      <p class="field search"><label for="search">Filter by name, kind or state</label>
        <input id="search" type="search" data-search autocomplete="off" @input=${narrow}>
        <span class="faint">${counted(found.length, 'process', 'processes')}${found.length > ROWS_MAX ? `, ${ROWS_MAX} shown` : ''}</span></p>
      ${view.tableView(
        'Processes',
        ['Kind', 'Name', 'Conversation or task', 'State', 'Memory', 'Waiting', 'Crashes', 'Detail', 'Restart command'],
        found.slice(0, ROWS_MAX).map((process) => this.#row(process)),
      )}`;
  }

  #row(process: Process): unknown[] {
    const { role, name, instanceKey, taskId, state, readiness } = process;
    const waits = [
      ...(process.waitingFor ?? []).map((key) => `waits for ${key}`),
      ...(process.approvals ?? []).map((id) => `approval ${id}`),
      ...(process.questions ?? []).map((id) => `question ${id}`),
      ...(process.consents ?? []).map((app) => `login ${app}`),
    ];
    return [
      oneLine(role),
      html`<span class="name">${oneLine(name)}</span>`,
      instanceKey !== undefined ? view.conversationLink(instanceKey) : oneLine(taskId ?? ''),
      html`${view.standingView(state)} ${readiness === undefined ? '' : view.standingView(readiness)}`,
      process.memoryBytes === undefined ? '' : html`<span class="number">${bytes(process.memoryBytes)}</span>`,
      process.pendingEvents === 0 ? '' : counted(process.pendingEvents, 'event'),
      process.consecutiveCrashes === 0 ? '' : process.consecutiveCrashes,
      oneLine([process.detail ?? '', ...waits].filter((part) => part !== '').join('; ')),
      instanceKey === undefined ? '' : view.commandView('gdn', 'conversation', 'restart', instanceKey),
    ];
  }
}

customElements.define('gdn-processes', ProcessesPage);
