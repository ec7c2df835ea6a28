// Other decisions with the keyboard: approves a change to an agent's own configuration, increases the budget of a task,
// and settles a call with an unknown outcome. Lines: prints `ready needs`; any line continues (a changeset must be
// waiting, and a task over its budget); prints `approved <changeset>`, and, if they existed, `raised` and `settled
// <call>`.
import { must, open, ready, settled, shot, suite, tabTo, visit, watched } from './lib.mjs';

/** Presses the button of an item that says that. */
async function press(page, item, label) {
  await tabTo(page, `[data-item="${item}"] button[aria-label^="${label}"]`);
  await page.keyboard.press('Enter');
}

async function outcome(page) {
  await page.waitForSelector('.outcome:not(:empty)');
  return page.textContent('.outcome');
}

await suite('needs', async (browser) => {
  const context = await browser.newContext();
  const faults = await watched(context);
  const page = await open(context);
  await ready('needs');
  await settled(page);

  const decide = '[data-item] button[aria-label^="Approve…"]';
  await page.waitForSelector(decide);
  const changeset = await page.evaluate((at) => document.querySelector(at).closest('[data-item]').dataset.item, decide);
  await press(page, changeset, 'Show the patch');
  await page.waitForSelector(`[data-item="${changeset}"] .diff`);
  await page.waitForFunction(() => document.activeElement?.tagName === 'H1');
  await press(page, changeset, 'Approve…');
  await page.waitForSelector('dialog[open]');
  await page.keyboard.type('as agreed');
  await shot(page, 'needs-changeset');
  await tabTo(page, 'dialog button[type="submit"]');
  await page.keyboard.press('Enter');
  await page.waitForFunction((id) => document.querySelector('.outcome')?.textContent.includes(`${id} is committed`), changeset);
  await page.waitForFunction((at) => document.querySelectorAll(at).length <= 1, decide);
  console.log(`approved ${changeset}`);

  const raise = '[data-item] button[aria-label^="Increase its budget"]';
  const task = await page.evaluate((at) => document.querySelector(at)?.closest('[data-item]').dataset.item ?? null, raise);
  if (task !== null) {
    await press(page, task, 'Increase its budget');
    await page.waitForSelector('dialog #tokens');
    await page.fill('dialog #tokens', '200000');
    await shot(page, 'needs-budget');
    await page.keyboard.press('Enter');
    const said = await outcome(page);
    await page.waitForFunction((id) => document.querySelector('.outcome')?.textContent.includes(`${id} has a new budget`), task);
    must(said !== '', 'nothing is said of the budget');
    await page.waitForFunction((id) => document.querySelector(`[data-item="${id}"]`) === null, task);
    console.log('raised');
  }

  const looked = '[data-item] button[aria-label^="Settle…"]';
  const call = await page.evaluate((at) => document.querySelector(at)?.closest('[data-item]').dataset.item ?? null, looked);
  if (call !== null) {
    await press(page, call, 'Settle…');
    await page.waitForSelector('dialog #note');
    await page.keyboard.type('it was sent');
    await shot(page, 'needs-call');
    await tabTo(page, 'dialog button[type="submit"]');
    await page.keyboard.press('Enter');
    await page.waitForFunction((id) => document.querySelector('.outcome')?.textContent.includes(`(${id}) is settled`), call);
    await page.waitForFunction((id) => document.querySelector(`[data-item="${id}"]`) === null, call);
    console.log(`settled ${call}`);
  }

  await visit(page, '#/conversation/main');
  const move = 'button[aria-label^="Move up "]';
  if ((await page.locator(move).count()) > 0) {
    const order = () => page.$$eval('button[aria-label^="Resume "], button[aria-label^="Pause "]', (all) => all.map((one) => one.getAttribute('aria-label').split(' ')[1]));
    const before = await order();
    await tabTo(page, move);
    await page.keyboard.press('Enter');
    await page.waitForFunction((was) => {
      const all = [...document.querySelectorAll('button[aria-label^="Resume "], button[aria-label^="Pause "]')];
      return all.map((one) => one.getAttribute('aria-label').split(' ')[1]).join() === [was[1], was[0]].join();
    }, before);
    console.log('moved');
  }
  must(faults.length === 0, faults.join('\n'));
});
