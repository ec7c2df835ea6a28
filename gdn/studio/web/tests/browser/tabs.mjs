// Eight tabs of a browser have one stream; when the tab that reads it is closed, another continues. Lines: prints
// `ready tabs`; the driver makes an event happen in the workspace, and answers with any line. A tab that is not logged
// in says what to type.
import { must, open, ready, suite, url, watched, WAIT_MS } from './lib.mjs';

const TABS = 8;

await suite('tabs', async (browser) => {
  const context = await browser.newContext();
  const faults = await watched(context);
  const streams = new Map();
  const count = (request, by) => {
    if (!request.url().endsWith('/api/stream')) return;
    const page = request.frame().page();
    streams.set(page, (streams.get(page) ?? 0) + by);
  };
  context.on('request', (request) => count(request, 1));
  context.on('requestfinished', (request) => count(request, -1));
  context.on('requestfailed', (request) => count(request, -1));
  const open_ = () => [...streams].filter(([page, n]) => n > 0 && !page.isClosed());

  const pages = [await open(context)];
  const { origin } = new URL(pages[0].url());
  while (pages.length < TABS) {
    const page = await context.newPage();
    page.setDefaultTimeout(WAIT_MS);
    // Without a ticket: the tab has the token of another one.
    await page.goto(`${origin}/`);
    await page.waitForSelector('[data-standing="live"]');
    pages.push(page);
  }
  must(open_().length === 1, `${open_().length} tabs have a stream of their own`);
  await ready('tabs');
  const [leader] = open_()[0];
  await leader.close();
  const rest = pages.filter((page) => page !== leader);
  const endsMs = Date.now() + WAIT_MS;
  while (open_().length !== 1 && Date.now() < endsMs) await new Promise((resolve) => setTimeout(resolve, 50));
  must(open_().length === 1, `after the reader was closed, ${open_().length} tabs have a stream`);
  for (const page of rest) {
    await page.waitForSelector('[data-standing="live"]');
    await page.waitForSelector('h1');
  }

  // A browser that was never logged in, and a ticket that was used.
  const stranger = await browser.newContext();
  for (const address of [`${origin}/`, url]) {
    const page = await stranger.newPage();
    await page.goto(address);
    await page.waitForSelector('main.locked [role="alert"]', { timeout: WAIT_MS });
    const text = await page.textContent('main');
    must(text.includes('gdn studio'), `a page that is not logged in says: ${text}`);
    must(!page.url().includes('t='), 'a ticket that was used stays in the address');
  }
  await stranger.close();
  must(faults.length === 0, faults.join('\n'));
});
