// When the page is painted first, beside a page of one paragraph that another server of this machine has: the browser's
// own start of a page is the yardstick. And when the latest trace is shown after the click. `STUDIO_BEFORE` may name
// the address of another Studio to be measured in turns with this one, `STUDIO_ROUNDS` how often (15). Nothing is
// asserted about time: the machine can be busy. Prints figures.
import { createServer } from 'node:http';
import { must, suite, url, WAIT_MS } from './lib.mjs';

const rounds = Number(process.env.STUDIO_ROUNDS ?? 15);
const before = process.env.STUDIO_BEFORE ?? '';
const PARAGRAPH = '<!doctype html><html lang="en"><title>yardstick</title><p>Hello.</p></html>';

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

const told = (values) => `${Math.round(median(values))} ms (${Math.round(Math.min(...values))} to ${Math.round(Math.max(...values))})`;

/** When something was painted first, in milliseconds from the begin of the navigation. */
function firstPaint(page) {
  return page.evaluate(
    () =>
      new Promise((resolve) => {
        new PerformanceObserver((list) => {
          const paint = list.getEntriesByName('first-contentful-paint')[0];
          if (paint !== undefined) resolve(paint.startTime);
        }).observe({ type: 'paint', buffered: true });
      }),
  );
}

/** Logs in once; what it gives is what other pages begin with. */
async function loggedIn(browser, address) {
  const context = await browser.newContext();
  const page = await context.newPage();
  page.setDefaultTimeout(WAIT_MS);
  await page.goto(address);
  await page.waitForSelector('[data-standing="live"]');
  const session = await page.evaluate(() => sessionStorage.getItem('goondan.session'));
  await context.close();
  return { origin: new URL(address).origin, session };
}

/** A page as a person opens it who is logged in. */
async function painted(browser, { origin, session }) {
  const context = await browser.newContext();
  const page = await context.newPage();
  page.setDefaultTimeout(WAIT_MS);
  if (session !== undefined) await page.addInitScript((text) => sessionStorage.setItem('goondan.session', text), session);
  const beganMs = performance.now();
  await page.goto(`${origin}/`, { waitUntil: 'commit' });
  const paintMs = await firstPaint(page);
  let liveMs = 0;
  let traceMs = null;
  if (session !== undefined) {
    await page.waitForSelector('[data-standing="live"]');
    liveMs = performance.now() - beganMs;
    traceMs = await shownTrace(page);
  }
  await context.close();
  return { paintMs, liveMs, traceMs };
}

/** How long after the click the latest trace is on the screen, as the page itself sees it. */
async function shownTrace(page) {
  await page.waitForFunction(() => document.querySelector('main h1') !== null && !document.querySelector('main').textContent.includes('Reading…'));
  return page.evaluate(
    () =>
      new Promise((resolve) => {
        const beganMs = performance.now();
        document.querySelector('nav a[href^="#/trace"]').click();
        const look = () => {
          if (document.querySelector('gdn-waterfall canvas') === null) {
            if (document.querySelector('gdn-trace .failure') !== null) resolve(null);
            else requestAnimationFrame(look);
            return;
          }
          // A drawn change is visible after the next frame.
          requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - beganMs)));
        };
        look();
      }),
  );
}

await suite('paint', async (browser) => {
  const server = createServer((_, response) => response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' }).end(PARAGRAPH));
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const pages = new Map([['yardstick', { origin: `http://127.0.0.1:${server.address().port}`, session: undefined }]]);
  if (before !== '') pages.set('before', await loggedIn(browser, before));
  pages.set('studio', await loggedIn(browser, url));
  const figures = new Map([...pages.keys()].map((name) => [name, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (const [name, page] of pages) figures.get(name).push(await painted(browser, page));
  }
  server.close();
  for (const [name, all] of figures) {
    must(all.every(({ paintMs }) => paintMs > 0), `${name} was not painted`);
    console.log(`${name}: first paint after ${told(all.map(({ paintMs }) => paintMs))}`);
    if (name === 'yardstick') continue;
    console.log(`${name}: live after ${told(all.map(({ liveMs }) => liveMs))}`);
    const traces = all.map(({ traceMs }) => traceMs).filter((ms) => ms !== null);
    if (traces.length > 0) console.log(`${name}: trace shown after ${told(traces)}`);
  }
});
