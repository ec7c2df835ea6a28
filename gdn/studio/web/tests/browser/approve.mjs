// Approves a waiting call with the keyboard, and checks the outcome. Lines: prints `ready approve`; any line continues
// (a call must be waiting); prints `approved <id>`.
import { must, open, ready, settled, shot, suite, tabTo, watched } from './lib.mjs';

await suite('approve', async (browser) => {
  const context = await browser.newContext();
  const faults = await watched(context);
  const page = await open(context);
  await ready('approve');
  await settled(page);
  await page.waitForSelector('.item[data-item^="a-"]');
  await shot(page, 'approve-before');
  await tabTo(page, '.item[data-item^="a-"]');
  const id = await page.evaluate(() => document.activeElement.dataset.item);
  const shown = await page.textContent(`[data-item="${id}"] pre`);
  must(shown.trim() !== '', 'the arguments are not shown');
  await tabTo(page, `[data-item="${id}"] button.primary`);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.outcome:not(:empty)');
  const outcome = await page.textContent('.outcome');
  must(outcome.includes(id) && outcome.includes('approved'), `the outcome says: ${outcome}`);
  await page.waitForFunction((gone) => document.querySelector(`[data-item="${gone}"]`) === null, id);
  await page.waitForFunction(() => document.querySelector('[role="status"]').textContent.includes('approved'));
  await page.waitForFunction(() => document.activeElement?.tagName === 'H1');
  must(faults.length === 0, faults.join('\n'));
  await shot(page, 'approve-after');
  console.log(`approved ${id}`);
});
