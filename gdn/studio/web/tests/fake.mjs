// A server that obeys Studio's contract with generated data, and a daemon behind it that can be killed and restarted.
// `node tests/fake.mjs [--write]` prints an address to open.
import { createServer } from 'node:http';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as data from './fake-data.mjs';

const DIST = join(dirname(fileURLToPath(import.meta.url)), '../dist');
const CSP =
  `default-src 'none'; script-src 'self'; style-src '${readFileSync(join(DIST, 'style.sha256'), 'utf8')}'; connect-src 'self'; ` +
  "img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html";
const TYPES = { html: 'text/html; charset=utf-8', js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' };

const refusal = (code, message, suggestion) => ({ error: { code, message, suggestion } });

/** The daemon behind the server. */
export class FakeDaemon {
  isUp = true;
  epoch = 1;
  events = [];
  streams = new Set();
  streamsMax = 0;
  conversations = data.conversations(10_000);
  histories = data.histories();
  trace = data.longTrace(10_000);
  /** How long a turn takes. */
  turnMs = 100;
  decided = [];
  sent = [];
  taskItems = [...data.taskItems];
  isTaskOver = false;
  taskAsks = data.taskDetail.asks;
  taskMessages = ['Shorter, please.'];
  /** Searches that have not ended. */
  searches = 0;
  constructor() {
    const { events, ...others } = structuredClone(data.waits());
    Object.assign(this, others, { waiting: events });
  }
  cursor(count = this.events.length) {
    return `${this.epoch.toString(16).padStart(16, '0')}.${count}`;
  }
  /** Something happens, and all who watch are told. */
  tell(event) {
    this.events.push({ at: new Date().toISOString(), event });
    this.#toAll('workspace.watch', 'workspace.change', { cursor: this.cursor(), ...this.events.at(-1) });
  }
  #toAll(method, notice, params) {
    for (const stream of this.streams) if (stream.method === method) stream.write({ notice, params });
  }
  /** Something happens in a turn, or its model says something. */
  tellTurn(notice, params) {
    this.#toAll('turn.follow', notice, params);
  }
  /** The agent of a task works. */
  tellTask(items, isOver = false) {
    this.taskItems.push(...items.map((item) => ({ at: new Date().toISOString(), run: 2, ...item })));
    this.isTaskOver = isOver;
    for (const stream of this.streams) if (stream.method === 'task.watch') this.#taskPart(stream);
  }
  #taskPart(stream) {
    const { after } = stream;
    // In parts, as the daemon sends them.
    const items = this.taskItems.slice(after ?? 0, (after ?? 0) + 2000);
    const next = (after ?? 0) + items.length;
    const isOver = this.isTaskOver && next === this.taskItems.length ? { isOver: true } : {};
    stream.write({ notice: 'task.part', params: { ...(after === undefined ? {} : { after }), items, next, isEnd: next === this.taskItems.length, ...isOver } });
    stream.after = next;
    if (next < this.taskItems.length) {
      // Other requests are answered in between, as by the daemon.
      clearImmediate(stream.rest);
      stream.rest = setImmediate(() => this.streams.has(stream) && this.#taskPart(stream));
      return;
    }
    if (this.isTaskOver) stream.finish();
  }
  log(text) {
    this.#toAll('logs.follow', 'logs.line', { line: data.logLine(1000, text) });
  }
  /** A message is put behind a conversation. */
  append(key, message) {
    this.histories.get(key).push(message);
  }
  kill() {
    this.isUp = false;
    for (const stream of this.streams) stream.end();
  }
  restart() {
    this.isUp = true;
    this.epoch += 1;
    this.events = [];
  }
  /** Begins a stream: what is told first. */
  begin(stream, params) {
    if (stream.method === 'workspace.watch') {
      const [epoch, count] = (params.after ?? '').split('.');
      if (Number.parseInt(epoch, 16) === this.epoch) {
        for (let n = Number(count); n < this.events.length; n += 1) {
          stream.write({ notice: 'workspace.change', params: { cursor: this.cursor(n + 1), ...this.events[n] } });
        }
        stream.write({ alive: true });
        return;
      }
      const [first, ...rest] = data.processes();
      const snapshot = (processes, more) => ({ cursor: this.cursor(), at: new Date().toISOString(), snapshot: { workspace: data.workspace(), processes, ...(more ? { more } : {}) } });
      stream.write({ notice: 'workspace.change', params: snapshot([first], true) });
      stream.write({ notice: 'workspace.change', params: snapshot(rest, false) });
    } else if (stream.method === 'turn.follow') {
      stream.write({ alive: true });
    } else if (stream.method === 'task.watch') {
      stream.after = params.after;
      this.#taskPart(stream);
    } else if (stream.method === 'process.watch') {
      stream.write({ notice: 'process.change', params: { at: new Date().toISOString(), processes: data.processes(), gone: [] } });
    } else {
      for (let n = 0; n < 200; n += 1) stream.write({ notice: 'logs.line', params: { line: data.logLine(n, n === 7 ? data.HOSTILE[2] : undefined) } });
    }
  }
  /** A conversation of so many turns of four messages. */
  addLongConversation(turns) {
    const { messages, events } = data.longConversation(turns);
    this.conversations.unshift({ ...this.conversations[0], instanceKey: 'endless' });
    this.histories.set('endless', messages);
    this.endlessEvents = events;
  }
  /** One more of everything that is decided in two ways. */
  addDecisions() {
    const [question] = this.questions;
    const parked = this.waiting.find((one) => one.standing === 'parked');
    const [proposal] = this.proposals;
    this.questions.push({ ...question, questionId: 'q-22222222' });
    this.waiting.push({ ...parked, eventId: 'e-parked-2' }, { ...parked, eventId: 'e-now', standing: 'processing', crashes: 0 }, { ...parked, eventId: 'e-later', standing: 'waiting', crashes: 0 });
    this.proposals.push({ ...proposal, runId: 'bad' }, { ...proposal, runId: 'stale' });
    this.tasks.push({ ...this.tasks[0], taskId: 'new', title: 'New work', status: 'idle', blockedBy: undefined });
  }
  /** A second workspace, in which one call waits. */
  addWorkspace() {
    this.otherApprovals = data.otherApprovals();
  }
  call(method, params) {
    if (this.otherApprovals !== undefined && (params.workspaceId === data.OTHER || method === 'workspace.list')) return ofOther(this, method, params);
    const handler = CALLS[method];
    return handler === undefined ? refusal('invalidRequest', `There is no method ${method}.`, 'ask for another') : handler(this, params);
  }
}

const ok = (result) => ({ result });

/** What the second workspace answers: one call waits, and nothing else is there. */
function ofOther(of, method, params) {
  const workspaces = [data.workspace(), data.otherWorkspace()];
  if (method === 'workspace.list') return ok({ workspaces: workspaces.filter((one) => (params.workspaceId ?? one.workspaceId) === one.workspaceId) });
  if (method === 'approval.list') return ok({ approvals: of.otherApprovals });
  if (method === 'approval.show') return ok({ approval: of.otherApprovals[0], input: { query: 'DELETE FROM carts' } });
  if (method === 'approval.decide') {
    const [approval] = of.otherApprovals.splice(0);
    return ok({ approvalId: approval.approvalId, decision: params.decision, instanceKey: 'main', toolName: approval.toolName });
  }
  return ok({ approvals: [], questions: [], calls: [], events: [], proposals: [], changesets: [], tasks: [], schedules: [], budgets: [], rows: [], instances: [], total: 0 });
}

function page(of, { instanceKey, before, limit = 50 }) {
  const all = of.histories.get(instanceKey) ?? [];
  const end = before ?? all.length;
  const first = Math.max(0, end - limit);
  const messages = all.slice(first, end).map((message) => structuredClone(message));
  const cut = messages.map((message, at) => ({ message, at: first + at })).filter(({ message }) => cutTexts(message.data, 'content'));
  const told = { messages, pending: [], ...(first > 0 ? { previous: first } : {}), total: all.length };
  return ok({ ...told, ...(cut.length > 0 ? { cut: cut.map(({ message, at }) => ({ messageId: message.id, offset: at })) } : {}) });
}

/** The turns in pages; each has as many events as 1 MiB holds. */
function turnPage(of, { instanceKey, offset = 0, before }) {
  const all = instanceKey === 'main' ? data.turnEvents : instanceKey === 'endless' ? of.endlessEvents : [];
  if (before !== undefined) {
    const end = Math.min(before, all.length);
    const previous = Math.max(0, end - 400);
    return ok({ events: all.slice(previous, end), unreadable: 0, busy: false, ...(previous > 0 ? { previous } : {}) });
  }
  const next = offset + 4000;
  return ok({ events: all.slice(offset, next), unreadable: 0, busy: false, ...(next < all.length ? { next } : {}) });
}

/** Cuts the texts below a key as the daemon does; whether there was one to cut. */
function cutTexts(of, key) {
  const value = of[key];
  if (typeof value === 'string' && value.length > 4096) {
    of[key] = value.slice(0, 4096);
    return true;
  }
  return typeof value === 'object' && value !== null && Object.keys(value).map((each) => cutTexts(value, each)).includes(true);
}

function wholeMessage(of, { instanceKey, messageId, offset }) {
  const message = (of.histories.get(instanceKey) ?? [])[offset];
  if (message?.id !== messageId) return refusal('invalidRequest', 'the history changed', 'read it again');
  return ok({ message });
}

/** A trace in pages as the daemon gives it. */
function tracePage(traceId, events, { after, limit = 2000 }, partial = false) {
  const first = after === undefined ? 0 : after.index + 1;
  const next = first + limit;
  return ok({
    traceId,
    events: events.slice(first, next),
    partial,
    ...(next < events.length ? { next: { timestamp: data.at(0), instanceKey: 'main', index: next - 1 } } : {}),
  });
}

/** Pages of one record, without an end. */
function auditPage({ before = { system: 1000 } }) {
  const record = { at: data.at(0), event: 'instance.created', instanceKey: 'main', agentName: data.HOSTILE[0] };
  return ok({ records: [{ workspaceId: data.WORKSPACE, record }], previous: { system: before.system - 1 }, unreadable: 0 });
}

function list(of, { containing = '', after, limit = 1000 }) {
  const text = containing.toLowerCase();
  const all = of.conversations.filter((one) => one.instanceKey.toLowerCase().includes(text) || one.agentName.includes(text));
  const first = after === undefined ? 0 : all.findIndex((one) => one.instanceKey === after.instanceKey) + 1;
  const instances = all.slice(first, first + limit);
  const last = instances.at(-1);
  const next = first + limit < all.length ? { next: { workspaceId: last.workspaceId, instanceKey: last.instanceKey, updatedAt: last.updatedAt } } : {};
  return ok({ instances, total: all.length, ...next });
}

/** Small pages, so that there is more than one. */
function approvalPage(all, after) {
  const first = after === undefined ? 0 : all.findIndex((one) => one.approvalId === after) + 1;
  const approvals = all.slice(first, first + 1);
  return first + 1 < all.length ? { approvals, next: approvals.at(-1).approvalId } : { approvals };
}

/** Small pages of the schedules, so that there is more than one. */
function schedulePage(of, { instanceKey, after }) {
  const all = of.schedules.filter((one) => instanceKey === undefined || one.instanceKey === instanceKey);
  const first = after === undefined ? 0 : all.findIndex((one) => one.scheduleId === after.scheduleId) + 1;
  const schedules = all.slice(first, first + 1);
  const place = ({ workspaceId, instanceKey: key, scheduleId }) => ({ workspaceId, instanceKey: key, scheduleId });
  return ok(first + 1 < all.length ? { schedules, next: place(schedules[0]) } : { schedules });
}

function changeSchedule(of, { scheduleId, at }) {
  const found = of.schedules.find((one) => one.scheduleId === scheduleId);
  if (found === undefined) return refusal('scheduleNotFound', `schedule \`${scheduleId}\` does not exist`, 'run `gdn event schedule list`');
  if (at === undefined) of.schedules.splice(of.schedules.indexOf(found), 1);
  else Object.assign(found, { next: at, time: { kind: 'once', at } });
  of.tell({ type: 'schedule.changed', instanceKey: found.instanceKey, scheduleId, change: at === undefined ? 'removed' : 'moved' });
  return ok({ schedule: found });
}

function decide(of, { approvalId, decision }) {
  const at = of.approvals.findIndex((one) => one.approvalId === approvalId);
  if (at === -1) return refusal('approvalNotFound', 'No such call waits.', 'type `gdn inbox approvals`');
  const [approval] = of.approvals.splice(at, 1);
  of.decided.push({ approvalId, decision });
  of.tell({ type: 'approval.closed', instanceKey: approval.instanceKey, approvalId, toolName: approval.toolName, how: decision });
  return ok({ approvalId, decision, instanceKey: approval.instanceKey, toolName: approval.toolName });
}

function decideChangeset(of, { instanceKey, changesetId, reason }, state) {
  const at = of.changesets.findIndex((one) => one.instanceKey === instanceKey && one.changeset.changesetId === changesetId);
  if (at === -1) return refusal('invalidRequest', 'It does not wait.', 'type `gdn conversation bundle status`');
  const [{ changeset }] = of.changesets.splice(at, 1);
  of.decided.push({ changesetId, state, reason });
  of.tell({ type: 'bundle.changed', instanceKey, changesetId, what: state, detail: 'by a person' });
  return ok({ ...changeset, state, detail: 'by a person' });
}

function stand(of, { eventId }, standing) {
  const found = of.waiting.find((one) => one.eventId === eventId);
  if (found === undefined) return refusal('eventNotFound', 'No such event waits.', 'run `gdn event list`');
  if (standing === null) of.waiting.splice(of.waiting.indexOf(found), 1);
  else found.standing = standing;
  of.tell({ type: 'event.moved', instanceKey: found.instanceKey, eventId });
  return ok({});
}

function send(of, { conversationKey = 'main', input, eventId }) {
  of.sent.push({ eventId, input });
  const history = of.histories.get(conversationKey) ?? of.histories.set(conversationKey, []).get(conversationKey);
  of.tell({ type: 'event.accepted', instanceKey: conversationKey, eventId });
  of.tell({ type: 'turn.started', instanceKey: conversationKey, turnId: eventId, eventId, attempt: 1 });
  const stepId = `${eventId}.1`;
  const happens = (type) => of.tellTurn('turn.progress', { event: { type, turnId: eventId, stepId, instanceKey: conversationKey } });
  const says = (piece) => of.tellTurn('turn.piece', { place: { turnId: eventId, stepId }, piece });
  happens('step.started');
  says({ type: 'reasoning', text: 'What was said?' });
  says({ type: 'text', text: 'You ' });
  says({ type: 'text', text: 'said' });
  setTimeout(() => {
    happens('step.completed');
    history.push(data.message(`${eventId}:u`, 'user', input), data.message(`${eventId}:a`, 'assistant', `You said: ${input}`));
    of.tell({ type: 'turn.committed', instanceKey: conversationKey, turnId: eventId, eventId, outcome: 'completed' });
  }, of.turnMs);
  return ok({ eventId, instanceKey: conversationKey, agent: 'clerk', traceId: 'c'.repeat(32), duplicate: false });
}

/** A message to the agent of a task, which it answers; then the task is completed. */
function sendToTask(of, { taskId, text, messageId }) {
  of.sent.push({ messageId, text });
  of.taskMessages.push(text);
  const task = of.tasks.find((one) => one.taskId === taskId);
  changeTask(of, task, 'running');
  of.tellTask([{ type: 'event', event: 'message_sent', detail: text }]);
  setTimeout(() => {
    of.taskMessages = [];
    if (text.includes('dollars')) {
      of.taskAsks = [{ id: 'q-0009', kind: 'permission', text: 'Edit:\n--- price.txt\n+++ price.txt\n@@ line 1 @@\n-euros\n+dollars\n', options: ['allow', 'allow for this task', 'refuse'] }];
      of.tellTask([{ type: 'event', event: 'question_asked', detail: 'q-0009 Edit' }]);
      return changeTask(of, task, 'waiting_question');
    }
    endTask(of, task, `I heard: ${text}`);
  }, of.turnMs);
  return ok(task);
}

function proposalOf(of, { sandbox }) {
  return of.proposals.find(({ runId, agentId }) => runId === sandbox.runId && agentId === sandbox.agentId);
}

function stateOf(of, params, state) {
  const found = proposalOf(of, params);
  found.state = state;
  return ok({ ...found, proposal: found, files: ['src/a.rs'] });
}

function comment(of, { sandbox, workspaceId, ...params }) {
  const found = proposalOf(of, { sandbox });
  found.comments ??= [];
  const known = found.comments.find((one) => one.commentId === params.commentId);
  if (known !== undefined) return ok(known);
  if (params.digest !== found.digest) return refusal('invalidRequest', 'There is a newer proposal.', 'review it');
  const made = { number: (found.comments.at(-1)?.number ?? 0) + 1, at: new Date().toISOString(), state: 'open', ...params };
  found.comments.push(made);
  of.tell({ type: 'proposal.commented', ...sandbox, digest: found.digest, detail: `comment ${made.number}` });
  return ok(made);
}

/** The task in review. */
function reviewOf(of, info) {
  const { digest, comments } = of.proposals.find(({ runId }) => runId === 'fix');
  const isInReview = info.status === 'waiting_review';
  const proposal = { digest, files: [{ path: 'src/b.rs', status: 'added' }, { path: 'src/a.rs', status: 'modified' }], moreFiles: 3 };
  return { info, ...data.reviewDetail, proposal, ...(isInReview ? {} : { review: undefined }), recent: [{ at: data.at(0), event: 'comments', detail: `${comments.length}` }] };
}

/** A person requests changes: the agent receives the comments, and submits another proposal. */
function rework(of, { taskId, text }) {
  const task = of.tasks.find((one) => one.taskId === taskId);
  const found = of.proposals.find(({ runId }) => runId === taskId);
  const open = found.comments.filter(({ state }) => state === 'open');
  if (text === '' && open.length === 0) return refusal('invalidRequest', 'The text is empty.', 'write what to change');
  for (const one of open) Object.assign(one, { state: 'sent', addressedBy: '2'.repeat(64) });
  changeTask(of, task, 'running');
  setTimeout(() => {
    found.digest = '2'.repeat(64);
    changeTask(of, task, 'waiting_review');
  }, of.turnMs);
  return ok(task);
}

function changeTask(of, task, status) {
  task.status = status;
  task.updatedAt = new Date().toISOString();
  of.tell({ type: 'task.changed', taskId: task.taskId, status });
}

function standOfTask(of, { taskId }, status) {
  const task = of.tasks.find((one) => one.taskId === taskId);
  delete task.blockedBy;
  changeTask(of, task, status);
  return ok(task);
}

function endTask(of, task, text) {
  of.tellTask([{ type: 'text', text }, { type: 'result', isOk: true, text: 'done' }], true);
  changeTask(of, task, 'completed');
}

function answerTask(of, { taskId, id, text }) {
  const task = of.tasks.find((one) => one.taskId === taskId);
  of.taskAsks = of.taskAsks.filter((one) => one.id !== id);
  if (id === 'q-0009') endTask(of, task, `${text}\nI heard: Prices are in dollars.`);
  else changeTask(of, task, 'running');
  return ok(task);
}

const rewound = { checkpointId: 'checkpoint_001', isChanged: true, messagesRemoved: 1, messagesRestored: 0, removedMessages: [{ id: 'x', role: 'user', head: 'Hi' }], added: [], changed: ['work/b.txt'], removed: [], extensions: [], preRewind: 'checkpoint_003', notRewound: ['money spent'] };

const CALLS = {
  'daemon.status': () => ok({ version: { protocol: 3, goondan: '0.1.0' }, pid: 4242, startedAt: data.at(0), stateRoot: '/home/ada/.goondan', openFiles: { open: 41, limit: 524288 }, stopping: false, workspaces: [data.workspace()] }),
  'workspace.list': () => ok({ workspaces: [data.workspace()] }),
  'workspace.traffic': () => ok(data.traffic()),
  'workspace.usage': (_, { by }) => ok(data.usageReport(by)),
  'workspace.audit': (_, params) => auditPage(params),
  'daemon.processes': () => ok({ processes: data.processes() }),
  'instance.list': list,
  'instance.page': page,
  'message.get': wholeMessage,
  'instance.show': (of, { instanceKey }) => {
    const found = of.conversations.find((one) => one.instanceKey === instanceKey);
    if (found === undefined) return refusal('instanceNotFound', `There is no conversation ${instanceKey}.`, 'type `gdn conversation list`');
    return ok({ ...found, directory: '/d', workDir: '/d/work', messages: of.histories.get(instanceKey)?.length ?? 0, baseBytes: 1, pendingEvents: 0, extensions: {} });
  },
  'instance.turns': turnPage,
  'instance.checkpoints': (_, { instanceKey }) => ok({ checkpoints: instanceKey === 'main' ? data.checkpoints : [] }),
  'instance.export': (of, { instanceKey, position }) => {
    // The last message comes in a part of its own.
    const all = (of.histories.get(instanceKey) ?? []).map((one) => `${JSON.stringify({ message: one })}\n`);
    const counts = { messages: all.length, extensions: 0, damaged: 0, pendingEvents: 1 };
    if (position === undefined) return ok({ text: all.slice(0, -1).join(''), ...counts, next: { until: 1 } });
    return ok({ text: `${all.at(-1) ?? ''}{"end":{}}\n`, ...counts });
  },
  'instance.delete': (of, { instanceKey }) => {
    of.conversations = of.conversations.filter((one) => one.instanceKey !== instanceKey);
    of.histories.delete(instanceKey);
    of.tell({ type: 'instance.deleted', instanceKey });
    return ok({ existed: true });
  },
  'instance.checkpoint': () => ok(data.checkpoints[0]),
  'instance.rewind': () => ok(rewound),
  'trace.page': (of, params) => {
    const { of: id } = params;
    if (id === undefined || id === 'last' || id === 'b'.repeat(32)) return tracePage('b'.repeat(32), of.trace, params, true);
    if (id === 'a'.repeat(32) || id === 't') return tracePage('a'.repeat(32), data.turnEvents, params);
    return refusal('eventNotFound', `There is no trace of ${id}.`, 'type `gdn event trace`');
  },
  'approval.list': (of, { after }) => ok(approvalPage(of.approvals, after)),
  'approval.show': (of, { approvalId }) => ok({ approval: of.approvals.find((one) => one.approvalId === approvalId), input: of.inputs[approvalId] }),
  'approval.decide': decide,
  'call.unknown': (of) => ok({ calls: of.calls }),
  'call.settle': (of, { instanceKey, toolCallId, note }) => {
    const call = of.calls.find((one) => one.toolCallId === toolCallId && one.instanceKey === instanceKey);
    if (call === undefined) return refusal('callNotFound', 'no such call', 'type `gdn inbox calls`');
    of.calls = of.calls.filter((one) => one !== call);
    of.tell({ type: 'call.settled', instanceKey, toolCallId, note });
    return ok({ call });
  },
  'question.list': (of) => ok({ questions: of.questions }),
  'question.show': (of, { questionId }) => ok({ question: of.questions.find((one) => one.questionId === questionId), form: of.form }),
  'question.answer': (of, { questionId, content }) => {
    of.answered = content;
    of.questions = of.questions.filter((one) => one.questionId !== questionId);
    of.tell({ type: 'question.closed', instanceKey: 'main', questionId, how: 'accept' });
    return ok({ questionId, action: 'accept' });
  },
  'question.decline': (of, { questionId }) => {
    of.questions = of.questions.filter((one) => one.questionId !== questionId);
    return ok({ questionId, action: 'decline' });
  },
  'event.list': (of, { instanceKey }) => ok({ events: of.waiting.filter((one) => instanceKey === undefined || one.instanceKey === instanceKey) }),
  'event.retry': (of, params) => stand(of, params, 'waiting'),
  'event.resume': (of, params) => stand(of, params, 'waiting'),
  'event.pause': (of, params) => stand(of, params, 'paused'),
  'event.drop': (of, params) => stand(of, params, null),
  'event.cancel': (of, params) => stand(of, params, null),
  'event.send': send,
  'schedule.list': schedulePage,
  'schedule.move': changeSchedule,
  'schedule.remove': changeSchedule,
  'proposal.list': (of) => ok({ proposals: of.proposals }),
  'proposal.show': (of, params) => ok(structuredClone(proposalOf(of, params))),
  'proposal.diff': (of, params) => {
    const { offset = 0 } = params;
    const { runId, digest } = proposalOf(of, params);
    const diff = runId === 'large' ? data.largeDiff() : runId !== 'fix' ? data.DIFF : digest.startsWith('1') ? data.TASK_DIFF : data.REWORKED_DIFF;
    const end = offset + 512 * 1024;
    const next = end < diff.length ? { next: end } : {};
    return ok({ data: Buffer.from(diff.slice(offset, end)).toString('base64'), total: diff.length, ...next });
  },
  'proposal.check': (of, params) => {
    const found = proposalOf(of, params);
    const refusals = found.runId === 'stale' ? [{ kind: 'changed', path: 'src/a.rs', reason: 'changed since' }] : [];
    return ok({ proposal: found, canApply: refusals.length === 0, refusals, base: {} });
  },
  'proposal.merge': (of, params) => ok({ proposal: { ...proposalOf(of, params), agentId: 'coder-merged' }, conflicts: [] }),
  'proposal.revert': (of, params) => stateOf(of, params, 'reverted'),
  'proposal.comment': comment,
  'proposal.uncomment': (of, { sandbox, number }) => {
    const found = proposalOf(of, { sandbox });
    found.comments = found.comments.filter((one) => one.number !== number);
    return ok({});
  },
  'proposal.apply': (of, params) => stateOf(of, params, 'applied'),
  'proposal.reject': (of, params) => stateOf(of, params, 'rejected'),
  'task.list': (of, { needsMe }) => ok({ tasks: needsMe ? of.tasks.filter((one) => one.status.startsWith('waiting') || one.blockedBy !== undefined) : of.tasks }),
  'task.show': (of, { taskId }) => {
    const info = of.tasks.find((one) => one.taskId === taskId);
    if (info === undefined) return refusal('taskNotFound', `There is no task ${taskId}.`, 'type `gdn task list`');
    if (taskId === 'fix') return ok(reviewOf(of, info));
    if (info.damaged !== undefined) return refusal('damaged', `failed to use the work area of task \`${taskId}\`: ${info.damaged}`, 'fix the cause');
    return ok({ info, ...data.taskDetail, asks: of.taskAsks, messages: of.taskMessages });
  },
  'task.checkpoints': () => ok({ checkpoints: data.checkpoints }),
  'task.answer': answerTask,
  'task.rework': rework,
  'task.send': sendToTask,
  'task.logs': () => ok({ text: 'Phase 1: The brief\n', next: 19, isEnd: true, isOver: false }),
  'event.move': (of, { eventId, place }) => {
    const at = of.waiting.findIndex((one) => one.eventId === eventId);
    const [moved] = of.waiting.splice(at, 1);
    const to = place === 'first' ? 0 : place === 'last' ? of.waiting.length : of.waiting.findIndex((one) => one.eventId === place.before);
    of.waiting.splice(to, 0, moved);
    of.tell({ type: 'event.moved', instanceKey: moved.instanceKey, eventId });
    return ok({});
  },
  'bundle.waiting': (of, { after }) => (after === undefined
    ? ok({ changesets: of.changesets.slice(0, 1), unreadable: ['damaged'], next: 'main' })
    : ok({ changesets: of.changesets.slice(1) })),
  'bundle.approve': (of, params) => decideChangeset(of, params, 'committed'),
  'bundle.reject': (of, params) => decideChangeset(of, params, 'rejected'),
  'task.budget': (of, { taskId, budget }) => {
    of.budget = budget;
    const task = of.tasks.find((one) => one.taskId === taskId);
    task.status = 'running';
    delete task.blockedBy;
    return ok(task);
  },
  'task.start': (of, params) => standOfTask(of, params, 'running'),
  'task.pause': (of, params) => standOfTask(of, params, 'paused'),
  'task.resume': (of, params) => standOfTask(of, params, 'running'),
  'task.cancel': (of, params) => standOfTask(of, params, 'cancelled'),
  'task.approve': (of, params) => standOfTask(of, params, 'completed'),
  'task.provide': answerTask,
  'task.checkpoint': () => ok(data.checkpoints[0]),
  'task.restore': () => ok({ checkpointId: 'checkpoint_001', skipped: [], added: [], changed: ['docs/b.md'], removed: [], preRestore: 'checkpoint_003' }),
  'bundle.revert': () => ok(data.bundle),
  'bundle.pin': () => ok(data.bundle),
  'bundle.status': (_, { instanceKey }) => (instanceKey === 'main' ? ok(data.bundle) : refusal('invalidRequest', 'Nothing was proposed in this conversation.', 'see docs/bundles.md')),
  'bundle.show': () => ok({ changeset: data.bundle.changesets[0], diff: data.DIFF }),
};

/** Hits of an answer, as in Studio. */
const ANSWER_HITS = 100;

/** What a search finds: names, tasks, proposals, patches, the log, and messages. */
function* hitsOf(daemon, text) {
  const wanted = text.toLowerCase();
  const hit = (kind, id, words, more = {}) => {
    const at = words.toLowerCase().indexOf(wanted);
    const end = at + wanted.length;
    return at === -1 ? [] : [{ kind, workspaceId: data.WORKSPACE, id, title: id, text: { before: words.slice(Math.max(0, at - 80), at), found: words.slice(at, end), after: words.slice(end, end + 80) }, ...more }];
  };
  for (const { instanceKey } of daemon.conversations) yield* hit('conversation', instanceKey, instanceKey);
  for (const { approvalId, summary, toolName } of daemon.approvals) yield* hit('approval', approvalId, summary, { title: toolName });
  for (const one of daemon.otherApprovals ?? []) yield* hit('approval', one.approvalId, one.summary, { title: one.toolName, workspaceId: data.OTHER });
  for (const { taskId, title, updatedAt } of daemon.tasks) {
    yield* hit('task', taskId, title, { title: title === '' ? taskId : title, at: updatedAt });
    if (taskId === 'fix-the-login') for (const item of daemon.taskItems) yield* hit('work', taskId, JSON.stringify(item), { at: item.at });
  }
  for (const { runId, agentId, notes = '', createdAt } of daemon.proposals) {
    const name = `${runId}/${agentId}`;
    yield* hit('proposal', name, notes, { at: createdAt });
    for (const file of runId === 'fix' ? ['src/a.rs', 'src/b.rs'] : []) yield* hit('patch', name, file, { place: file });
  }
  yield* hit('log', 'event accepted', 'event accepted', { at: data.at(0) });
  for (const [key, messages] of daemon.histories) {
    for (const { id, createdAt, data: { content } } of messages) {
      yield* hit('message', key, typeof content === 'string' ? content : content.map((part) => part.text ?? JSON.stringify(part.input ?? part.output)).join('\n'), { place: id, at: createdAt });
    }
  }
  for (const { turnId, spanId, traceId, instanceKey, timestamp } of data.turnEvents) yield* hit('trace', traceId, turnId, { title: instanceKey, place: spanId, at: timestamp });
}

/** A search of `wait` finds nothing and does not end. */
function search(daemon, response, { text, after = 0 }) {
  response.writeHead(200, { 'Content-Type': 'application/x-ndjson', 'Content-Security-Policy': CSP, 'Cache-Control': 'no-store' });
  const write = (line) => response.write(`${JSON.stringify(line)}\n`);
  if (text === 'wait') {
    daemon.searches += 1;
    response.on('close', () => (daemon.searches -= 1));
    return write({ progress: { stage: 'conversations', read: 5 } });
  }
  const hits = [...hitsOf(daemon, text)];
  const end = after + ANSWER_HITS;
  for (const hit of hits.slice(after, end)) write({ hit });
  write({ end: { read: 12, skipped: 0, ...(end < hits.length ? { next: end } : {}) } });
  return response.end();
}

async function bodyOf(request) {
  let text = '';
  for await (const chunk of request) text += chunk;
  return JSON.parse(text);
}

function openStream(daemon, response, { method, params }) {
  response.writeHead(200, { 'Content-Type': 'application/x-ndjson', 'Content-Security-Policy': CSP, 'Cache-Control': 'no-store' });
  const stream = { method, write: (line) => response.write(`${JSON.stringify(line)}\n`), end: () => response.destroy(), finish: () => response.end() };
  const alive = setInterval(() => stream.write({ alive: true }), 15_000);
  daemon.streams.add(stream);
  daemon.streamsMax = Math.max(daemon.streamsMax, daemon.streams.size);
  response.on('close', () => {
    clearInterval(alive);
    daemon.streams.delete(stream);
  });
  daemon.begin(stream, params);
}

/** Starts the server. Each call of `ticket()` gives an address with a ticket of its own. */
export async function startFake({ write = true, port = 0, behind } = {}) {
  const daemon = new FakeDaemon();
  const tickets = new Set();
  const tokens = new Set();
  const server = createServer((request, response) => void serve(request, response).catch((error) => response.destroy(error)));
  const answer = (response, status, body) => {
    response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Security-Policy': CSP, 'Cache-Control': 'no-store' });
    response.end(JSON.stringify(body));
  };
  async function serve(request, response) {
    const path = request.url.split('?')[0];
    const { host, origin } = request.headers;
    // As Studio checks them, with `--url`.
    if (behind !== undefined && (host !== new URL(behind).host || (request.method !== 'GET' && origin !== new URL(behind).origin))) {
      return answer(response, 403, refusal('forbidden', `the host is ${host}, and the origin ${origin}`));
    }
    if (request.method === 'GET') return file(path, response);
    const body = await bodyOf(request);
    if (path === '/api/login') {
      if (!tickets.delete(body.ticket)) return answer(response, 401, refusal(undefined, 'The ticket was used, or is too old.', 'run `gdn studio` again'));
      const token = randomBytes(16).toString('hex');
      tokens.add(token);
      return answer(response, 200, { token, write, goondan: '0.1.0', stateRoot: '/home/ada/.goondan' });
    }
    if (!tokens.has((request.headers.authorization ?? '').replace('Bearer ', ''))) return answer(response, 401, refusal(undefined, 'Not logged in.', 'run `gdn studio` again'));
    if (!daemon.isUp) return answer(response, 503, refusal('unreachable', 'No daemon can be reached.', 'start it: `gdn run`'));
    if (path === '/api/stream') return openStream(daemon, response, body);
    if (path === '/api/search') return search(daemon, response, body);
    return answer(response, 200, await daemon.call(body.method, body.params));
  }
  async function file(path, response) {
    const name = path === '/' ? 'index.html' : /^\/assets\/[a-z.]+$/.test(path) ? path.slice(1) : null;
    const bytes = name === null ? null : await readFile(join(DIST, name)).catch(() => null);
    if (bytes === null) return answer(response, 404, refusal(undefined, 'There is no such file.'));
    response.writeHead(200, { 'Content-Type': TYPES[name.split('.').pop()], 'Content-Security-Policy': CSP });
    response.end(bytes);
  }
  await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${server.address().port}`;
  const ticket = () => {
    const fresh = randomBytes(16).toString('hex');
    tickets.add(fresh);
    return `${behind ?? `${origin}/`}#t=${fresh}`;
  };
  const close = () => {
    daemon.kill();
    server.close();
    server.closeAllConnections();
  };
  return { daemon, origin, ticket, tokens, close };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const fake = await startFake({ write: process.argv.includes('--write') });
  console.log(fake.ticket());
}
