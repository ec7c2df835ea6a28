// A whole conversation by the keyboard alone: a long text is shown whole, the conversation is exported, and deleted.
// `STUDIO_CONVERSATION` names it (`whole` if it does not). A text in it has more than 5,000 characters and ends with
// `THE END`. Prints `exported <lines>` and `deleted`.
import { readFile } from 'node:fs/promises';
import { must, open, settled, suite, tabTo, visit, watched } from './lib.mjs';

const key = process.env.STUDIO_CONVERSATION ?? 'whole';

await suite('whole', async (browser) => {
  const context = await browser.newContext({ acceptDownloads: true });
  const faults = await watched(context);
  const page = await open(context);
  await visit(page, `#/conversation/${key}`);
  await settled(page);
  const isWhole = () => page.evaluate(() => document.querySelector('.messages').textContent.includes('THE END'));
  await page.waitForSelector('article button[aria-expanded="false"]');
  must(!(await isWhole()), 'a long text is shown whole at once');
  await tabTo(page, 'article button[aria-expanded]');
  await page.keyboard.press('Enter');
  await page.waitForSelector('article button[aria-expanded="true"]');
  must(await isWhole(), 'the long text is not shown whole');
  must(await page.evaluate(() => document.activeElement?.matches('article button[aria-expanded]')), 'the focus is gone from the button');

  const button = (label) => page.locator('.actions button', { hasText: label });
  await button('Export').focus();
  const [download] = await Promise.all([page.waitForEvent('download'), page.keyboard.press('Enter')]);
  must(download.suggestedFilename() === `${key}.jsonl`, `the file is called ${download.suggestedFilename()}`);
  const archive = await readFile(await download.path(), 'utf8');
  must(archive.includes('THE END') && archive.trimEnd().split('\n').at(-1).startsWith('{"end"'), 'the archive is not whole');
  await page.waitForFunction(() => document.querySelector('.outcome')?.textContent.includes('.jsonl has '));
  console.log(`exported ${archive.trimEnd().split('\n').length}`);

  await button('Delete…').focus();
  await page.keyboard.press('Enter');
  await page.waitForSelector('dialog[open]');
  must(await page.evaluate(() => document.activeElement?.textContent === 'Cancel'), 'the first choice is not to cancel');
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => document.querySelector('dialog') === null);
  must(await isWhole(), 'the conversation is gone though nobody wanted it');
  await button('Delete…').focus();
  await page.keyboard.press('Enter');
  await tabTo(page, 'dialog button.danger');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => location.hash.startsWith('#/conversations'));
  await settled(page);
  const isListed = await page.evaluate((gone) => [...document.querySelectorAll('.row .name')].some((one) => one.textContent === gone), key);
  must(!isListed, 'the conversation is still in the list');
  console.log('deleted');
  must(faults.length === 0, faults.join('\n'));
});
