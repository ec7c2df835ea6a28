// List of pages.

import { html, type TemplateResult } from 'lit';
import './pages/agents.js';
import './pages/audit.js';
import './pages/bundles.js';
import './pages/configuration.js';
import './pages/conversation.js';
import './pages/conversations.js';
import './pages/logs.js';
import './pages/needs.js';
import './pages/processes.js';
import './pages/proposals.js';
import './pages/task.js';
import './pages/tasks.js';
import './pages/trace.js';
import './pages/usage.js';
import type { Route } from './router.js';

/** The pages in the order in which they are offered. */
export const NAVIGATION: { page: string; title: string }[] = [
  { page: 'needs', title: 'Needs a person' },
  { page: 'conversations', title: 'Conversations' },
  { page: 'processes', title: 'Processes' },
  { page: 'trace', title: 'Trace' },
  { page: 'tasks', title: 'Tasks' },
  { page: 'proposals', title: 'Proposals' },
  { page: 'usage', title: 'Usage' },
  { page: 'logs', title: 'Logs' },
  { page: 'audit', title: 'Audit' },
  { page: 'configuration', title: 'Configuration' },
  { page: 'bundles', title: 'Bundles' },
  { page: 'agents', title: 'Agents' },
];

/** The page of a route. */
export function pageView(route: Route): TemplateResult {
  switch (route.page) {
    case 'needs':
      return html`<gdn-needs .route=${route}></gdn-needs>`;
    case 'conversations':
      return html`<gdn-conversations .route=${route}></gdn-conversations>`;
    case 'conversation':
      return html`<gdn-conversation .route=${route}></gdn-conversation>`;
    case 'processes':
      return html`<gdn-processes .route=${route}></gdn-processes>`;
    case 'trace':
      return html`<gdn-trace .route=${route}></gdn-trace>`;
    case 'tasks':
      return route.arg === '' ? html`<gdn-tasks .route=${route}></gdn-tasks>` : html`<gdn-task .route=${route}></gdn-task>`;
    case 'proposals':
      return html`<gdn-proposals .route=${route}></gdn-proposals>`;
    case 'usage':
      return html`<gdn-usage .route=${route}></gdn-usage>`;
    case 'logs':
      return html`<gdn-logs .route=${route}></gdn-logs>`;
    case 'audit':
      return html`<gdn-audit .route=${route}></gdn-audit>`;
    case 'configuration':
      return html`<gdn-configuration .route=${route}></gdn-configuration>`;
    case 'bundles':
      return html`<gdn-bundles .route=${route}></gdn-bundles>`;
    case 'agents':
      return html`<gdn-agents .route=${route}></gdn-agents>`;
    default:
      return html`<h1 tabindex="-1">No such page</h1><p>Choose one of the pages.</p>`;
  }
}
