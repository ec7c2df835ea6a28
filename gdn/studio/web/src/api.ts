// Requests to the server, which hands them on to the daemon.

import { session } from './session.js';
import type { RuntimeEvent } from './types.js';

/** A refusal: of the daemon, of Studio, or of the network. */
export class ApiError extends Error {
  readonly code: string;
  readonly suggestion: string | undefined;

  constructor(code: string, message: string, suggestion?: string) {
    super(message);
    this.code = code;
    this.suggestion = suggestion;
  }
}

/** An error as the server writes it. */
export interface WireError {
  code?: string;
  message: string;
  suggestion?: string;
}

/** The error of a wire. */
export function errorOf(wire: WireError | undefined, status = 0): ApiError {
  if (wire === undefined) return new ApiError('internal', `The server answered with status ${status}.`, 'try again');
  return new ApiError(wire.code ?? `http${status}`, wire.message, wire.suggestion);
}

/** Whatever was thrown, as an error with words for a person. */
export function asApiError(thrown: unknown): ApiError {
  if (thrown instanceof ApiError) return thrown;
  return new ApiError('internal', thrown instanceof Error ? thrown.message : String(thrown), 'reload the page');
}

/** Posts a request as the session. A 401 ends the session. */
export async function post(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  const current = session.current;
  if (current === null) throw new ApiError('unauthorized', 'This tab is not logged in.', 'run `gdn studio` again');
  let response: Response;
  try {
    response = await fetch(path, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${current.token}` },
      body: JSON.stringify(body),
      cache: 'no-store',
      ...(signal === undefined ? {} : { signal }),
    });
  } catch (thrown) {
    if (signal?.aborted) throw thrown;
    throw new ApiError('unreachable', 'Cannot reach Studio.', 'run `gdn studio` again if it has ended');
  }
  if (response.status === 401 && session.current === current) session.lock();
  return response;
}

/** Calls a method of the daemon. */
export async function call<T>(method: string, params: Record<string, unknown> = {}): Promise<T> {
  const response = await post('api/call', { method, params });
  const body = (await response.json().catch(() => ({}))) as { result?: T; error?: WireError };
  if (body.error !== undefined || !('result' in body)) throw errorOf(body.error, response.status);
  return body.result as T;
}

/** More pages of a list are not read: nobody looks through so many on a page. */
const PAGES_MAX = 20;

/** What is on the pages of a list. */
export interface Listed<T> {
  all: T[];
  /** Whether there are more than were read. */
  isCut: boolean;
}

/** What followed from one event, on all pages of it. `begun` gets the first page if others follow. */
export async function callTrace(params: Record<string, unknown>, begun: (first: Trace) => void = () => undefined): Promise<Trace> {
  let page = await call<TracePage>('trace.page', params);
  const { traceId, events } = page;
  let isPartial = page.partial;
  if (page.next !== undefined) begun({ traceId, events: [...events], isPartial });
  while (page.next !== undefined) {
    // The latest trace may be another one meanwhile.
    page = await call<TracePage>('trace.page', { ...params, of: traceId, after: page.next });
    events.push(...page.events);
    isPartial ||= page.partial;
  }
  return { traceId, events, isPartial };
}

interface TracePage {
  traceId: string;
  events: RuntimeEvent[];
  partial: boolean;
  next?: unknown;
}

/** A trace. */
export interface Trace {
  traceId: string;
  events: RuntimeEvent[];
  /** Whether something may be missing. */
  isPartial: boolean;
}

/** Reads the pages of a list, which a method gives as `items`, with `next` where another follows. */
export async function callPages<T>(method: string, items: string, params: Record<string, unknown> = {}): Promise<Listed<T>> {
  const all: T[] = [];
  let after: unknown;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const told = await call<Record<string, unknown>>(method, after === undefined ? params : { ...params, after });
    all.push(...(told[items] as T[]));
    after = told['next'];
    if (after === undefined) return { all, isCut: false };
  }
  return { all, isCut: true };
}
