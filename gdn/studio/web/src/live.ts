// Streamed reply of the model in a turn in progress: never recorded, and removed when the message arrives.

import type { Reducer } from './store.js';
import type { RuntimeEvent } from './types.js';

/** The end of a reply that is kept. */
const TEXT_MAX = 64 * 1024;

/** What `turn.follow` tells: what happened in a turn, or a part of what comes of a call. */
export interface TurnNotice {
  event?: RuntimeEvent;
  place?: { turnId: string; stepId?: string; toolCallId?: string };
  piece?: TurnPiece;
}

interface TurnPiece {
  type: string;
  text?: string;
  target?: string;
  attempt?: number;
  attemptsMax?: number;
  delayMs?: number;
  code?: string;
  need?: string;
  command?: string;
}

/** A reply as far as it has come. */
export interface Reply {
  stepId: string;
  text: string;
  reasoning: string;
  /** Whether its beginning is not there. */
  isCut: boolean;
  /** What it waits for, in words. */
  note: string;
  /** Whether it is said: its message is there for whoever reads it. */
  isOver: boolean;
}

/** The latest reply, if one was made since the stream began. */
export interface LiveState {
  reply: Reply | null;
}

function begun(stepId: string, isCut: boolean): Reply {
  return { stepId, text: '', reasoning: '', isCut, note: '', isOver: false };
}

/** The end of a text that becomes longer, and whether anything was cut off. */
function longer(text: string, more: string): { text: string; isCut: boolean } {
  const whole = text + more;
  return whole.length <= TEXT_MAX ? { text: whole, isCut: false } : { text: whole.slice(-TEXT_MAX), isCut: true };
}

function withPiece(reply: Reply, piece: TurnPiece): Reply {
  switch (piece.type) {
    case 'text': {
      const { text, isCut } = longer(reply.text, piece.text ?? '');
      return { ...reply, text, isCut: reply.isCut || isCut, note: '' };
    }
    case 'reasoning':
      return { ...reply, reasoning: longer(reply.reasoning, piece.text ?? '').text, note: '' };
    case 'again':
      return begun(reply.stepId, false);
    case 'instead':
      return { ...begun(reply.stepId, false), note: `${piece.target ?? 'Another model'} is called instead.` };
    case 'retry': {
      const seconds = Math.ceil((piece.delayMs ?? 0) / 1000);
      return { ...reply, note: `Attempt ${piece.attempt} of ${piece.attemptsMax} starts in ${seconds} s: ${piece.code ?? 'the call failed'}.` };
    }
    case 'consent':
      return { ...reply, note: `Waiting for a login: ${piece.command ?? piece.need ?? ''}` };
    default:
      return reply;
  }
}

/** `turn.follow`: the latest step's reply, as far as it was told. */
export const liveReducer: Reducer<LiveState, TurnNotice> = {
  start: () => ({ reply: null }),
  resume: () => ({}),
  restarted: () => ({ reply: null }),
  apply(state, { event, place, piece }) {
    if (event?.type === 'step.started' && event.stepId !== undefined) {
      return { state: { reply: begun(event.stepId, false) }, verdict: 'applied' };
    }
    if (event !== undefined) {
      const isOver = state.reply !== null && /^(step|turn)\./.test(event.type);
      return { state: isOver ? { reply: { ...state.reply!, isOver } } : state, verdict: 'applied' };
    }
    const stepId = place?.stepId;
    // Tool calls are not part of the reply.
    if (stepId === undefined || piece === undefined || place?.toolCallId !== undefined) return { state, verdict: 'applied' };
    const before = state.reply?.stepId === stepId ? state.reply : begun(stepId, true);
    return { state: { reply: withPiece(before, piece) }, verdict: 'applied' };
  },
};
