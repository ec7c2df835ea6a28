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
import './pages/search.js';
import './pages/task.js';
import './pages/tasks.js';
import './pages/trace.js';
import './pages/usage.js';
import type { Route } from './router.js';

/** The pages in the order in which they are offered. */
export const NAVIGATION: { page: string; title: string; key?: string }[] = [
  { page: 'needs', title: 'Needs a person', key: 'i' },
  { page: 'conversations', title: 'Conversations', key: 'c' },
  { page: 'processes', title: 'Processes', key: 'p' },
  { page: 'trace', title: 'Traces', key: 't' },
  { page: 'tasks', title: 'Tasks', key: 'k' },
  { page: 'proposals', title: 'Proposals', key: 'r' },
  { page: 'usage', title: 'Usage', key: 'u' },
  { page: 'logs', title: 'Logs', key: 'l' },
  { page: 'audit', title: 'Audit', key: 'y' },
  { page: 'configuration', title: 'Configuration' },
  { page: 'bundles', title: 'Bundles', key: 'b' },
  { page: 'agents', title: 'Agents', key: 'a' },
  { page: 'search', title: 'Search', key: 's' },
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
    case 'search':
      return html`<gdn-search .route=${route}></gdn-search>`;
    default:
      return html`<h1 tabindex="-1">No such page</h1><p>Choose one of the pages.</p>`;
  }
}
