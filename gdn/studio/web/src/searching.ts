// One answer of a search of the server.

import { errorOf, post, type WireError } from './api.js';
import type { SearchLine } from './search.js';
import { linesOf } from './stream.js';

/** Asks for an answer, and passes its lines on. */
export async function answerOf(text: string, workspaceId: string | undefined, after: unknown, signal: AbortSignal, take: (line: SearchLine) => void): Promise<void> {
  const params = { text, ...(workspaceId === undefined ? {} : { workspaceId }), ...(after === undefined ? {} : { after }) };
  const response = await post('api/search', params, signal);
  if (!response.ok || response.body === null) {
    const body = (await response.json().catch(() => ({}))) as { error?: WireError };
    throw errorOf(body.error, response.status);
  }
  let isEnded = false;
  for await (const line of linesOf(response.body)) {
    const told = JSON.parse(line) as SearchLine;
    if (told.error !== undefined) throw errorOf(told.error, response.status);
    isEnded ||= told.end !== undefined;
    take(told);
  }
  if (!isEnded && !signal.aborted) throw errorOf({ code: 'lost', message: 'The search was cut off.', suggestion: 'search again' });
}
