// Schedules in a table, with what a person may do: the same on the page of a conversation and on that of all.

import { html, nothing, type TemplateResult } from 'lit';
import { call } from '../api.js';
import type { Decider } from '../decisions.js';
import { byNext, fieldTime, timesText, typedTime } from '../schedules.js';
import { studio } from '../studio.js';
import type { Schedule } from '../types.js';
import { ask, fieldText } from './dialog.js';
import { timeOf } from './figures.js';
import { head, oneLine } from './text.js';
import * as view from './views.js';

/** Rows of the table; `gdn event schedule list` prints all. */
const ROWS_MAX = 100;

/** The schedules, the next one due first; `isOfMany` names the conversation of each. */
export function schedulesView(schedules: Schedule[], isOfMany: boolean, decider: Decider): TemplateResult {
  const rows = byNext(schedules).slice(0, ROWS_MAX).map((schedule) => [
    ...(isOfMany ? [view.conversationLink(schedule.instanceKey, schedule.workspaceId)] : []),
    html`${head(schedule.input, 120)}${schedule.problem === undefined
      ? nothing
      : html`<p class="warn">It waits: ${oneLine(schedule.problem)}</p>`}`,
    schedule.next === undefined ? 'none left' : view.timeView(schedule.next),
    oneLine(timesText(schedule.time)),
    html`${schedule.byPerson === true ? 'a person' : oneLine(schedule.agentName)}, ${view.agoView(schedule.createdAt)}`,
    actions(schedule, decider),
  ]);
  const heads = [...(isOfMany ? ['Conversation'] : []), 'Message', 'Due', 'Times', 'Created by', 'Action'];
  return html`${view.tableView('Schedules', heads, rows)}
    ${schedules.length <= ROWS_MAX
      ? nothing
      : html`<p class="faint">${schedules.length - ROWS_MAX} later ones: ${view.commandView('gdn', 'event', 'schedule', 'list')}</p>`}`;
}

function actions(schedule: Schedule, decider: Decider): TemplateResult {
  const { scheduleId, time } = schedule;
  // A recurring schedule has no single time.
  const isMovable = time.kind === 'once';
  if (!studio.write) {
    return html`${isMovable ? view.commandView('gdn', 'event', 'schedule', 'move', scheduleId, '--at', 'TIME') : nothing}
      ${view.commandView('gdn', 'event', 'schedule', 'remove', scheduleId)}`;
  }
  const button = (label: string, tone: string, act: (of: Schedule, by: Decider) => Promise<void>): TemplateResult =>
    html`<button type="button" class=${tone} ?disabled=${decider.isBusy} aria-label=${`${label} ${oneLine(scheduleId)}`}
      @click=${() => void act(schedule, decider)}>${label}</button>`;
  return html`<span class="actions">${isMovable ? button('Move…', '', move) : nothing} ${button('Remove…', 'danger', remove)}</span>`;
}

/** The schedule that a dialog is about. */
function facts({ instanceKey, input, next, time }: Schedule): TemplateResult {
  return html`<p>In conversation ${view.nameView(instanceKey)}${next === undefined ? nothing : html`, due ${view.timeView(next)}`}
      (${oneLine(timesText(time))}):</p>
    <blockquote>${head(input, 200)}</blockquote>`;
}

async function move(schedule: Schedule, decider: Decider): Promise<void> {
  const { workspaceId, scheduleId, next } = schedule;
  const now = new Date();
  const answer = await ask({
    title: `Move ${oneLine(scheduleId)}`,
    body: html`${facts(schedule)}
      <p class="field"><label for="at">New time (${Intl.DateTimeFormat().resolvedOptions().timeZone})</label>
        <input id="at" name="at" type="datetime-local" required min=${fieldTime(now)}
          .value=${fieldTime(next === undefined ? now : new Date(next))}></p>`,
    confirm: 'Move',
  });
  const at = answer === null ? null : typedTime(fieldText(answer, 'at'));
  if (at === null) return;
  await decider.act('Moving', async () => {
    await call('schedule.move', { workspaceId, scheduleId, at });
    return `${oneLine(scheduleId)} is due ${timeOf(at)}.`;
  });
}

async function remove(schedule: Schedule, decider: Decider): Promise<void> {
  const { workspaceId, scheduleId } = schedule;
  const answer = await ask({
    title: `Remove ${oneLine(scheduleId)}`,
    body: html`${facts(schedule)}<p>It sends nothing more. The agent is not notified.</p>`,
    confirm: 'Remove',
    isDangerous: true,
  });
  if (answer === null) return;
  await decider.act('Removing', async () => {
    const removed = await call<{ schedule: Schedule }>('schedule.remove', { workspaceId, scheduleId });
    return `${oneLine(scheduleId)} was removed: ${head(removed.schedule.input, 80)}`;
  });
}
