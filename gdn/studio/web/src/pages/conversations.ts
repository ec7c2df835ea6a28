// Conversations of a workspace in one list; the document contains only visible rows. Above it, their schedules, if any.

import { html, nothing, type TemplateResult } from 'lit';
import { call, callPages } from '../api.js';
import { EMPTY_LIST, type InstancePage, type ListState, withHead, without, withPage } from '../conversations.js';
import { isEvent, Page } from '../page.js';
import { count, counted } from '../parts/figures.js';
import '../parts/list.js';
import { schedulesView } from '../parts/schedules.js';
import { oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { studio } from '../studio.js';
import type { Schedule, WorkspaceChange } from '../types.js';

/** The first page is small, so that it is shown soon; it is also what is read again when something happened. */
const HEAD_ROWS = 100;
const PAGE_ROWS = 1000;
/** How long typing has to pause before the list is narrowed. */
const TYPING_MS = 150;

class ConversationsPage extends Page {
  #list: ListState = EMPTY_LIST;
  #containing = '';
  #isReadingOn = false;
  #end = 0;
  #generation = 0;
  #typing: ReturnType<typeof setTimeout> | undefined;
  #schedules: Schedule[] = [];
  /** Turns do not change the schedules, and are frequent. */
  #areSchedulesRead = false;

  protected heading(): string {
    return 'Conversations';
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    const event = change?.event;
    if (event?.type === 'instance.deleted' && event.instanceKey !== undefined) {
      this.#list = without(this.#list, event.instanceKey);
    }
    const areOthers = super.concerns(change) || isEvent(change, 'schedule.', 'instance.deleted', 'configuration.');
    if (areOthers) this.#areSchedulesRead = false;
    return areOthers || isEvent(change, 'instance.', 'turn.committed');
  }

  #page(limit: number, after: ListState['next']): Promise<InstancePage> {
    const narrowed = this.#containing === '' ? {} : { containing: this.#containing };
    const from = after === null ? {} : { after };
    return call('instance.list', studio.of({ order: 'changed', limit, ...narrowed, ...from }));
  }

  protected async read(): Promise<void> {
    const generation = this.#generation;
    const [head] = await Promise.all([this.#page(HEAD_ROWS, null), this.#readSchedules()]);
    if (generation === this.#generation) this.#list = withHead(this.#list, head);
    void this.#readOn();
  }

  async #readSchedules(): Promise<void> {
    if (this.#areSchedulesRead) return;
    this.#areSchedulesRead = true;
    try {
      this.#schedules = (await callPages<Schedule>('schedule.list', 'schedules', studio.of())).all;
    } catch (thrown) {
      this.#areSchedulesRead = false;
      throw thrown;
    }
  }

  #schedulesView(): TemplateResult | typeof nothing {
    if (this.#schedules.length === 0) return nothing;
    const act = (what: string, action: () => Promise<string | void>): Promise<boolean> => {
      this.#areSchedulesRead = false;
      return this.act(what, action);
    };
    return html`<details><summary>Schedules (${count(this.#schedules.length)})</summary>
      ${schedulesView(this.#schedules, true, { isBusy: this.isBusy, act })}</details>`;
  }

  /** Reads pages until the rows that are seen are known. */
  async #readOn(): Promise<void> {
    if (this.#isReadingOn) return;
    this.#isReadingOn = true;
    const generation = this.#generation;
    try {
      while (this.#list.next !== null && this.#list.instances.length < this.#end && generation === this.#generation) {
        const page = await this.#page(PAGE_ROWS, this.#list.next);
        if (generation !== this.#generation) break;
        this.#list = withPage(this.#list, page);
        this.requestUpdate();
      }
    } catch {
      // The next load of the first page reports the failure.
      this.readSoon(1000);
    } finally {
      this.#isReadingOn = false;
    }
    if (generation !== this.#generation) void this.#readOn();
  }

  #narrow(event: InputEvent): void {
    const text = (event.target as HTMLInputElement).value.trim();
    clearTimeout(this.#typing);
    this.#typing = setTimeout(() => {
      this.#containing = text;
      this.#generation += 1;
      this.#list = EMPTY_LIST;
      void this.reload().then(() => studio.announce(counted(this.#list.total, 'conversation')));
    }, TYPING_MS);
  }

  protected content(): TemplateResult {
    const { total } = this.#list;
    return html`<p class="field search">
        <label for="search">Filter by key or agent</label>
        <input id="search" type="search" data-search autocomplete="off" @input=${(event: InputEvent) => this.#narrow(event)}>
        <span class="faint">${count(total)} ${total === 1 ? 'conversation' : 'conversations'}</span>
      </p>
      ${this.#schedulesView()}
      ${total === 0
        ? html`<p>No conversations${this.#containing === '' ? '' : ' match the filter'}.</p>`
        : html`<gdn-list
            .label=${'Conversations, latest first'}
            .total=${total}
            .row=${(index: number) => this.#row(index)}
            .onWindow=${(_first: number, end: number) => {
              this.#end = end;
              void this.#readOn();
            }}
            .onChoose=${(index: number) => this.#open(index)}
            .version=${this.#list}
          ></gdn-list>`}`;
  }

  override updated(): void {
    // The list does not know what its rows are made of.
    this.querySelector<HTMLElement & { requestUpdate(): void }>('gdn-list')?.requestUpdate();
  }

  #row(index: number): TemplateResult | null {
    const instance = this.#list.instances[index];
    if (instance === undefined) return null;
    const turn = studio.feed?.state.turns[instance.instanceKey];
    const standing = turn === undefined ? instance.status : 'processing';
    return html`<span class="row-main"><span class="name">${oneLine(instance.instanceKey)}</span>
        <span class="faint">${oneLine(instance.agentName)}</span></span>
      <span class="row-side">${standing === 'idle' ? nothing : view.standingView(standing)} ${view.agoView(instance.updatedAt)}</span>`;
  }

  #open(index: number): void {
    const instance = this.#list.instances[index];
    if (instance !== undefined) location.hash = studio.href('conversation', instance.instanceKey);
  }
}

customElements.define('gdn-conversations', ConversationsPage);
