// How soon the largest pages can be used: from their address until their content is painted and a key press would be
// handled. Prints the shortest and the median of several rounds for each page, and the longest time in the following
// second in which a key press would have to wait (median). `STUDIO_LIMIT_MS` is the most that the median may be; without
// it, figures are printed only, because the machine can be busy.
import { must, open, settled, suite, visit, watched } from './lib.mjs';

const PAGES = [
  ['10,000 conversations', '#/conversations', '.row .name'],
  ['trace of 10,000 spans', `#/trace/${'b'.repeat(32)}`, 'gdn-waterfall canvas'],
  ['patch of 20,000 lines', '#/proposals/large%2Fcoder', 'table.diff tr.added'],
  ['transcript of 50,000 events', '#/tasks/fix-the-login', '.stream .entry'],
  ['conversation of 10,000 messages', '#/conversation/endless', '[data-message]'],
];
const limitMs = Number(process.env.STUDIO_LIMIT_MS ?? Number.POSITIVE_INFINITY);
const ROUNDS = 7;
const AFTER_MS = 1000;

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

/** Opens a page by its address. */
function measure(page, hash, selector) {
  return page.evaluate(({ to, wanted, afterMs }) => new Promise((resolve) => {
    const tasks = [];
    const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries()));
    observer.observe({ type: 'longtask' });
    const beganMs = performance.now();
    location.hash = to;
    const look = () => {
      if (document.querySelector(wanted) === null) return requestAnimationFrame(look);
      // The frame is painted, and the next task is one of the priority of input.
      requestAnimationFrame(() => scheduler.postTask(() => {
        const usableMs = performance.now() - beganMs;
        setTimeout(() => {
          observer.disconnect();
          const later = tasks.filter(({ startTime }) => startTime >= beganMs + usableMs).map(({ duration }) => duration);
          resolve({ usableMs, waitMs: Math.max(0, ...later) });
        }, afterMs);
      }, { priority: 'user-blocking' }));
    };
    look();
  }), { to: hash, wanted: selector, afterMs: AFTER_MS });
}

await suite('interactive', async (browser) => {
  const context = await browser.newContext();
  const faults = await watched(context);
  const page = await open(context);
  await settled(page);
  const slow = [];
  for (const [name, hash, selector] of PAGES) {
    const rounds = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      await visit(page, '#/usage');
      rounds.push(await measure(page, hash, selector));
    }
    const usable = Math.round(median(rounds.map(({ usableMs }) => usableMs)));
    const wait = Math.round(median(rounds.map(({ waitMs }) => waitMs)));
    const shortest = Math.round(Math.min(...rounds.map(({ usableMs }) => usableMs)));
    console.log(`${name}: usable after ${shortest} ms, median ${usable} ms; then a key waits at most ${wait} ms`);
    if (usable > limitMs) slow.push(`${name} takes ${usable} ms`);
  }
  must(slow.length === 0, slow.join('\n'));
  must(faults.length === 0, faults.join('\n'));
});
