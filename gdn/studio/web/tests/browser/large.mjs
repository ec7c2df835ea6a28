// A patch of 20,000 lines, and a task whose agent reported 50,000 things: each is usable soon, beside a small one, and
// few of its rows are in the document. `STUDIO_LARGE` is the address of the proposal, `STUDIO_SMALL` that of a small one,
// and `STUDIO_STREAM` a task. Ratios are compared, because the machine can be busy. Prints figures.
import { must, open, settled, suite, visit, watched } from './lib.mjs';

const large = process.env.STUDIO_LARGE ?? '#/proposals/large%2Fcoder';
const small = process.env.STUDIO_SMALL ?? '#/proposals/r1%2Fcoder';
const stream = process.env.STUDIO_STREAM ?? '#/tasks/fix-the-login';
/** How much longer the large one may take. */
const RATIO_MAX = 12;
const ROWS_MAX = 2500;
const ENTRIES_MAX = 500;
const ROUNDS = 5;

/** From the address to the first line, as the page sees it, in milliseconds; the shortest of several is the page's own. */
async function shownAfter(page, hash, selector) {
  const times = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    await visit(page, '#/usage');
    times.push(await page.evaluate(({ to, wanted }) => new Promise((resolve) => {
      const beganMs = performance.now();
      location.hash = to;
      const look = () => {
        if (document.querySelector(wanted) === null) requestAnimationFrame(look);
        else requestAnimationFrame(() => resolve(performance.now() - beganMs));
      };
      look();
    }), { to: hash, wanted: selector }));
  }
  return Math.min(...times);
}

await suite('large', async (browser) => {
  const context = await browser.newContext();
  const faults = await watched(context);
  const page = await open(context);
  await settled(page);
  const lines = 'table.diff tr.added';
  const smallMs = await shownAfter(page, small, lines);
  const largeMs = await shownAfter(page, large, lines);
  console.log(`patch: small ${Math.round(smallMs)} ms, large ${Math.round(largeMs)} ms`);
  must(largeMs < Math.max(smallMs, 50) * RATIO_MAX, `the large patch takes ${largeMs} ms, and the small one ${smallMs} ms`);
  for (const side of ['Unified', 'Side by side', 'Unified']) {
    await page.getByText(side, { exact: true }).click();
    const beganMs = await page.evaluate(() => performance.now());
    await page.locator('td.at button').first().focus();
    await page.keyboard.press('End');
    await page.waitForFunction(() => document.activeElement?.textContent === '20000');
    const endMs = await page.evaluate((began) => performance.now() - began, beganMs);
    await settled(page);
    const rows = await page.locator('table.diff tr').count();
    console.log(`${side}: the last line has the focus after ${Math.round(endMs)} ms, ${rows} rows in the document`);
    must(rows <= ROWS_MAX, `${rows} rows are in the document`);
  }

  const beganMs = Date.now();
  await visit(page, stream);
  await page.waitForSelector('[data-stream="live"], [data-stream="over"]');
  await page.waitForFunction(() => document.querySelector('.stream')?.textContent.includes('thing 49999'));
  const entries = await page.locator('.stream .entry').count();
  console.log(`transcript: the end is shown after ${Date.now() - beganMs} ms, ${entries} entries in the document`);
  must(entries <= ENTRIES_MAX, `${entries} entries are in the document`);
  const keyMs = await page.evaluate(async () => {
    const field = document.querySelector('#message');
    field?.focus();
    const at = performance.now();
    document.execCommand('insertText', false, 'x');
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    return performance.now() - at;
  });
  console.log(`a typed character is shown after ${Math.round(keyMs)} ms`);
  must(faults.length === 0, faults.join('\n'));
});
