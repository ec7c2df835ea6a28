// The list of traces by the keyboard: it begins with the latest turn, also of a conversation with a long log, and goes
// back on request, in the order of time, with each turn once.
import { must, open, settled, suite, tabTo, visit, watched } from './lib.mjs';

/** Turns of the generated conversation `endless`. */
const TURNS = 2500;
const ROUNDS = 3;
/** Each row has three places to stop at. */
const PRESSES_MAX = 1000;

const earlier = 'main button[data-earlier]';

/** Ids of the listed traces, from the first row on. */
function listed(page) {
  return page.$$eval('main input[type="checkbox"]', (boxes) => boxes.map((box) => box.getAttribute('aria-label').replace('Compare ', '')));
}

await suite('traces', async (browser) => {
  const context = await browser.newContext();
  const faults = await watched(context);
  const page = await open(context);
  await settled(page);
  await visit(page, '#/trace');
  await page.waitForSelector(earlier);

  const idOf = (turn) => turn.toString(16).padStart(32, '0');
  let before = await listed(page);
  must(before.includes(idOf(TURNS - 1)), 'the latest turn of a long log is not listed');
  must(!before.includes(idOf(0)), 'the first turn of a long log is listed at once');
  for (let round = 0; round < ROUNDS; round += 1) {
    await tabTo(page, earlier, PRESSES_MAX);
    await page.keyboard.press('Enter');
    await page.waitForFunction((rows) => document.querySelectorAll('main input[type="checkbox"]').length > rows, before.length);
    await page.waitForSelector(`${earlier}:enabled`);
    const now = await listed(page);
    must(new Set(now).size === now.length, 'a turn is listed twice');
    const turns = now.map((id) => Number.parseInt(id, 16)).filter((turn) => turn < TURNS);
    must(turns.every((turn, at) => at === 0 || turn === turns[at - 1] - 1), `turns are missing or not in order: ${turns.slice(0, 9)}`);
    before = now;
  }
  must((await page.locator('main [aria-label^="Turns of the 100 conversations of "]').count()) === 1, 'further conversations were not read');
  must(faults.length === 0, faults.join('\n'));
});
