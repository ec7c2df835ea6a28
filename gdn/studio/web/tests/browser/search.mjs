// The search of the server by the keyboard alone: hits lead to their places (a message far back in a conversation of
// 10,000, work of a task, a file of a patch, a span, lines of the log, a call of another workspace), more hits come on
// request, and leaving the page ends a search. Prints `ready running` while a search runs and `ready left` after the page
// was left; the driver's line is the number of running searches.
import { must, open, ready, settled, suite, visit, watched } from './lib.mjs';

const FAR_BACK = 'Question 7: how many';

/** Searches, and waits until the answer is complete. */
async function find(page, text) {
  await visit(page, '#/search');
  await page.keyboard.press('/');
  await page.keyboard.type(text);
  await page.keyboard.press('Enter');
  await page.waitForFunction((q) => new URLSearchParams(location.hash.split('?')[1]).get('q') === q, text);
  await page.waitForSelector('[data-over="true"]');
}

/** Follows a hit of a kind. */
async function follow(page, kind) {
  await page.locator('.hits li', { has: page.locator(`.kind:text-is("${kind}")`) }).first().locator('a').press('Enter');
}

const isSeen = (page, selector) => page.waitForFunction((one) => {
  const box = document.querySelector(one)?.getBoundingClientRect();
  return box !== undefined && box.bottom > 0 && box.top < innerHeight;
}, selector);

await suite('search', async (browser) => {
  const context = await browser.newContext();
  const faults = await watched(context);
  const page = await open(context);
  await settled(page);

  await find(page, FAR_BACK);
  await follow(page, 'Message');
  await isSeen(page, '[data-message="n7:u"].sought');
  must(await page.evaluate(() => document.activeElement.dataset.message === 'n7:u'), 'the message has no focus');
  const shown = await page.locator('[data-message]').count();
  must(shown < 1000, `${shown} messages are in the document`);

  await find(page, '1 test failed');
  await follow(page, 'Work of a task');
  await isSeen(page, '.stream .entry.sought');

  await find(page, 'src/b.rs');
  await follow(page, 'Patch');
  await isSeen(page, 'details[data-file="src/b.rs"] summary:focus');

  await find(page, 'event accepted');
  await follow(page, 'Log');
  await page.waitForSelector('.log tbody tr');
  must((await page.inputValue('main #search')) === 'event accepted', 'the log is not filtered');

  await find(page, 'chat-');
  must((await page.locator('.hits li').count()) === 100, 'an answer has another number of hits');
  await page.locator('button', { hasText: 'Continue the search' }).press('Enter');
  await page.waitForFunction(() => document.querySelectorAll('.hits li').length === 200);

  // The words of the other workspace's call.
  await find(page, 'DELETE from');
  await follow(page, 'Approval');
  await page.waitForSelector('.items > [data-item="a-22222222"]');

  await visit(page, '#/search?q=wait');
  await page.waitForSelector('[data-over="false"]');
  must((await ready('running')) === '1', 'no search runs');
  await visit(page, '#/usage');
  await settled(page);
  must((await ready('left')) === '0', 'the search runs after its page was left');
  await visit(page, '#/search?q=wait');
  await page.locator('button', { hasText: 'Stop' }).press('Enter');
  await page.waitForSelector('[data-over="true"]');
  must(faults.length === 0, faults.join('\n'));
});
