// Generated data for the fake server: a workspace with many conversations, a long trace, and something that waits for
// a person of every kind.

export const WORKSPACE = 'srv_bot__no-package';
const BEGIN_MS = Date.parse('2026-01-01T00:00:00.000Z');

export const at = (ms) => new Date(BEGIN_MS + ms).toISOString();

export function message(id, role, content, ms = 0, source = { type: role }) {
  return { id, data: { role, content }, metadata: {}, createdAt: at(ms), source };
}

/** What a stranger might have an agent say. */
export const HOSTILE = [
  '<img src=x onerror="alert(1)">',
  '<script>alert(2)</script>',
  '\u001b[31mred\u001b[0m \u001b]0;title\u0007',
  'safe\u202etxt.exe \u2066hidden\u2069 zero\u200bwidth \u{e0041}',
  'javascript:alert(3) data:text/html,<b>x</b> https://example.org/ok?a=1 http://user:pw@example.org/',
  '<a href="javascript:alert(4)">x</a> ${7*7} {{7*7}} <svg onload=alert(5)>',
];

export function conversations(count) {
  const list = Array.from({ length: count }, (_, n) => ({
    workspaceId: WORKSPACE,
    instanceKey: n === 0 ? 'main' : n === 1 ? 'hostile' : n === 2 ? 'long' : n === 3 ? 'whole' : `chat-${String(n).padStart(5, '0')}`,
    agentName: n % 3 === 0 ? 'clerk' : 'helper',
    status: 'idle',
    createdAt: at(0),
    updatedAt: at((count - n) * 1000),
  }));
  return list;
}

export function histories() {
  const main = [
    message('t:u', 'user', 'How many copies of Dune were sold?', 0),
    message('t.1:a', 'assistant', [
      { type: 'text', text: 'Let me see. https://example.org/dune' },
      { type: 'tool-call', toolCallId: 'c1', toolName: 'bash__exec', input: { command: 'ls' } },
    ], 100, { type: 'assistant', stepId: 't.1' }),
    message('t.1:r0', 'tool', [
      { type: 'tool-result', toolCallId: 'c1', toolName: 'bash__exec', output: { type: 'text', value: `exit code: 0\n${'line\n'.repeat(300)}` } },
    ], 200, { type: 'tool', toolCallId: 'c1', toolName: 'bash__exec' }),
    message('t.2:a', 'assistant', '47 copies of Dune were sold.', 300, { type: 'assistant', stepId: 't.2' }),
  ];
  const hostile = HOSTILE.flatMap((text, n) => [
    message(`h${n}:u`, 'user', text, n * 1000),
    message(`h${n}:r`, 'tool', [{ type: 'tool-result', toolCallId: `c${n}`, toolName: text, output: { type: 'error-text', value: text } }], n * 1000 + 1, { type: 'tool', toolName: text }),
    message(`h${n}:a`, 'assistant', [{ type: 'text', text }, { type: 'tool-call', toolCallId: `c${n}`, toolName: text, input: { [text]: text } }], n * 1000 + 2),
  ]);
  const long = Array.from({ length: 230 }, (_, n) => message(`m${n}`, n % 2 === 0 ? 'user' : 'assistant', `Message ${n}`, n * 1000));
  const whole = [message('w:u', 'user', 'Write a lot.'), message('w:a', 'assistant', `${'A sentence of it. '.repeat(2000)}THE END`, 100)];
  return new Map([['main', main], ['hostile', hostile], ['long', long], ['whole', whole]]);
}

export const turnEvents = [
  { type: 'turn.started', spanId: '0000000000000001', eventId: 'e1', ms: 0 },
  { type: 'step.started', spanId: '0000000000000002', parentSpanId: '0000000000000001', stepId: 't.1', ms: 10 },
  { type: 'tool.called', spanId: '0000000000000003', parentSpanId: '0000000000000002', stepId: 't.1', toolName: 'bash__exec', ms: 100 },
  { type: 'tool.completed', spanId: '0000000000000003', parentSpanId: '0000000000000002', stepId: 't.1', toolName: 'bash__exec', ms: 200, durationMs: 100, detail: 'exit code: 0' },
  { type: 'step.completed', spanId: '0000000000000002', parentSpanId: '0000000000000001', stepId: 't.1', ms: 250, durationMs: 240, costMicroUsd: 600 },
  { type: 'turn.completed', spanId: '0000000000000001', eventId: 'e1', ms: 300, durationMs: 300, costMicroUsd: 1155 },
].map(({ ms, ...event }) => ({ timestamp: at(ms), traceId: 'a'.repeat(32), agentName: 'clerk', instanceKey: 'main', turnId: 't', ...event }));

/** A trace of so many spans: a turn with steps, each with calls, some of them another agent's turn. */
export function longTrace(spans) {
  const events = [];
  const hex = (n) => n.toString(16).padStart(16, '0');
  const base = { traceId: 'b'.repeat(32), instanceKey: 'main', turnId: 't' };
  const add = (type, n, parent, ms, more = {}) =>
    events.push({ type, timestamp: at(ms), ...base, agentName: 'clerk', spanId: hex(n), ...(parent === 0 ? {} : { parentSpanId: hex(parent) }), ...more });
  add('turn.started', 1, 0, 0, { eventId: 'e-long' });
  let step = 1;
  for (let n = 2; n <= spans; n += 1) {
    if (n % 10 === 2) {
      step = n;
      add('step.started', n, 1, n, { stepId: `t.${n}` });
      add('step.completed', n, 1, n + 9, { stepId: `t.${n}`, durationMs: 9 });
    } else {
      add('tool.called', n, step, n, { toolName: 'bash__exec' });
      add(n % 97 === 0 ? 'tool.failed' : 'tool.completed', n, step, n + 1, { toolName: 'bash__exec', durationMs: 1, detail: 'exit code: 0' });
    }
  }
  add('turn.completed', 1, 0, spans + 10, { eventId: 'e-long', durationMs: spans + 10 });
  return events.sort((a, b) => (a.timestamp < b.timestamp ? -1 : a.timestamp > b.timestamp ? 1 : 0));
}

const approval = {
  workspaceId: WORKSPACE, approvalId: 'a-7f3a9c21', instanceKey: 'main', agentName: 'clerk', turnId: 't', stepId: 't.1',
  toolCallId: 'c1', toolName: 'bash__exec', summary: '{"command":"make release"}', askedAt: at(0),
};
export const OTHER = 'srv_shop__goondan_shop';
export const otherWorkspace = () => ({ workspaceId: OTHER, projectRoot: '/srv/shop', package: '@goondan/shop', entryAgent: 'seller', agents: ['seller'], connections: [], runningAgents: 1, pendingEvents: 0 });
export const otherApprovals = () => [{ ...approval, workspaceId: OTHER, approvalId: 'a-22222222', agentName: 'seller', toolName: 'database__run', summary: '{"query":"DELETE FROM carts"}', askedAt: at(1000) }];
/** Another call of the first workspace. */
export const laterApproval = () => ({ ...approval, approvalId: 'a-33333333', toolName: 'shell__run', askedAt: at(2000) });
const question = {
  workspaceId: WORKSPACE, questionId: 'q-7f3a9c21', source: { kind: 'mcp', connection: 'shop', tool: 'order' }, instanceKey: 'main',
  agentName: 'clerk', turnId: 't', toolCallId: 'c1', message: 'Which size shall it be?\n<b>now</b>', askedAt: at(0), expiresAt: at(600_000),
};
const form = [
  { name: 'size', title: 'Size', required: true, takes: { type: 'choice', choices: [{ value: 's', title: 'Small' }, { value: 'm', title: 'Medium' }] } },
  { name: 'count', required: true, takes: { type: 'integer', minimum: 1, maximum: 9 }, default: 1 },
  { name: 'mail', description: 'Where the receipt goes', required: false, takes: { type: 'string', format: 'email' } },
];
const event = (eventId, standing) => ({
  instanceKey: 'main', agentName: 'clerk', eventId, standing, crashes: standing === 'parked' ? 3 : 0, since: at(0), input: 'Hello',
  ...(standing === 'parked' ? { reason: '3 processes ended during its turn, most recently: killed by SIGKILL' } : {}), source: { kind: 'connector', name: 'cli' },
});
const schedule = {
  workspaceId: WORKSPACE, instanceKey: 'main', agentName: 'clerk', byPerson: true, scheduleId: 's-0000000000000001', time: { kind: 'once', at: '2999-12-24T09:00:00.000Z' },
  catchUp: 'latest', input: 'Wish a happy Christmas.', createdAt: at(0), next: '2999-12-24T09:00:00.000Z',
};
const schedules = () => [
  schedule,
  { ...schedule, byPerson: undefined, scheduleId: 's-0000000000000002', time: { kind: 'cron', cron: '30 2 * * *', timeZone: 'Europe/Berlin' }, input: HOSTILE[0], next: '2999-01-01T01:30:00.000Z' },
  { ...schedule, instanceKey: 'hostile', scheduleId: 's-0000000000000003', input: HOSTILE[2], problem: HOSTILE[1] },
];
const unknown = (instanceKey, toolCallId, toolName, detail) => ({
  workspaceId: WORKSPACE, instanceKey, agentName: 'clerk', turnId: 't', toolCallId, toolName, at: at(0), detail,
});
export const DIFF = '--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,3 +1,3 @@\n fn a() {\n-    old(); // <b>not bold</b>\n+    new();\n }\n';
const long = Array.from({ length: 600 }, (_, n) => `+line ${n + 1}\n`).join('');
const GIT = (path, more = '') => `diff --git a/${path} b/${path}\n${more}index 1111..2222\n`;
/** The patch of a task: a new file of three lines, a deleted one, a long one, a binary one, and hostile text. */
export const TASK_DIFF =
  `${GIT('src/b.rs', 'new file mode 100644\n')}--- /dev/null\n+++ b/src/b.rs\n@@ -0,0 +1,3 @@\n+fn b() {\n+    // long\n+}\n` +
  `${GIT('src/a.rs')}--- a/src/a.rs\n+++ b/src/a.rs\n@@ -7,3 +7,3 @@\n fn a() {\n-    old(); // ${HOSTILE[0]}\n+    new(); // ${HOSTILE[0]}\n }\n` +
  `${GIT('old.md', 'deleted file mode 100644\n')}--- a/old.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n` +
  `${GIT('src/long.rs', 'new file mode 100644\n')}--- /dev/null\n+++ b/src/long.rs\n@@ -0,0 +1,600 @@\n${long}` +
  `${GIT('icon.png')}GIT binary patch\nliteral 3\nKcmZQ$00962\n\nliteral 0\nHcmV?d00001\n\n`;
/** The same after the comments were addressed. */
export const REWORKED_DIFF = `${GIT('src/b.rs', 'new file mode 100644\n')}--- /dev/null\n+++ b/src/b.rs\n@@ -0,0 +1 @@\n+fn b() {}\n`;
/** 20,000 added lines of a program, made once: a daemon reads a file. */
let large20000;
export const largeDiff = () => (large20000 ??= `--- a/src/large.rs\n+++ b/src/large.rs\n@@ -0,0 +1,20000 @@\n${Array.from({ length: 20_000 }, (_, n) => `+    let value_${n} = compute("line ${n}", ${n}); // note\n`).join('')}`);
const proposal = {
  runId: 'r1', agentId: 'coder', state: 'open', createdAt: at(0), changedFiles: 1, digest: '60303ae2'.repeat(8), notes: 'by coder',
  directory: '/x', summary: '# What changed\n', files: [{ path: 'src/a.rs', status: 'modified', oldBytes: 10, newBytes: 14 }],
  history: [{ type: 'proposal_created', at: at(0), runId: 'r1', agentId: 'coder', detail: '1 file' }],
};
const task = {
  workspaceId: WORKSPACE, taskId: 'fix-the-login', title: 'Fix the login', type: 'custom', agent: 'coder', status: 'waiting_question',
  blockedBy: 'question', currentPhase: 1, totalPhases: 3, progress: 40, tokens: 1200, cost: 15000, createdAt: at(0), updatedAt: at(0),
};
const dear = { ...task, taskId: 'dear', title: 'Dear work', status: 'paused', blockedBy: 'budget', tokens: 90_000, cost: 1_000_000 };
const epoch = new Date(0).toISOString();
const damaged = {
  ...task, taskId: 'broken', title: '', agent: 'unknown', status: 'idle', blockedBy: undefined, currentPhase: 0, totalPhases: 0, progress: 0,
  tokens: 0, cost: 0, createdAt: epoch, updatedAt: epoch, damaged: 'history.jsonl: line 3 is damaged',
};
const large = { ...dear, taskId: 'large', title: 'Large work', blockedBy: 'quota' };
const shared = { ...dear, taskId: 'shared', title: 'Work that shares', blockedBy: 'shared_budget' };
const reviewed = { ...task, taskId: 'fix', title: 'Fix the functions', status: 'waiting_review', blockedBy: 'review', currentPhase: 1, totalPhases: 1 };
const submitted = {
  ...proposal, runId: 'fix', changedFiles: 5, digest: '1'.repeat(64), notes: 'phase 1 of task `fix`',
  comments: [{ number: 1, at: at(0), digest: '0'.repeat(64), path: 'src/a.rs', line: 3, lineText: HOSTILE[1], text: HOSTILE[0], state: 'sent', sentAt: at(0), addressedBy: '1'.repeat(64) }],
};
export const reviewDetail = {
  ...{ description: 'Fix them.', workArea: '/home/ada/tasks/fix', documents: [], review: 1 },
  sandbox: { at: { workspaceId: WORKSPACE, runId: 'fix', agentId: 'coder' }, workDir: '/home/ada/sandboxes/fix/coder/work' },
};
export const taskDetail = {
  budget: { tokens: 90_000, microUsd: 1_500_000 },
  description: 'The login fails for users with a plus sign in their address.', workArea: '/home/ada/tasks/fix-the-login', startedAt: at(0),
  asks: [
    { id: 'q-0001', kind: 'question', text: 'Which rule?', options: ['RFC 5321', 'ours'], default: 'ours', until: at(900_000) },
    { id: 'q-0003', kind: 'permission', text: 'Edit:\n--- src/a.rs\n+++ src/a.rs\n@@ line 1 @@\n-old\n+new <b>\n', options: ['allow', 'allow for this task', 'refuse'], until: at(900_000) },
    { id: 'd-0002', kind: 'secret', text: 'API_KEY', description: 'The key of the mail service.' },
  ],
  step: 'Reading', plan: [{ title: 'Read the code', state: 'completed' }, { title: 'Mend the check', state: 'in_progress' }], runs: 2,
  usage: { inputTokens: 1000, outputTokens: 200, cacheReadTokens: 0, cacheWriteTokens: 0 },
  disk: { bytes: 1048576, quotaBytes: 21474836480, freeBytes: 107374182400, measuredAt: at(0) },
  recent: [{ at: at(0), event: 'question_asked', detail: 'q-0001 Which rule?' }],
  agents: [{ name: 'coder', limitedUntil: at(400 * 86_400_000) }, { name: 'codex', isCurrent: true }],
  lastRun: { number: 1, isOk: false, outcome: 'Incorrect API key provided: sk-1', lastWords: 'I begin.\n<b>now</b>', stderr: HOSTILE[2] },
};
/** An item of every kind of a task's stream, some of them hostile. */
export const taskItems = [
  { type: 'event', event: 'run_requested', detail: 'run 1' },
  { type: 'plan', steps: taskDetail.plan },
  { type: 'thinking', text: `Which rule? ${HOSTILE[0]}` },
  { type: 'text', text: 'I begin.' },
  { type: 'text', text: HOSTILE.join('\n') },
  { type: 'command', id: 'c1', state: 'started', command: `npm test # ${HOSTILE[1]}` },
  { type: 'command', id: 'c1', state: 'failed', command: '', exit: 1, output: `1 test failed\n${'line\n'.repeat(30)}` },
  { type: 'fileChange', id: 'f1', state: 'completed', files: [{ path: 'src/a.rs', diff: '--- src/a.rs\n+++ src/a.rs\n@@ line 12 @@\n fn a() {\n-old\n+new <b>\n' }, { path: HOSTILE[3] }] },
  { type: 'tool', id: 't1', name: HOSTILE[0], state: 'completed', input: HOSTILE[1], output: HOSTILE[2] },
  { type: 'output', text: HOSTILE[5] },
  { type: 'usage', usage: { inputTokens: 1000, outputTokens: 200, cacheReadTokens: 0, cacheWriteTokens: 0 }, cost: 15000 },
  { type: 'problem', text: 'the provider answered 529; attempt 1 of 10' },
  { type: 'gap', items: 3 },
  { type: 'result', isOk: false, text: 'Incorrect API key provided: sk-1', denied: ['Bash'] },
  { type: 'kind-of-tomorrow' },
].map((item, n) => ({ at: at(n * 1000), run: 1, ...item }));
export const checkpoints = [
  { checkpointId: 'checkpoint_001', type: 'manual', name: 'early', phase: 1, createdAt: at(0), snapshotSize: 2904 },
  { checkpointId: 'checkpoint_002', type: '', phase: 0, createdAt: epoch, snapshotSize: 0, damaged: '`metadata.json` is missing' },
];
const usage = { inputTokens: 230, outputTokens: 31, cacheReadTokens: 0, cacheWriteTokens: 0 };
export const usageReport = (by) => ({
  rows: [{ workspaceId: WORKSPACE, key: by === 'day' ? '2026-01-01' : 'clerk', agentName: 'clerk', spending: { replies: 2, usage, costMicroUsd: 1155 } }],
  leftOut: 0, total: { replies: 2, usage, costMicroUsd: 1155, unpriced: 1 }, unreadable: 0,
  budgets: [{ workspaceId: WORKSPACE, scope: 'instance', agentName: 'clerk', instanceKey: 'main', period: 'ever', limit: { tokens: 280 }, spent: { tokens: 261 }, reserved: { tokens: 0 } }],
});
export const bundle = {
  base: '5f0c21a5b0f00a08', head: 'd2c4780e7cb55167', active: 'd2c4780e7cb55167', promoted: '5f0c21a5b0f00a08', pinned: false,
  probation: { since: at(0), turns: 1, failures: 0, isStarted: false }, files: [{ path: 'prompts/a.md', changesetId: 't.1-q0' }],
  changesets: [{ changesetId: 't.1-q0', state: 'waiting', base: '5f0c21a5b0f00a08', revision: 'd2c4780e7cb55167', message: 'shorter', summary: ['prompts/a.md changed'], openedAt: at(0) }],
};
const changesets = () => [
  { instanceKey: 'main', agentName: 'clerk', changeset: bundle.changesets[0] },
  { instanceKey: 'hostile', agentName: 'clerk', changeset: { ...bundle.changesets[0], message: HOSTILE[0], summary: [HOSTILE[1]], detail: HOSTILE[2] } },
];
export const workspace = () => ({
  workspaceId: WORKSPACE, projectRoot: '/srv/bot', entryAgent: 'clerk', agents: ['clerk', 'helper'], connections: ['hook'], runningAgents: 1,
  pendingEvents: 0, consents: ['OAuthApp/github'], configDigest: '3e1f0c5a'.repeat(8), configSince: at(0), watch: 'off',
  problem: { message: 'error[E_CONFIG_SYNTAX]: …', suggestion: 'fix it, then check it with `gdn validate /srv/bot`' },
});
export const processes = () => [
  { workspaceId: WORKSPACE, role: 'connector', name: 'hook', state: 'idle', readiness: 'notReady', pid: 4301, startedAt: at(0), consecutiveCrashes: 0, pendingEvents: 0, detail: 'cannot listen on 127.0.0.1:8080', memoryBytes: 6291456 },
  { workspaceId: WORKSPACE, role: 'agent', name: 'clerk', instanceKey: 'main', state: 'processing', pid: 4302, startedAt: at(0), consecutiveCrashes: 0, pendingEvents: 2, turnId: 't', memoryBytes: 9291456 },
];
export const logLine = (n, messageText = 'event accepted') => ({ timestamp: at(n * 10), level: n % 5 === 0 ? 'warn' : 'info', message: messageText, process: 'orchestrator', pid: 4242, workspaceId: WORKSPACE, instanceKey: 'main', eventId: `e${n}` });
export const waits = () => ({
  approvals: [approval, { ...approval, approvalId: 'a-11111111', toolName: 'mail__send', mayHaveBegun: true }],
  inputs: { 'a-7f3a9c21': { command: 'make release' }, 'a-11111111': { to: HOSTILE[0] } },
  calls: [unknown('main', 'c7', 'telegram__send', 'E_TOOL_INTERRUPTED: connection `telegram` ended during the call; outcome unknown'), unknown('hostile', 'c8', HOSTILE[0], HOSTILE[1])],
  questions: [question], form, events: [event('e-parked', 'parked'), event('e-paused', 'paused'), event('e-wait', 'waiting')],
  proposals: [proposal, submitted], tasks: [task, dear, large, shared, damaged, reviewed], changesets: changesets(), schedules: schedules(),
});

/** What connections and agents sent to each other. */
export const traffic = () => ({
  at: at(60_000), since: at(0),
  flows: [
    [['agent', 'clerk'], ['agent', 'helper'], 12, 59_000], [['agent', 'clerk'], ['connection', 'hook'], 128, 20_000],
    [['agent', 'helper'], ['agent', 'clerk'], 9, 30_000], [['connection', 'cli'], ['agent', 'clerk'], 3, 10_000], [['connection', 'hook'], ['agent', 'clerk'], 1402, 59_500],
  ].map(([from, to, count, ms]) => ({ from: { kind: from[0], name: from[1] }, to: { kind: to[0], name: to[1] }, count, lastAt: at(ms) })),
});

/** A proposal of 20,000 lines, and 50,000 things that the agent of a task reported. */
export const largeProposal = () => ({ ...proposal, runId: 'large', digest: 'a'.repeat(64) });
export const manyItems = () => Array.from({ length: 50_000 }, (_, n) => ({ at: at(n), run: 1, type: 'tool', id: `t${n}`, name: 'read', state: 'completed', input: `thing ${n}`, output: 'ok' }));

/** A conversation of so many turns, each of four messages, and what was recorded of them. */
export function longConversation(turns) {
  const messages = [];
  const events = [];
  for (let n = 0; n < turns; n += 1) {
    const [turnId, callId, ms] = [`n${n}`, `n${n}c`, n * 10_000];
    const steps = [`${turnId}.1`, `${turnId}.2`];
    messages.push(
      message(`${turnId}:u`, 'user', `Question ${n}: how many copies were sold on day ${n}?`, ms),
      message(`${turnId}:a1`, 'assistant', [
        { type: 'text', text: `I look it up in **orders**, day ${n}:\n\n* by title\n* by shop` },
        { type: 'tool-call', toolCallId: callId, toolName: 'bash__exec', input: { command: `grep -c ${n} orders.csv` } },
      ], ms + 1000, { type: 'assistant', stepId: steps[0] }),
      message(`${turnId}:r`, 'tool', [{ type: 'tool-result', toolCallId: callId, toolName: 'bash__exec', output: { type: 'text', value: `exit code: 0\n${n}\n` } }], ms + 2000, { type: 'tool', toolCallId: callId, toolName: 'bash__exec' }),
      message(`${turnId}:a2`, 'assistant', `Answer ${n}: ${n} copies were sold.`, ms + 3000, { type: 'assistant', stepId: steps[1] }),
    );
    const base = { traceId: n.toString(16).padStart(32, '0'), agentName: 'clerk', instanceKey: 'endless', turnId };
    const add = (type, more = {}) => events.push({ type, timestamp: at(ms), spanId: events.length.toString(16).padStart(16, '0'), ...base, ...more });
    add('turn.started', { eventId: `e${n}` });
    for (const stepId of steps) {
      add('step.started', { stepId });
      if (stepId === steps[0]) for (const type of ['tool.called', 'tool.completed']) add(type, { stepId, toolName: 'bash__exec' });
      add('step.completed', { stepId, durationMs: 900, costMicroUsd: 600 });
    }
    add('turn.completed', { eventId: `e${n}`, durationMs: 3000, costMicroUsd: 1200 });
  }
  return { messages, events };
}
