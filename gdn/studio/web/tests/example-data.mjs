// Data of the fake server for the pictures of the documentation: a bookshop, instead of hostile text and ten thousand
// spans.
import { at, message } from './fake-data.mjs';

const DIFF = `--- a/text/bees.txt
+++ b/text/bees.txt
@@ -1,3 +1,3 @@
-Teh hive wakes.
+The hive wakes.
 A hive may hold 50,000 bees.
 One bee visits some 2,000 flowers a day.
`;

const calls = (id, toolName, input) => ({ type: 'tool-call', toolCallId: id, toolName, input });
const returns = (id, toolName, value) => [{ type: 'tool-result', toolCallId: id, toolName, output: { type: 'text', value } }];

const main = [
  message('t:u', 'user', 'How many copies of Dune were sold, and what did they earn?', 0),
  message('t.1:a', 'assistant', [{ type: 'text', text: 'The orders are there; I add them up.' }, calls('c1', 'bash__exec', { command: "awk -F, '/Dune/ { copies += $4 } END { print copies }' orders.csv" })], 900, { type: 'assistant', stepId: 't.1' }),
  message('t.1:r', 'tool', returns('c1', 'bash__exec', 'exit code: 0\nstdout:\n25\n'), 1100),
  message('t.2:a', 'assistant', '25 copies of Dune were sold, and they earned 244.70 euros.', 2300),
];

/** A turn of the clerk that asks the researcher, who reads two files. */
function trace() {
  const spans = [
    [1, 0, 'turn', 'clerk', 0, 2400],
    [2, 1, 'step', 'clerk', 10, 890],
    [3, 2, 'agents__request', 'clerk', 640, 250],
    [4, 3, 'turn', 'researcher', 655, 220],
    [5, 4, 'step', 'researcher', 660, 140],
    [6, 5, 'file-system__read', 'researcher', 765, 12],
    [7, 5, 'file-system__read', 'researcher', 765, 30],
    [8, 4, 'step', 'researcher', 805, 65],
    [9, 1, 'step', 'clerk', 905, 900],
    [10, 9, 'bash__exec', 'clerk', 1500, 190],
    [11, 9, 'http-fetch__get', 'clerk', 1500, 300],
    [12, 1, 'step', 'clerk', 1810, 580],
  ];
  const hex = (n) => n.toString(16).padStart(16, '0');
  const events = spans.flatMap(([id, parent, what, agentName, ms, durationMs]) => {
    const kind = what === 'turn' || what === 'step' ? what : 'tool';
    const base = {
      traceId: '5f0c21a5b0f00a08d2c4780e7cb55167', agentName, instanceKey: agentName === 'clerk' ? 'main' : `${agentName}:main`, turnId: `t-${agentName}`, spanId: hex(id),
      ...(parent === 0 ? {} : { parentSpanId: hex(parent) }), ...(kind === 'tool' ? { toolName: what } : {}), ...(kind === 'step' ? { stepId: `t.${id}` } : {}),
    };
    return [
      { ...base, type: kind === 'tool' ? 'tool.called' : `${kind}.started`, timestamp: at(ms) },
      { ...base, type: `${kind}.completed`, timestamp: at(ms + durationMs), durationMs },
    ];
  });
  return events.sort((a, b) => (a.timestamp < b.timestamp ? -1 : a.timestamp > b.timestamp ? 1 : 0));
}

/** Has a fake daemon tell of the bookshop. */
export function asInTheDocs(daemon) {
  const [release, mail] = daemon.approvals;
  daemon.approvals = [
    { ...release, toolCallId: 'c9', summary: '{"command":"git push origin main"}', askedAt: at(120_000) },
    { ...mail, toolCallId: 'c8', instanceKey: 'chat-00005', summary: '{"to":"ada@example.org","subject":"Your order"}', askedAt: at(200_000), mayHaveBegun: false },
  ];
  daemon.inputs = { [release.approvalId]: { command: 'git push origin main' }, [mail.approvalId]: { to: 'ada@example.org', subject: 'Your order' } };
  daemon.questions = daemon.questions.map((one) => ({ ...one, message: 'Which size shall it be?' }));
  daemon.waiting = daemon.waiting.map((one) => ({ ...one, instanceKey: 'chat-00007' }));
  daemon.schedules = [];
  daemon.histories.set('main', main);
  daemon.tasks = daemon.tasks.filter((one) => one.taskId !== 'fix');
  daemon.proposals = daemon.proposals.filter((one) => one.runId !== 'fix').map((one) => ({
    ...one, notes: 'submitted by agent `anna` in `anna:main`', summary: 'Corrected the spelling.\n',
    files: [{ path: 'text/bees.txt', status: 'modified', oldBytes: 86, newBytes: 86 }],
    comments: [{ number: 1, at: at(180_000), digest: one.digest, path: 'text/bees.txt', line: 2, text: 'Where does the number come from?', state: 'open' }],
  }));
  const change = '--- src/login.js\n+++ src/login.js\n@@ line 12 @@\n-const address = /^[a-z0-9.]+@/;\n+const address = /^[a-z0-9.+]+@/;\n';
  daemon.taskAsks = daemon.taskAsks.map((one) => (one.kind === 'permission' ? { ...one, text: `Edit:\n${change}` } : one));
  const events = trace();
  const answers = {
    'trace.page': { traceId: events[0].traceId, events, partial: false },
    'proposal.diff': { data: Buffer.from(DIFF).toString('base64'), total: DIFF.length },
  };
  const others = daemon.call.bind(daemon);
  // The turn of the list is another trace, for the comparison.
  const isOther = (method, params) => method === 'trace.page' && params.of === 'a'.repeat(32);
  daemon.call = (method, params) => (method in answers && !isOther(method, params) ? { result: answers[method] } : others(method, params));
}
