// Tasks: all of a workspace.

import { html, type TemplateResult } from 'lit';
import { call } from '../api.js';
import { isEvent, Page } from '../page.js';
import { count, dollars } from '../parts/figures.js';
import { oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { studio } from '../studio.js';
import type { Task, WorkspaceChange } from '../types.js';

interface TaskPage {
  tasks: Task[];
  next?: { workspaceId: string; taskId: string };
}

const PAGES_MAX = 10;

class TasksPage extends Page {
  #tasks: Task[] = [];
  #hasMore = false;
  #isAll = false;

  protected heading(): string {
    return 'Tasks';
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    return super.concerns(change) || isEvent(change, 'task.');
  }

  protected async read(): Promise<void> {
    const tasks: Task[] = [];
    let after: TaskPage['next'];
    this.#hasMore = true;
    for (let page = 0; page < PAGES_MAX && this.#hasMore; page += 1) {
      const params = studio.of({ needsMe: false, all: this.#isAll, ...(after === undefined ? {} : { after }) });
      const told: TaskPage = await call('task.list', params);
      tasks.push(...told.tasks);
      after = told.next;
      this.#hasMore = after !== undefined;
    }
    this.#tasks = tasks;
  }

  protected content(): TemplateResult {
    const toggle = (event: Event): void => {
      this.#isAll = (event.target as HTMLInputElement).checked;
      void this.reload();
    };
    return html`<p><label><input type="checkbox" @change=${toggle}> Include finished tasks</label></p>
      ${view.tableView(
        'Tasks',
        ['Task', 'Status', 'Phase', 'Progress', 'Agent', 'Tokens', 'Cost', 'Changed'],
        this.#tasks.map((task) => task.damaged !== undefined && task.title === '' ? unread(task, task.damaged) : [
          html`<a href=${studio.href('tasks', task.taskId)}>${oneLine(task.title)}</a>`,
          standingOf(task),
          task.totalPhases === 0 ? '' : `${task.currentPhase} of ${task.totalPhases}`,
          `${task.progress} %`,
          oneLine(task.agent),
          html`<span class="number">${count(task.tokens)}</span>`,
          html`<span class="number">${dollars(task.cost)}</span>`,
          view.timeView(task.updatedAt),
        ]),
      )}
      ${this.#hasMore ? html`<p class="warn">There are more: ${view.commandView('gdn', 'task', 'list')}</p>` : ''}`;
  }
}

/** Status of a task, and the reason for waiting or the damage. */
function standingOf({ status, blockedBy, held, damaged }: Task): TemplateResult {
  if (damaged !== undefined) return view.damageView(damaged);
  if (held !== undefined) return html`${view.standingView(status)} held in the merge queue: ${oneLine(held)}`;
  return html`${view.standingView(status)} ${blockedBy === undefined ? '' : oneLine(blockedBy)}`;
}

/** A damaged task that was never read: only its id is known. */
function unread({ taskId }: Task, damaged: string): (TemplateResult | string)[] {
  const name = html`<a href=${studio.href('tasks', taskId)}>${oneLine(taskId)}</a>`;
  return [name, view.damageView(damaged), '', '', '', '', '', ''];
}

customElements.define('gdn-tasks', TasksPage);
