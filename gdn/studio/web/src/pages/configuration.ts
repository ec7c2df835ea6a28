// Configuration: the facts of the workspace and of the daemon.

import { html, nothing, type TemplateResult } from 'lit';
import { call } from '../api.js';
import { isEvent, Page } from '../page.js';
import { counted } from '../parts/figures.js';
import { harmless, oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { session } from '../session.js';
import { studio } from '../studio.js';
import type { Workspace, WorkspaceChange } from '../types.js';
import { readWorkspace } from '../workspaces.js';

interface Status {
  version: { goondan: string };
  pid: number;
  startedAt: string;
  stateRoot: string;
  logDir?: string;
  openFiles?: { open: number; limit: number };
  stopping: boolean;
}

class ConfigurationPage extends Page {
  #status: Status | null = null;
  #workspace: Workspace | null = null;

  protected heading(): string {
    return 'Configuration';
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    return super.concerns(change) || isEvent(change, 'configuration.', 'workspace.', 'process.readiness', 'bundle.');
  }

  protected async read(): Promise<void> {
    [this.#status, this.#workspace] = await Promise.all([call<Status>('daemon.status'), readWorkspace(studio.workspaceId)]);
  }

  protected content(): TemplateResult | typeof nothing {
    const status = this.#status;
    if (status === null) return nothing;
    const workspace = this.#workspace;
    return html`${workspace === null ? html`<p class="warn">The workspace is closed.</p>` : this.#workspaceView(workspace)}
      <h2>Daemon</h2>
      ${view.factsView([
        ['Version', oneLine(status.version.goondan)],
        ['Started', view.timeView(status.startedAt)],
        ['Process', status.pid],
        ['State root', name(status.stateRoot)],
        ['Logs', status.logDir === undefined ? 'on stdout' : name(status.logDir)],
        ['Open files', status.openFiles === undefined ? '' : `${status.openFiles.open} of ${status.openFiles.limit}`],
        ['Stopping', status.stopping ? 'yes' : ''],
        ['Studio', `${oneLine(session.current?.goondan ?? '')}, ${studio.write ? 'changes allowed' : 'read-only'}`],
      ])}`;
  }

  #workspaceView(workspace: Workspace): TemplateResult {
    const { problem, lastKnownGood, watch, watchedFiles = [], watchedFilesTotal = 0 } = workspace;
    return html`${problem === undefined
        ? nothing
        : html`<div class="failure"><p><strong>${harmless(problem.message)}</strong></p>
            ${problem.suggestion === undefined ? nothing : html`<p>Next step: ${harmless(problem.suggestion)}</p>`}</div>`}
      <p class="instead">To reload it, run: ${view.commandView('gdn', 'config', 'reload')}</p>
      ${view.factsView([
        ['Project', name(workspace.projectRoot)],
        ['Package', oneLine(workspace.package ?? 'none')],
        ['Workspace', name(workspace.workspaceId)],
        ['Entry agent', oneLine(workspace.entryAgent ?? '')],
        ['Agents', workspace.agents.map(oneLine).join(', ')],
        ['Agents for tasks', (workspace.taskAgents ?? []).map(oneLine).join(', ')],
        ['Connections', workspace.connections.map(oneLine).join(', ')],
        ['Digest', workspace.configDigest === undefined ? '' : name(workspace.configDigest)],
        ['Running since', view.timeView(workspace.configSince)],
        ['Last known good', lastKnownGood === true ? 'yes, because the configuration of the project is not valid' : ''],
        ['Watching for changes', oneLine(watch ?? 'off')],
        ['Watched files', watchedFilesTotal === 0 ? '' : counted(watchedFilesTotal, 'file')],
        ['Including', watchedFiles.map(oneLine).join(', ')],
        ['Environment files', (workspace.envFiles ?? []).map(oneLine).join(', ')],
      ])}
      ${workspace.unhealthy === undefined ? nothing : html`<h2>Unhealthy processes (${workspace.unhealthyTotal ?? 0})</h2>
        ${view.tableView('Unhealthy processes', ['Kind', 'Name', 'State', 'Detail'], workspace.unhealthy.map((one) => [
          oneLine(one.role), oneLine(one.name), view.standingView(one.readiness ?? one.state), oneLine(one.detail ?? ''),
        ]))}`}
      ${Object.entries(workspace.bundleProblems ?? {}).map(([key, why]) => html`<p class="warn">${view.conversationLink(key)}: ${oneLine(why)}</p>`)}
      ${(workspace.failedDrills ?? []).map(
        (id) => html`<p class="warn">The newest checkpoint of
          <a href=${studio.href('tasks', id)}>${oneLine(id)}</a> could not be restored.</p>`,
      )}`;
  }
}

function name(text: string): TemplateResult {
  return view.nameView(text);
}

customElements.define('gdn-configuration', ConfigurationPage);
