// The address behind `#` selects page and workspace.

/** Where the page is. */
export interface Route {
  page: string;
  /** Id of the shown item, such as a conversation; empty for the list. */
  arg: string;
  query: URLSearchParams;
}

/** The page without an address. */
export const FIRST_PAGE = 'needs';

/** The route of an address such as `#/conversation/main?w=srv_bot`. */
export function routeOf(hash: string): Route {
  const [path = '', query = ''] = (hash.startsWith('#/') ? hash.slice(2) : '').split('?', 2);
  const [page = '', ...rest] = path.split('/');
  return { page: page === '' ? FIRST_PAGE : page, arg: rest.map(decoded).join('/'), query: new URLSearchParams(query) };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a page of a workspace. */
export function addressOf(workspaceId: string | null, page: string, arg = '', more: Record<string, string> = {}): string {
  const query = new URLSearchParams(more);
  if (workspaceId !== null) query.set('w', workspaceId);
  const path = arg === '' ? page : `${page}/${encodeURIComponent(arg)}`;
  const text = query.toString();
  return `#/${path}${text === '' ? '' : `?${text}`}`;
}
