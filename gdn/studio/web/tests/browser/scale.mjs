// Ten thousand conversations: few rows in the document, wherever it was scrolled to; and what the page weighs.
// The latest trace is shown, too; one of 10,000 spans has to be laid out in 500 ms.
// `STUDIO_TOTAL` says how many conversations there are at least (10000 if it does not). Prints figures.
import { must, settled, shot, suite, url, visit, watched, WAIT_MS } from './lib.mjs';

const total = Number(process.env.STUDIO_TOTAL ?? 10_000);
const ROWS_MAX = 60;
const PAGE_GZIP_BYTES_MAX = 200_000;
const LAYOUT_MS_MAX = 500;

await suite('scale', async (browser) => {
  const context = await browser.newContext();
  const faults = await watched(context);
  const page = await context.newPage();
  page.setDefaultTimeout(WAIT_MS);
  const bodies = [];
  page.on('response', (response) => {
    if (new URL(response.url()).pathname.match(/^\/(assets\/.*)?$/)) bodies.push(response.body());
  });
  const beganMs = Date.now();
  await page.goto(url);
  await page.waitForSelector('[data-standing="live"]');
  const firstPaint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null);
  console.log(`first paint: ${firstPaint === null ? 'not told' : `${Math.round(firstPaint)} ms`}; live after ${Date.now() - beganMs} ms`);
  const { gzipSync } = await import('node:zlib');
  const weight = (await Promise.all(bodies)).reduce((sum, body) => sum + gzipSync(body, { level: 9 }).length, 0);
  console.log(`page by gzip: ${weight} bytes`);
  must(weight <= PAGE_GZIP_BYTES_MAX, `the page takes ${weight} bytes by gzip`);

  const listMs = Date.now();
  await visit(page, '#/conversations');
  await page.waitForSelector('.row .name');
  console.log(`list after ${Date.now() - listMs} ms`);
  const rows = () => page.locator('.row').count();
  const told = await page.getAttribute('.row', 'aria-setsize');
  must(Number(told) >= total, `the list says ${told} conversations, and there are ${total}`);
  let most = 0;
  for (const key of ['PageDown', 'End', 'PageUp', 'Home', 'ArrowDown']) {
    await page.focus('.rows');
    await page.keyboard.press(key);
    await settled(page);
    await page.waitForFunction(() => {
      const id = document.querySelector('.rows').getAttribute('aria-activedescendant');
      return id !== null && document.getElementById(id)?.querySelector('.name') !== null;
    });
    most = Math.max(most, await rows());
  }
  for (const part of [0.25, 0.5, 0.75, 1, 0]) {
    await page.$eval('.rows', (box, to) => { box.scrollTop = box.scrollHeight * to; }, part);
    await settled(page);
    most = Math.max(most, await rows());
  }
  console.log(`rows in the document, at most: ${most}`);
  must(most <= ROWS_MAX, `${most} rows are in the document`);
  await shot(page, 'scale');

  const traceMs = Date.now();
  await visit(page, '#/trace');
  if ((await page.locator('gdn-waterfall').count()) > 0) {
    await page.waitForSelector('gdn-waterfall canvas');
    console.log(`trace: its beginning is shown after ${Date.now() - traceMs} ms`);
    await page.waitForFunction(() => document.querySelector('[data-begun]') === null);
    const spans = Number((await page.textContent('main')).match(/([\d,]+) spans?/)[1].replaceAll(',', ''));
    const layoutMs = Number(await page.getAttribute('gdn-waterfall', 'data-layout-ms'));
    const shownMs = Date.now() - traceMs;
    console.log(`trace of ${spans} spans: laid out in ${layoutMs} ms, shown ${shownMs} ms after it was asked for`);
    if (spans >= 10_000) must(layoutMs <= LAYOUT_MS_MAX, `the trace is laid out in ${layoutMs} ms`);
    const rows = await page.locator('main tr').count();
    must(rows <= 200, `the table has ${rows} rows in the document`);
  }
  must(faults.length === 0, faults.join('\n'));
});
