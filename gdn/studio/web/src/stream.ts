// One stream for all tabs of a browser: the tab with the lock reads it and forwards each line over a channel. When that
// tab closes, another one continues from its own state.

import { ApiError, asApiError, errorOf, post, type WireError } from './api.js';
import type { Reducer } from './store.js';

/** How a stream stands. */
export type Standing = 'connecting' | 'live' | 'lost' | 'over';

interface Line {
  notice?: string;
  params?: unknown;
  alive?: boolean;
  error?: WireError;
}

type Word<State> =
  | { ask: true }
  | { state: State; standing: Standing; failure: WireError | null }
  | { notice: unknown }
  | { restarted: true }
  | { standing: Standing; failure: WireError | null };

const BACK_OFF_FIRST_MS = 250;
const BACK_OFF_MAX_MS = 5000;
/** The server says at least every 15 seconds that it is there. */
const SILENCE_MAX_MS = 40_000;

/** A stream of the daemon that is reduced to a state. */
export class Feed<State, Notice> {
  state: State;
  standing: Standing = 'connecting';
  failure: ApiError | null = null;
  isLeader = false;
  /** Called with each notification that counted, and without one when the state was replaced. */
  onChange: (notice: Notice | null) => void = () => undefined;
  readonly #method: string;
  readonly #params: Record<string, unknown>;
  readonly #reducer: Reducer<State, Notice>;
  readonly #channel: BroadcastChannel;
  readonly #ended = new AbortController();
  #attempt = new AbortController();
  #isSilent = false;
  /** Whether the reader was asked for its state and has not answered. */
  #isAsking = false;
  /** Reopens a stream that is over. */
  #reopen: () => void = () => undefined;

  constructor(method: string, params: Record<string, unknown>, reducer: Reducer<State, Notice>) {
    this.#method = method;
    this.#params = params;
    this.#reducer = reducer;
    this.state = reducer.start();
    const name = `goondan.stream ${method} ${JSON.stringify(params)}`;
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = (event: MessageEvent<Word<State>>) => this.#hear(event.data);
    this.#say({ ask: true });
    const signal = this.#ended.signal;
    void navigator.locks.request(name, { signal }, () => this.#lead()).catch(() => undefined);
  }

  /** Leaves the stream to the other tabs. */
  close(): void {
    this.#ended.abort();
    this.#attempt.abort();
    this.#reopen();
    this.#channel.close();
  }

  /** Reopens a stream that is over, because it continues. Every tab with its page calls this; the reader does it. */
  continue(): void {
    this.#reopen();
  }

  #hear(word: Word<State>): void {
    if ('ask' in word) {
      if (this.isLeader) this.#say({ state: this.state, standing: this.standing, failure: wireOf(this.failure) });
      return;
    }
    if (this.isLeader) return;
    if ('standing' in word) {
      this.standing = word.standing;
      this.failure = word.failure === null ? null : errorOf(word.failure);
      if ('state' in word) {
        this.state = word.state;
        this.#isAsking = false;
      }
      this.onChange(null);
    } else if ('restarted' in word) {
      this.state = this.#reducer.restarted(this.state);
    } else if (this.#take(word.notice as Notice) === 'gap' && !this.#isAsking) {
      this.#isAsking = true;
      this.#say({ ask: true });
    }
  }

  #take(notice: Notice): string {
    const { state, verdict } = this.#reducer.apply(this.state, notice);
    this.state = state;
    if (verdict === 'applied') this.onChange(notice);
    return verdict;
  }

  async #lead(): Promise<void> {
    this.isLeader = true;
    let backOffMs = BACK_OFF_FIRST_MS;
    while (!this.#ended.signal.aborted) {
      this.#attempt = new AbortController();
      let wasLive = false;
      try {
        await this.#read(() => {
          wasLive = true;
          this.#stand('live', null);
        });
        if (this.#reducer.isOver?.(this.state) === true) {
          await this.#untilContinued();
          continue;
        }
        this.#stand('lost', new ApiError('ended', 'The stream has ended.', 'it is reopened'));
      } catch (thrown) {
        if (this.#ended.signal.aborted) return;
        const silence = new ApiError('silence', 'The daemon does not respond.', 'Studio keeps retrying');
        this.#stand('lost', this.#isSilent ? silence : asApiError(thrown));
      }
      backOffMs = wasLive ? BACK_OFF_FIRST_MS : Math.min(backOffMs * 2, BACK_OFF_MAX_MS);
      await pause(backOffMs, this.#ended.signal);
    }
  }

  /** Reads one answer to its end. Without a line it was not live. */
  async #read(live: () => void): Promise<void> {
    this.state = this.#reducer.restarted(this.state);
    this.#say({ restarted: true });
    const params = { ...this.#params, ...this.#reducer.resume(this.state) };
    this.#isSilent = false;
    let timer = this.#timer();
    let isLive = false;
    try {
      const response = await post('api/stream', { method: this.#method, params }, this.#attempt.signal);
      if (!response.ok || response.body === null) {
        const body = (await response.json().catch(() => ({}))) as { error?: WireError };
        throw errorOf(body.error, response.status);
      }
      for await (const line of linesOf(response.body)) {
        clearTimeout(timer);
        timer = this.#timer();
        const { notice, params: told, alive, error } = JSON.parse(line) as Line;
        if (error !== undefined) throw errorOf(error, response.status);
        if (notice === undefined && alive === undefined) continue;
        if (!isLive) live();
        isLive = true;
        if (notice === undefined) continue;
        this.#say({ notice: told });
        if (this.#take(told as Notice) === 'gap') this.#startOver();
      }
    } finally {
      clearTimeout(timer);
      this.#attempt.abort();
    }
  }

  #untilContinued(): Promise<void> {
    return new Promise((resolve) => {
      this.#reopen = () => {
        this.#reopen = () => undefined;
        this.#stand('connecting', null);
        resolve();
      };
      this.#stand('over', null);
    });
  }

  #timer(): ReturnType<typeof setTimeout> {
    return setTimeout(() => {
      this.#isSilent = true;
      this.#attempt.abort();
    }, SILENCE_MAX_MS);
  }

  /** Something was not told: the next attempt asks for everything. */
  #startOver(): never {
    this.state = this.#reducer.start();
    throw new ApiError('gap', 'The stream has a gap.', 'all data is reloaded');
  }

  #stand(standing: Standing, failure: ApiError | null): void {
    this.standing = standing;
    this.failure = failure;
    this.#say({ standing, failure: wireOf(failure) });
    this.onChange(null);
  }

  #say(word: Word<State>): void {
    if (!this.#ended.signal.aborted) this.#channel.postMessage(word);
  }
}

/** Waits; no longer than until the signal. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}

function wireOf(failure: ApiError | null): WireError | null {
  if (failure === null) return null;
  const { code, message, suggestion } = failure;
  return suggestion === undefined ? { code, message } : { code, message, suggestion };
}

/** The lines of a body. What stands behind the last line end was cut off and is none. */
export async function* linesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line !== '') yield line;
  }
}
