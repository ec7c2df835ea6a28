// Every page is opened and shown for a while; nothing is decided. `STUDIO_EXTRA` names more addresses, and
// `STUDIO_SHOW_MS` how long each page is open by its own clock (30,000): all its timers run, faster than the clock of the
// machine. Prints `ready reads`; any line continues. Then prints `ready read`: the driver compares what is stored before
// and after.
import { open, pageNames, ready, settled, suite, visit } from './lib.mjs';

const extra = (process.env.STUDIO_EXTRA ?? '').split(' ').filter((hash) => hash !== '');
const showMs = Number(process.env.STUDIO_SHOW_MS ?? 30_000);
/** Requests of the last timers are answered within this time, or later, when the next page is open. */
const REST_MS = 200;

await suite('reads', async (browser) => {
  const context = await browser.newContext();
  await context.clock.install();
  const page = await open(context);
  await settled(page);
  const names = await pageNames(page);
  await ready('reads');
  for (const hash of [...names.map((name) => `#/${name}`), ...extra]) {
    await visit(page, hash);
    await settled(page);
    // Also what is only shown on request.
    for (const summary of await page.$$('main details:not([open]) > summary')) await summary.click();
    await page.clock.runFor(showMs);
    await new Promise((resolve) => setTimeout(resolve, REST_MS));
  }
  await page.keyboard.press('Control+k');
  await page.waitForSelector('dialog.palette');
  await page.keyboard.type('a');
  await page.keyboard.press('Escape');
  await ready('read');
});
