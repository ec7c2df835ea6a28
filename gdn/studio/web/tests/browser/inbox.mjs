// The inbox over all workspaces, by the keyboard alone: counts in the title, links to items, a decision that another
// person made, dialogs that belong to their page, notifications, the palette and the search. Two calls wait at the
// start, one in each of two workspaces. Prints `ready inbox`; a line continues once a third one waits. `STUDIO_FIND` is
// a word of a message (`Dune`).
import { must, open, ready, settled, shot, suite, tabTo, visit, watched } from './lib.mjs';

const word = process.env.STUDIO_FIND ?? 'Dune';
const approvals = '.items > .item[data-kind="approval"]';

/** The items with these keys are gone. */
const gone = (page, id) => page.waitForFunction((one) => document.querySelector(`.items > [data-item="${one}"]`) === null, id);

await suite('inbox', async (browser) => {
  const context = await browser.newContext();
  const faults = await watched(context);
  await context.addInitScript(() => {
    window.shown = [];
    window.Notification = class {
      static permission = 'granted';
      static requestPermission = async () => 'granted';
      constructor(title, { body }) {
        window.shown.push(`${title}: ${body}`);
      }
    };
  });
  const page = await open(context);
  await settled(page);
  await page.waitForSelector(approvals);

  const inAll = new Set(await page.$$eval(`${approvals} > header .faint`, (all) => all.map((one) => one.textContent)));
  must(inAll.size === 2, `the calls are of ${[...inAll]}`);
  const count = await page.$$eval('.items > .item', (all) => all.length);
  must((await page.title()).startsWith(`(${count}) `), `the title is ${await page.title()}, and ${count} items wait`);
  const facts = await page.$$eval('.items > .item .facts', (all) => all.map((one) => one.textContent));
  must(facts.length === count && facts.every((text) => text.includes('Without a decision:')), `an item does not say its default: ${facts}`);

  // A notification, while nobody sees the page.
  await page.getByText('Notify me', { exact: true }).press('Enter');
  await page.waitForSelector('button[aria-pressed="true"]:text("Notify me")');
  await page.evaluate(() => Object.defineProperty(document, 'hidden', { value: true, configurable: true }));
  await ready('inbox');
  await page.evaluate(() => {
    delete document.hidden;
    Object.defineProperty(document, 'hidden', { value: false, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  });
  await page.waitForFunction((before) => document.querySelectorAll('.items > .item').length > before, count);

  // From the keyboard: to the first item, to the next one, and its first button.
  await tabTo(page, '.items > .item');
  await page.keyboard.press('j');
  await page.keyboard.press('k');
  const first = await page.evaluate(() => document.activeElement.dataset.item);
  must(first !== undefined, 'J and K do not move among the items');
  const [id] = await page.$$eval(approvals, (all) => all.map((one) => one.dataset.item));
  await page.evaluate((one) => document.querySelector(`.items > [data-item="${one}"]`).focus(), id);
  await page.keyboard.press('d');
  await page.waitForSelector('dialog[open]');
  const about = await page.textContent('dialog [data-about]');
  must(about.includes('Needs a person'), `the dialog is about ${about}`);
  // Another page ends the dialog of this one.
  await page.evaluate(() => { location.hash = '#/logs'; });
  await page.waitForFunction(() => document.querySelector('dialog') === null);
  await visit(page, '#/needs');
  await page.waitForSelector(approvals);

  // Two people on one item: the first decision counts, and the second person learns it.
  const other = await context.newPage();
  await other.goto(`${new URL(page.url()).origin}${new URL(page.url()).pathname}#/needs?item=${id}`);
  await other.waitForFunction((one) => document.activeElement?.dataset.item === one, id);
  await page.evaluate((one) => document.querySelector(`.items > [data-item="${one}"]`).focus(), id);
  await page.keyboard.press('a');
  await page.waitForFunction((one) => document.querySelector('.outcome')?.textContent.includes(one), id);
  await gone(page, id);
  await gone(other, id);
  await other.close();

  // The palette leads to a page, to a decision and to a conversation.
  await page.keyboard.press('Control+k');
  await page.waitForSelector('dialog.palette [role="option"]');
  await shot(page, 'palette');
  await page.keyboard.type('page logs');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => location.hash.startsWith('#/logs'));
  await page.keyboard.press('Control+k');
  await page.keyboard.type('conversation main');
  await page.waitForFunction(() => [...document.querySelectorAll('.palette [role="option"]')].some((one) => /Conversation\s+main/.test(one.textContent)));
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => location.hash.startsWith('#/conversation/main'));
  await page.keyboard.press('g');
  await page.keyboard.press('t');
  await page.waitForFunction(() => location.hash.startsWith('#/trace'));
  await page.keyboard.press('?');
  await page.waitForSelector('dialog[open] kbd');
  await page.keyboard.press('Escape');

  // The search finds a word of a message.
  await visit(page, '#/search');
  await page.keyboard.press('/');
  await page.keyboard.type(word);
  await page.keyboard.press('Enter');
  await page.waitForSelector('[data-over="true"]');
  const hits = await page.$$eval('.hits li', (all) => all.map((one) => one.textContent));
  must(hits.some((text) => text.includes('Message') && text.includes(word)), `nothing was found: ${hits}`);
  await page.locator('.hits li', { hasText: 'Message' }).first().locator('a').press('Enter');
  await page.waitForFunction(() => location.hash.startsWith('#/conversation/'));
  must(faults.length === 0, faults.join('\n'));
});
