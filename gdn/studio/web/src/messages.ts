// Loaded messages of a conversation. Pure, so that tests can show that no message is missing or duplicated after any
// crash.

import type { CutMessage, Message, MessagePage, Part } from './types.js';

/** The end of a conversation. */
export interface MessagesState {
  messages: Message[];
  /** Those of the turn in progress. */
  pending: Message[];
  /** Where the page before the first message ends, or null if there is none. */
  previous: number | null;
  total: number;
  /** Those of which a part is known, by their ids. */
  cut: ReadonlyMap<string, CutMessage>;
}

/** A conversation of which nothing was read. */
export const NO_MESSAGES: MessagesState = { messages: [], pending: [], previous: null, total: 0, cut: new Map() };

/** What a page newly read is to what was read before. */
export type Fit = 'joined' | 'gap' | 'rewritten';

/** The state made of one page alone. */
export function ofPage(page: MessagePage): MessagesState {
  const { messages, pending, previous, total } = page;
  return { messages, pending, previous: previous ?? null, total, cut: cutOn(page) };
}

function cutOn(page: MessagePage, before: ReadonlyMap<string, CutMessage> = new Map()): ReadonlyMap<string, CutMessage> {
  const cut = new Map(before);
  for (const { id } of [...page.messages, ...page.pending]) cut.delete(id);
  for (const one of page.cut ?? []) cut.set(one.messageId, one);
  return cut;
}

/**
 * The state with the newest page read again. `gap`: there are messages between what is known and the page, which are
 * to be read first. `rewritten`: what is known is not what the conversation is any more, and the page stands alone.
 */
export function withNewest(state: MessagesState, page: MessagePage): { state: MessagesState; fit: Fit } {
  const alone = ofPage(page);
  if (state.messages.length === 0 || page.messages.length === 0) return { state: alone, fit: 'joined' };
  const added = page.total - state.total;
  if (added < 0) return { state: alone, fit: 'rewritten' };
  const begin = state.messages.findIndex((message) => message.id === page.messages[0]!.id);
  if (begin === -1) {
    return added >= page.messages.length ? { state: alone, fit: 'gap' } : { state: alone, fit: 'rewritten' };
  }
  const overlap = state.messages.slice(begin);
  const isSame = overlap.every((message, at) => message.id === page.messages[at]?.id);
  if (!isSame || page.messages.length - overlap.length !== added) return { state: alone, fit: 'rewritten' };
  const messages = [...state.messages.slice(0, begin), ...page.messages];
  return { state: { messages, pending: page.pending, previous: state.previous, total: page.total, cut: cutOn(page, state.cut) }, fit: 'joined' };
}

/** The state with an earlier page in front; unchanged if it does not belong there. */
export function withEarlier(state: MessagesState, page: MessagePage): MessagesState {
  const known = new Set(state.messages.map((message) => message.id));
  const earlier = page.messages.filter((message) => !known.has(message.id));
  return { ...state, messages: [...earlier, ...state.messages], previous: page.previous ?? null, cut: cutOn(page, state.cut) };
}

/** The parts of what a message says. */
export function partsOf(message: Message): Part[] {
  const { content } = message.data;
  return typeof content === 'string' ? [{ type: 'text', text: content }] : content;
}
