// The page shows a reply while it is streamed, and then the message instead. Prints `ready live`, and is told how many
// `pieces` come in the conversation `main`, each with the time at which it was sent, and how many `messages` that
// makes. Prints `ready said TEXT` once all of them were seen.
import { must, open, ready, shot, suite, visit, watched } from './lib.mjs';

await suite('live', async (browser) => {
  const context = await browser.newContext();
  const faults = await watched(context);
  const page = await open(context);
  await visit(page, '#/conversation/main');
  const before = await page.$$eval('[data-message]', (all) => all.length);
  await page.evaluate(() => {
    window.delays = [];
    window.said = '';
    const look = () => {
      const said = document.querySelector('[data-reply] [data-text]')?.textContent ?? '';
      if (said === window.said) return;
      // Only what is new counts.
      const more = said.startsWith(window.said) ? said.slice(window.said.length) : said;
      for (const [, at] of more.matchAll(/@(\d+);/g)) window.delays.push(Date.now() - Number(at));
      if (said !== '') window.said = said;
    };
    new MutationObserver(look).observe(document.querySelector('main'), { subtree: true, childList: true, characterData: true });
  });
  const expected = JSON.parse(await ready('live'));
  await page.waitForFunction((pieces) => window.delays.length === pieces, expected.pieces);
  const said = await page.evaluate(() => window.said);
  await ready(`said ${said}`);
  await page.waitForFunction((count) => document.querySelectorAll('[data-message]').length === count, before + expected.messages);
  await page.waitForFunction(() => document.querySelector('[data-reply]') === null);
  const delays = await page.evaluate(() => window.delays);
  // A long message is shortened until it is expanded.
  const all = page.locator('[data-message]').last().locator('button[aria-expanded]');
  if ((await all.count()) > 0) {
    await all.click();
    await page.waitForSelector('[data-message] button[aria-expanded="true"]');
  }
  const last = await page.$$eval('[data-message]', (messages) => messages.at(-1).querySelector('[data-text] .text').textContent);
  must(last === said, 'the message is another than what was said');
  delays.sort((one, other) => one - other);
  const at = (part) => delays[Math.min(delays.length - 1, Math.floor(delays.length * part))];
  console.log(`piece to page: ${at(0.5)} ms at the median, ${at(0.99)} ms at p99, ${delays.at(-1)} ms at most, of ${delays.length}`);
  must(faults.length === 0, faults.join('\n'));
  await shot(page, 'live');
});
