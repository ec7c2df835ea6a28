// A person moves the message that is due later in the conversation `main`, and removes it; another person removes a
// recurring one. Lines: prints `ready schedules`, and reads the ids of both; prints `ready moved`, and any line
// continues; prints `ready removed`, and any line continues after the recurring one was removed elsewhere.
import { must, open, ready, shot, suite, tabTo, visit, watched } from './lib.mjs';

const DAY_MS = 86_400_000;
/** Ten days from now, at half past eight in the time zone of the browser, which has no summer time. */
const day = new Date(Date.now() + 10 * DAY_MS).toISOString().slice(0, 10);
const NEW_TIME = `${day}T08:30`;
const NEW_INSTANT = `${day}T00:30:00.000Z`;

const table = '[aria-label="Schedules"]';

/** Text of a schedule's row; null without one. */
function row(page, id) {
  return page.evaluate(([at, wanted]) => [...document.querySelectorAll(`${at} tbody tr`)]
    .find((one) => one.querySelector(`[aria-label$="${wanted}"]`) !== null)?.textContent ?? null, [table, id]);
}

async function press(page, label) {
  await tabTo(page, `button[aria-label="${label}"]`);
  await page.keyboard.press('Enter');
  await page.waitForSelector('dialog[open]');
}

await suite('schedules', async (browser) => {
  const context = await browser.newContext({ timezoneId: 'Asia/Singapore' });
  const faults = await watched(context);
  const page = await open(context);
  const [once, often] = (await ready('schedules')).split(' ');

  await visit(page, '#/conversations');
  await page.getByText(/^Schedules \(/).click();
  must((await row(page, once)) !== null, 'the page of all conversations does not list the schedule');
  await page.locator(`${table} a`).first().click();
  await page.waitForSelector('h1:has-text("Conversation ")');
  await visit(page, '#/conversation/main');
  const before = await row(page, once);
  must(before?.includes('a person'), `the row of the schedule is ${before}`);
  must((await page.locator(`[aria-label="Move… ${often}"]`).count()) === 0, 'a recurring schedule can be moved');
  await shot(page, 'schedules');

  await press(page, `Move… ${once}`);
  must((await page.textContent('dialog')).includes(once), 'the dialog does not name the schedule');
  await page.fill('dialog #at', NEW_TIME);
  await shot(page, 'schedules-move');
  await page.keyboard.press('Enter');
  await page.waitForFunction((id) => document.querySelector('.outcome')?.textContent.includes(`${id} is due `), once);
  must((await page.locator(`${table} time[datetime="${NEW_INSTANT}"]`).count()) === 1, 'the new time is not shown');
  must((await ready('moved')) !== null, 'the driver ended');

  await press(page, `Remove… ${once}`);
  must((await page.textContent('dialog')).includes(once), 'the dialog does not name the schedule');
  await shot(page, 'schedules-remove');
  await tabTo(page, 'dialog button[type="submit"]');
  await page.keyboard.press('Enter');
  await page.waitForFunction((id) => document.querySelector('.outcome')?.textContent.includes(`${id} was removed`), once);
  must((await row(page, once)) === null, 'the removed schedule is still listed');
  must((await row(page, often)) !== null, 'the other schedule is gone');

  must((await ready('removed')) !== null, 'the driver ended');
  await page.waitForFunction((at) => document.querySelector(at) === null, table);
  must((await page.locator('h2:has-text("Schedules")').count()) === 0, 'the section is shown without a schedule');
  must(faults.length === 0, faults.join('\n'));
});
