// One conversation: its messages from the end on, the turn in progress, what waits, and what a person may do.

import { html, nothing, type TemplateResult } from 'lit';
import { type ApiError, asApiError, call, callPages } from '../api.js';
import { type MessagesState, NO_MESSAGES, partsOf, withEarlier, withNewest } from '../messages.js';
import { FollowingPage } from '../following.js';
import { type LiveState, liveReducer, type Reply, type TurnNotice } from '../live.js';
import { isEvent } from '../page.js';
import { ask, fieldText } from '../parts/dialog.js';
import { count, counted, dollars, duration } from '../parts/figures.js';
import { approvalDecision } from '../decisions.js';
import { Chunks } from '../parts/chunks.js';
import { type CallResult, messageView, replyView, type ResultPart } from '../parts/message.js';
import { schedulesView } from '../parts/schedules.js';
import { sendView } from '../parts/sendbox.js';
import { harmless, head, oneLine } from '../parts/text.js';
import * as view from '../parts/views.js';
import { rewind } from '../rewind.js';
import { Feed } from '../stream.js';
import { studio } from '../studio.js';
import { earlier, later, type Place } from '../moving.js';
import { NO_TURNS, type Turn, type TurnLog, withEvents } from '../turns.js';
import { deleteConversation, exportConversation } from '../whole.js';
import type { Approval, Checkpoint, CutMessage, Instance, Message, MessagePage, Question, RuntimeEvent, Schedule, WaitingEvent, WorkspaceChange } from '../types.js';

const PAGE_MESSAGES = 50;
/** A message of the address is looked for in pages of so many. */
const SEEK_MESSAGES = 500;
const SEEK_PAGES_MAX = 100;
/** Most pages that are read to close a gap; a longer one begins anew at the end. */
const GAP_PAGES_MAX = 20;
/** What happens in a row in a turn in progress is one reason to read its messages. */
const PENDING_SETTLE_MS = 40;
/** The turns at the end that are shown. */
const TURNS_SHOWN = 20;
/** From so near to its end on, a conversation follows what arrives. */
const NEAR_END_PX = 80;
/** A message that was looked for is kept in view for so many frames. */
const SETTLE_FRAMES = 6;

/** Messages in their order, and where each call, each result and the first message of each step is. */
interface Arranged {
  of: MessagesState;
  whole: ReadonlyMap<string, Message>;
  all: Message[];
  results: Map<string, CallResult>;
  calls: Set<string>;
  /** The steps whose figures are at a message, by its id. */
  steps: Map<string, string>;
}

class ConversationPage extends FollowingPage<LiveState, TurnNotice> {
  #state: MessagesState = NO_MESSAGES;
  #events: WaitingEvent[] = [];
  #turns: TurnLog = NO_TURNS;
  /** Turns in the order in which they began. */
  #turnList: Turn[] = [];
  /** Pages of turns that are full do not change any more, and are read once. */
  #fullTurns: { log: TurnLog; offset: number } = { log: NO_TURNS, offset: 0 };
  #readingTurns: Promise<void> | null = null;
  #areTurnsRead = false;
  #turnsFailure: ApiError | null = null;
  #approvals: Approval[] = [];
  #questions: Question[] = [];
  #schedules: Schedule[] = [];
  #checkpoints: Checkpoint[] = [];
  #instance: (Instance & { workDir?: string }) | null = null;
  #isAtEnd = true;
  /** What the end was when it was last shown. */
  #end = '';
  #isReadingEarlier = false;
  #frame = 0;
  /** Messages of which a part is on their page, and which somebody wanted to see whole. */
  #whole: ReadonlyMap<string, Message> = new Map();
  #arranged: Arranged | null = null;
  readonly #chunks = new Chunks(this);
  /** The step whose reply is among the messages by now. */
  #saidStep = '';
  #pending: ReturnType<typeof setTimeout> | undefined;
  /** The message of the address, until it was shown. */
  #sought: string | null = null;
  readonly #scrolled = (): void => this.#onScroll();

  get #key(): string {
    return this.route.arg;
  }

  protected heading(): string {
    return `Conversation ${oneLine(this.#key)}`;
  }

  override connectedCallback(): void {
    this.#sought = this.route.query.get('message');
    // The page begins at that message, not at the end.
    this.#isAtEnd = this.#sought === null;
    super.connectedCallback();
    window.addEventListener('scroll', this.#scrolled, { passive: true });
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    window.removeEventListener('scroll', this.#scrolled);
    clearTimeout(this.#pending);
    cancelAnimationFrame(this.#frame);
  }

  protected begin(): Feed<LiveState, TurnNotice> {
    return new Feed('turn.follow', studio.of({ instanceKey: this.#key }), liveReducer);
  }

  /** Of what happens in a turn, its messages are read; what a model says is shown as it comes. */
  protected override told(notice: TurnNotice | null): void {
    if (notice?.event !== undefined) this.#readPendingSoon();
    // Many pieces in one frame are drawn once.
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.requestUpdate());
  }

  protected override concerns(change: WorkspaceChange | null): boolean {
    if (change === null || change.snapshot !== undefined) return true;
    if (change.event?.instanceKey !== this.#key) return false;
    if (isEvent(change, 'instance.rewound', 'instance.deleted')) {
      this.#state = NO_MESSAGES;
      this.#whole = new Map();
      this.#fullTurns = { log: NO_TURNS, offset: 0 };
      this.#chunks.forget();
    }
    return true;
  }

  protected override async read(): Promise<void> {
    const of = studio.of({ instanceKey: this.#key });
    const before = this.#state;
    const reply = this.#reply;
    const turns = this.#readTurns(of);
    const [page, events, instance, checkpoints, approvals, questions, schedules] = await Promise.all([
      call<MessagePage>('instance.page', { ...of, limit: PAGE_MESSAGES }),
      call<{ events: WaitingEvent[] }>('event.list', { ...of, parked: false, limit: 200 }).catch(() => ({ events: [] })),
      call<Instance>('instance.show', of),
      callPages<Checkpoint>('instance.checkpoints', 'checkpoints', of).catch(() => ({ all: [] })),
      call<{ approvals: Approval[] }>('approval.list', of).catch(() => ({ approvals: [] })),
      call<{ questions: Question[] }>('question.list', studio.of()).catch(() => ({ questions: [] })),
      callPages<Schedule>('schedule.list', 'schedules', of),
    ]);
    // A long conversation is shown before its turns are read: they are read from the first one on.
    if (page.previous === undefined) await turns;
    this.#approvals = approvals.approvals.filter((one) => one.instanceKey === this.#key);
    this.#questions = questions.questions.filter((one) => one.instanceKey === this.#key);
    this.#state = await this.#joined(before, page, of);
    this.#events = events.events;
    this.#instance = instance;
    this.#checkpoints = checkpoints.all;
    this.#schedules = schedules.all;
    this.#readAfter(reply);
    const arrived = this.#state.total - before.total;
    if (this.#sought !== null) void this.#seek(this.#sought);
    if (before.total > 0 && arrived > 0) studio.announce(`${counted(arrived, 'new message')}.`);
  }

  /** What is known, joined with the newest page; pages between them are read first. */
  async #joined(before: MessagesState, newest: MessagePage, of: Record<string, unknown>): Promise<MessagesState> {
    let page = newest;
    for (let pages = 0; pages < GAP_PAGES_MAX; pages += 1) {
      const { state, fit } = withNewest(before, page);
      if (fit !== 'gap' || page.previous === undefined) return state;
      const params = { ...of, before: page.previous, limit: PAGE_MESSAGES };
      const earlier = await call<MessagePage>('instance.page', params);
      page = { ...page, messages: [...earlier.messages, ...page.messages], previous: earlier.previous! };
      if (earlier.previous === undefined) delete page.previous;
    }
    return withNewest(NO_MESSAGES, page).state;
  }

  /** Reads the turns, and once more if that is under way: it may be past what is new. */
  async #readTurns(of: Record<string, unknown>): Promise<void> {
    await this.#readingTurns;
    this.#readingTurns ??= this.#readTurnPages(of)
      .then(() => {
        this.#turnsFailure = null;
      })
      .catch((thrown: unknown) => {
        this.#turnsFailure = asApiError(thrown);
      })
      .finally(() => {
        this.#readingTurns = null;
        this.requestUpdate();
      });
    return this.#readingTurns;
  }

  async #readTurnPages(of: Record<string, unknown>): Promise<void> {
    for (;;) {
      const full = this.#fullTurns;
      const page = await call<{ events: RuntimeEvent[]; next?: number }>('instance.turns', { ...of, offset: full.offset });
      if (!this.isConnected) return;
      // The conversation was rewound meanwhile.
      if (full !== this.#fullTurns) continue;
      const log = withEvents(full.log, page.events);
      if (page.next === undefined) {
        this.#turns = log;
        this.#turnList = [...log.turns.values()];
        this.#areTurnsRead = true;
        return;
      }
      this.#fullTurns = { log, offset: page.next };
    }
  }

  /** The reply that is being written, if one is; one that is over, until its message was read. */
  get #reply(): Reply | null {
    const reply = this.feed?.state.reply ?? null;
    return reply?.stepId === this.#saidStep ? null : reply;
  }

  /** The messages were read: one whose step was over before is among them. */
  #readAfter(reply: Reply | null): void {
    if (reply?.isOver === true) this.#saidStep = reply.stepId;
  }

  #readPendingSoon(): void {
    clearTimeout(this.#pending);
    this.#pending = setTimeout(() => void this.#readPending(), PENDING_SETTLE_MS);
  }

  async #readPending(): Promise<void> {
    const reply = this.#reply;
    try {
      const page = await call<MessagePage>('instance.page', studio.of({ instanceKey: this.#key, limit: PAGE_MESSAGES }));
      const { state, fit } = withNewest(this.#state, page);
      if (fit === 'joined') {
        this.#state = state;
        this.#readAfter(reply);
      } else this.readSoon();
      this.requestUpdate();
    } catch {
      // When the daemon is back, the stream triggers a complete reload.
    }
  }

  /** Reads back to a message, and moves to it. */
  async #seek(id: string): Promise<void> {
    this.#sought = null;
    const place = (): number => [...this.#state.messages, ...this.#state.pending].findIndex((message) => message.id === id);
    this.#isReadingEarlier = true;
    try {
      for (let pages = 0; pages < SEEK_PAGES_MAX && place() === -1 && this.#state.previous !== null && this.isConnected; pages += 1) {
        const { previous } = this.#state;
        const page = await call<MessagePage>('instance.page', studio.of({ instanceKey: this.#key, before: previous, limit: SEEK_MESSAGES }));
        // The conversation was rewound meanwhile, or its end was read again.
        if (this.#state.previous === previous) this.#state = withEarlier(this.#state, page);
      }
    } catch (thrown) {
      studio.announce(`Cannot read the message: ${asApiError(thrown).message}`);
    } finally {
      this.#isReadingEarlier = false;
    }
    const at = place();
    if (at === -1) {
      this.outcome = 'The message of the address is not in this conversation any more.';
      return this.requestUpdate();
    }
    const { messages, pending, total } = this.#state;
    this.#isAtEnd = false;
    this.#chunks.skipTo(Math.max(0, total - messages.length), messages.length + pending.length, at);
    this.isRead = true;
    this.requestUpdate();
    await this.updateComplete;
    // Entries that come into the document near it can move it.
    for (let frame = 0; frame < SETTLE_FRAMES; frame += 1) {
      const shown = this.querySelector<HTMLElement>(`[data-message="${CSS.escape(id)}"]:not([hidden])`) ?? this.#callOf(at);
      if (shown === null) return;
      shown.tabIndex = -1;
      shown.classList.add('sought');
      shown.focus({ preventScroll: true });
      shown.scrollIntoView({ block: 'center' });
      await new Promise((resolve) => requestAnimationFrame(resolve));
    }
  }

  /** The call with whose result a message is shown. */
  #callOf(at: number): HTMLElement | null {
    const message = [...this.#state.messages, ...this.#state.pending][at];
    const result = message === undefined ? undefined : partsOf(message).find(({ type }) => type === 'tool-result');
    const call = result === undefined ? null : this.querySelector<HTMLDetailsElement>(`[data-call="${CSS.escape((result as ResultPart).toolCallId)}"]`);
    if (call !== null) call.open = true;
    return call;
  }

  #onScroll(): void {
    const root = document.documentElement;
    this.#isAtEnd = root.scrollHeight - root.scrollTop - root.clientHeight < NEAR_END_PX;
    if (root.scrollTop < NEAR_END_PX * 4 && this.isRead) void this.#readEarlier();
  }

  async #readEarlier(): Promise<void> {
    const { previous } = this.#state;
    if (previous === null || this.#isReadingEarlier) return;
    this.#isReadingEarlier = true;
    try {
      const params = studio.of({ instanceKey: this.#key, before: previous, limit: PAGE_MESSAGES });
      const page = await call<MessagePage>('instance.page', params);
      if (this.#state.previous !== previous) return;
      const root = document.documentElement;
      const below = root.scrollHeight - root.scrollTop;
      this.#state = withEarlier(this.#state, page);
      this.requestUpdate();
      await this.updateComplete;
      root.scrollTop = root.scrollHeight - below;
    } catch {
      this.readSoon();
    } finally {
      this.#isReadingEarlier = false;
    }
  }

  /** How a shortened message is shown whole. */
  #cutOf(messageId: string): { isWhole: boolean; toggle: () => void } | undefined {
    const cut = this.#state.cut.get(messageId);
    if (cut === undefined) return undefined;
    const isWhole = this.#whole.has(messageId);
    return { isWhole, toggle: () => void (isWhole ? this.#showLess(messageId) : this.#readWhole(cut)) };
  }

  /** The messages in order; made again only if they are others, because a reply is drawn many times. */
  #arrange(): Arranged {
    const of = this.#state;
    const whole = this.#whole;
    if (this.#arranged?.of === of && this.#arranged.whole === whole) return this.#arranged;
    const all = [...of.messages, ...of.pending].map((message) => whole.get(message.id) ?? message);
    const results = new Map<string, CallResult>();
    const calls = new Set<string>();
    const steps = new Map<string, string>();
    const known = new Set<string>();
    for (const message of all) {
      for (const part of partsOf(message)) {
        if (part.type === 'tool-call') calls.add(String(part.toolCallId));
        if (part.type === 'tool-result') results.set(String(part.toolCallId), { part: part as ResultPart, message, cut: this.#cutOf(message.id) });
      }
      const { stepId } = message.source;
      if (stepId === undefined || known.has(stepId) || message.data.role !== 'assistant') continue;
      known.add(stepId);
      steps.set(message.id, stepId);
    }
    this.#arranged = { of, whole, all, results, calls, steps };
    return this.#arranged;
  }

  /** The messages with each call and its result together. */
  #messagesView(): TemplateResult {
    const { all, results, calls, steps } = this.#arrange();
    const { messages, total } = this.#state;
    const decided = new Set<string>();
    const decision = (toolCallId: string): TemplateResult | typeof nothing => {
      const approval = this.#approvals.find((one) => one.toolCallId === toolCallId);
      if (approval === undefined) return nothing;
      decided.add(approval.approvalId);
      return this.#approval(approval);
    };
    const shown = (at: number): TemplateResult => {
      const message = all[at]!;
      return messageView(message, {
        isPending: at >= messages.length, cut: this.#cutOf(message.id), decision,
        step: this.#turns.steps.get(steps.get(message.id) ?? ''),
        traceHref: (traceId) => studio.href('trace', traceId),
        result: (toolCallId) => results.get(toolCallId),
        hasCall: (toolCallId) => calls.has(toolCallId),
      });
    };
    const before = Math.max(0, total - messages.length);
    return html`${this.#chunks.view(before, all.length, (at) => all[at]!.id, shown)}
      ${this.#reply === null ? nothing : replyView(this.#reply)}
      ${this.#approvals.filter(({ approvalId }) => !decided.has(approvalId)).map((one) => this.#approval(one))}
      ${this.#questions.map((one) => html`<section class="item decision" aria-label=${`Question ${one.questionId}`}><blockquote>${harmless(one.message)}</blockquote>
        <p><a href=${studio.href('needs', '', { item: one.questionId })}>Answer it</a></p></section>`)}
      ${all.length === 0 ? html`<p>No messages yet.</p>` : nothing}`;
  }

  /** A tool call that waits for a person, where it waits. */
  #approval(approval: Approval): TemplateResult {
    return approvalDecision(approval, { isBusy: this.isBusy, act: (what, action) => this.act(what, action) });
  }

  async #readWhole(cut: CutMessage): Promise<void> {
    try {
      const { message } = await call<{ message: Message }>('message.get', studio.of({ instanceKey: this.#key, ...cut }));
      this.#whole = new Map([...this.#whole, [message.id, message]]);
      this.requestUpdate();
    } catch (thrown) {
      // It may be in another place by now, and the page says where.
      this.readSoon();
      studio.announce(`Cannot read the message: ${asApiError(thrown).message}`);
    }
  }

  #showLess(messageId: string): void {
    this.#whole = new Map([...this.#whole].filter(([id]) => id !== messageId));
    this.requestUpdate();
  }

  protected override updated(): void {
    const { messages, pending } = this.#state;
    const said = this.#reply;
    const end = JSON.stringify([messages.at(-1)?.id, pending.map((message) => message.id), said?.text.length, said?.reasoning.length]);
    const isFurther = end !== this.#end;
    this.#end = end;
    if (isFurther && this.#isAtEnd && this.isRead) {
      const root = document.documentElement;
      root.scrollTop = root.scrollHeight;
    }
  }

  protected content(): TemplateResult | typeof nothing {
    if (!this.isRead) return nothing;
    const { messages, previous, total } = this.#state;
    return html`${this.#about()} ${this.#controls()}
      <details><summary>Turns (${this.#areTurnsRead ? count(this.#turnList.length) : '…'})</summary>${this.#turnsView()}</details>
      <details><summary>Checkpoints (${this.#checkpoints.length})</summary>${this.#checkpointsView()}</details>
      <section aria-label="Messages" class="messages">
        ${previous === null
          ? nothing
          : html`<p><button type="button" @click=${() => void this.#readEarlier()}>
              Earlier messages (${total - messages.length})
            </button></p>`}
        ${this.#messagesView()}
      </section>
      ${this.#waiting()} ${this.#scheduled()} ${this.#send()}`;
  }

  #about(): TemplateResult | typeof nothing {
    const instance = this.#instance;
    if (instance === null) return nothing;
    const turn = studio.feed?.state.turns[this.#key];
    const latest = this.#turnList.at(-1);
    return html`<p>Agent ${oneLine(instance.agentName)} · ${view.standingView(turn === undefined ? instance.status : 'processing')}
      · started ${view.timeView(instance.createdAt)} · ${counted(this.#state.total, 'message')}
      ${latest === undefined ? nothing : html`· <a href=${studio.href('trace', latest.traceId)}>Trace of the latest turn</a>`}
      · <a href=${studio.href('bundles', this.#key)}>Bundle</a></p>`;
  }

  #controls(): TemplateResult {
    const processing = this.#events.find((event) => event.standing === 'processing');
    const save = html`<button type="button" ?disabled=${this.isBusy}
      @click=${() => void this.act('Exporting', () => exportConversation(this.#key))}>Export</button>`;
    if (!studio.write) {
      const cancel = processing === undefined ? nothing : view.commandView('gdn', 'conversation', 'cancel', '--conversation', this.#key);
      return html`<p class="instead">Run instead: ${cancel}
        ${view.commandView('gdn', 'send', '--conversation', this.#key, 'TEXT')} ${view.commandView('gdn', 'conversation', 'rewind', this.#key)}
        ${view.commandView('gdn', 'conversation', 'delete', this.#key)}</p><p class="actions">${save}</p>`;
    }
    return html`<p class="actions">
      ${processing === undefined
        ? nothing
        : html`<button type="button" class="danger" ?disabled=${this.isBusy} @click=${() => void this.#cancel(processing)}>
            Cancel the turn…
          </button>`}
      <button type="button" ?disabled=${this.isBusy} @click=${() => void this.#checkpoint()}>Create a checkpoint…</button>
      ${save}
      <button type="button" class="danger" ?disabled=${this.isBusy} @click=${() => void this.#delete()}>Delete…</button>
    </p>`;
  }

  async #delete(): Promise<void> {
    const isGone = await deleteConversation(this.#key, this.#state.total, (what, action) => this.act(what, action));
    if (isGone) location.hash = studio.href('conversations');
  }

  async #cancel(event: WaitingEvent): Promise<void> {
    const body = html`<p>Its tools are stopped, and its completed work stays. It answers:</p>
      <blockquote>${head(event.input, 200)}</blockquote>`;
    const title = 'Cancel the turn in progress';
    if ((await ask({ title, body, confirm: 'Cancel the turn', isDangerous: true })) === null) return;
    await this.act('Cancelling', async () => {
      await call('event.cancel', studio.of({ instanceKey: this.#key, eventId: event.eventId }));
      return 'The turn was canceled.';
    });
  }

  async #checkpoint(): Promise<void> {
    const answer = await ask({
      title: 'Create a checkpoint',
      body: html`<p class="field"><label for="name">Name (optional; protects it from automatic removal)</label>
        <input id="name" name="name" autocomplete="off"></p>`,
      confirm: 'Create',
    });
    if (answer === null) return;
    const name = fieldText(answer, 'name').trim();
    await this.act('Creating a checkpoint', async () => {
      const params = studio.of({ instanceKey: this.#key, ...(name === '' ? {} : { name }) });
      const made = await call<Checkpoint>('instance.checkpoint', params);
      return `${made.checkpointId} was created.`;
    });
  }

  #turnsView(): TemplateResult {
    if (this.#turnsFailure !== null) return view.failureView(this.#turnsFailure);
    if (!this.#areTurnsRead) return html`<p class="faint">The turns are being read.</p>`;
    const rows = this.#turnList.slice(-TURNS_SHOWN).reverse().map((turn) => [
      view.timeView(turn.startedAt),
      turn.durationMs === undefined ? '' : duration(turn.durationMs),
      view.standingView(turn.outcome),
      `${turn.steps} / ${turn.tools}`,
      turn.costMicroUsd === undefined ? '' : dollars(turn.costMicroUsd),
      html`<a href=${studio.href('trace', turn.traceId)} class="name">${oneLine(turn.turnId)}</a>`,
      turn.reason === undefined ? '' : oneLine(turn.reason),
    ]);
    return view.tableView('Turns', ['Started', 'Duration', 'Outcome', 'Steps / tools', 'Cost', 'Trace', 'Reason'], rows);
  }

  #checkpointsView(): TemplateResult {
    const rows = [...this.#checkpoints].reverse().map((checkpoint) => [
      ...view.checkpointCells(checkpoint),
      checkpoint.damaged === undefined ? this.#rewindView(checkpoint) : view.damageView(checkpoint.damaged),
    ]);
    return view.tableView('Checkpoints', ['Checkpoint', 'Created', 'Name', 'Size', 'Action'], rows);
  }

  #rewindView({ checkpointId }: Checkpoint): TemplateResult {
    if (!studio.write) return view.commandView('gdn', 'conversation', 'rewind', this.#key, '--to', checkpointId);
    const go = (): Promise<boolean> => this.act('Rewinding', () => rewind(this.#key, checkpointId));
    return html`<button type="button" ?disabled=${this.isBusy} @click=${() => void go()}
      aria-label=${`Rewind to ${checkpointId}`}>Rewind…</button>`;
  }

  #waiting(): TemplateResult | typeof nothing {
    const waiting = this.#events.filter((event) => event.standing !== 'processing');
    if (waiting.length === 0) return nothing;
    const rows = waiting.map((event) => [
      html`<span class="name">${oneLine(event.eventId)}</span>`,
      view.standingView(event.standing),
      head(event.input, 120),
      this.#eventAction(event),
    ]);
    return html`<h2>Waiting events</h2>${view.tableView('Waiting events', ['Event', 'State', 'Input', 'Action'], rows)}`;
  }

  #scheduled(): TemplateResult | typeof nothing {
    if (this.#schedules.length === 0) return nothing;
    const decider = { isBusy: this.isBusy, act: this.act.bind(this) };
    return html`<h2>Schedules</h2>${schedulesView(this.#schedules, false, decider)}`;
  }

  #eventAction(event: WaitingEvent): TemplateResult {
    const actions: Record<string, [string, string]> = {
      waiting: ['pause', 'Pause'],
      paused: ['resume', 'Resume'],
      parked: ['retry', 'Retry'],
    };
    const [verb, label] = actions[event.standing] ?? ['list', 'List'];
    if (!studio.write) {
      const move = earlier(this.#events, event.eventId) ?? later(this.#events, event.eventId);
      const first = move === null ? nothing : view.commandView('gdn', 'event', 'move', event.eventId, '--first');
      return html`${view.commandView('gdn', 'event', verb, event.eventId)} ${first}`;
    }
    const button = (word: string, method: string, more: { place?: Place } = {}): TemplateResult =>
      html`<button type="button" ?disabled=${this.isBusy} aria-label=${`${word} ${oneLine(event.eventId)}`}
        @click=${() => void this.act(word, async () => {
          await call(`event.${method}`, studio.of({ instanceKey: event.instanceKey, eventId: event.eventId, ...more }));
        })}>${word}</button>`;
    const move = (word: string, place: Place | null): TemplateResult | typeof nothing =>
      place === null ? nothing : button(word, 'move', { place });
    return html`<span class="actions">${button(label, verb)} ${move('Move up', earlier(this.#events, event.eventId))}
      ${move('Move down', later(this.#events, event.eventId))}</span>`;
  }

  /** The key as `event.send` wants it: of another agent than the entry agent without the agent in front. */
  #conversationKey(): string | null {
    const agent = this.#instance?.agentName;
    if (agent === undefined || agent === studio.workspace?.entryAgent) return this.#key;
    return this.#key.startsWith(`${agent}:`) ? this.#key.slice(agent.length + 1) : null;
  }

  #send(): TemplateResult | typeof nothing {
    if (!studio.write) return nothing;
    if (this.#conversationKey() === null) {
      return html`<p class="faint">This conversation receives messages only through its connection.</p>`;
    }
    const label = `Message to ${oneLine(this.#instance?.agentName ?? 'the agent')}`;
    return sendView(label, this.isBusy, (input, eventId) => this.#submit(input, eventId));
  }

  async #submit(input: string, eventId: string): Promise<boolean> {
    const isSent = await this.act('Sending', async () => {
      const to = { agent: this.#instance?.agentName, conversationKey: this.#conversationKey() };
      const done = await call<{ instanceKey: string }>('event.send', studio.of({ ...to, input, eventId, wait: false }));
      return done.instanceKey === this.#key ? 'The message was accepted.' : `The message went to ${oneLine(done.instanceKey)}.`;
    });
    if (isSent) this.#isAtEnd = true;
    return isSent;
  }
}

customElements.define('gdn-conversation', ConversationPage);
