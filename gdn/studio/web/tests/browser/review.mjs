// A person reviews the result of a task on its page. The task `fix` has a proposal that adds `src/b.rs` (three lines,
// the second one is `    // long`), changes `src/a.rs` and deletes `old.md`. Prints `ready review`; any line continues.
// Comments on lines with the keyboard and with the mouse, removes a comment, and requests changes without more words.
// Then the agent shortens `src/b.rs` to one line. Prints `ready reworked` once the new proposal is shown.
import { must, open, ready, settled, shot, suite, tabTo, visit, watched } from './lib.mjs';

const file = (page, path) => page.locator(`details[data-file="${path}"]`);

/** Waits for a comment with this text in a file. */
const comment = (page, path, text) => file(page, path).locator('[data-comment]', { hasText: text });

await suite('review', async (browser) => {
  const context = await browser.newContext({ reducedMotion: 'reduce' });
  const faults = await watched(context);
  const page = await open(context);
  await ready('review');
  await visit(page, '#/tasks/fix');
  const added = file(page, 'src/b.rs');
  await added.locator('tr.added').nth(2).waitFor();
  must((await added.locator('tr.added .sign').first().textContent()) === '+', 'an added line has no sign');
  must((await file(page, 'old.md').locator('tr.removed .sign').textContent()) === '-', 'a removed line has no sign');
  const long = file(page, 'src/long.rs');
  if ((await long.count()) > 0) {
    must((await long.locator('tr').count()) === 0, 'the lines of a long file are shown before it is unfolded');
    await long.locator('summary').click();
    // Only the lines near the visible ones are in the document; the End key leads to the last one.
    await long.locator('td button').first().focus();
    await page.keyboard.press('End');
    await page.waitForFunction(() => document.activeElement?.textContent === '600');
    must((await long.locator('tr.added').count()) < 600, 'all lines of a long file are in the document');
  }

  // The tree leads to a file, and back.
  await page.locator('.tree button', { hasText: 'a.rs' }).press('Enter');
  await page.waitForFunction(() => document.activeElement?.closest('details')?.dataset.file === 'src/a.rs');
  // In two columns, a line stands beside the one that replaces it.
  await page.getByText('Side by side', { exact: true }).press('Enter');
  const beside = file(page, 'src/a.rs').locator('tr', { has: page.locator('td.removed') });
  must((await beside.locator('td.added').count()) === 2, 'the new line is not beside the old one');
  await page.getByText('Unified', { exact: true }).press('Enter');
  await added.locator('tr.added').nth(2).waitFor();

  // With the keyboard: Tab to the lines of the file, the arrow keys to a line, Enter.
  await page.evaluate(() => document.querySelector('details[data-file="src/b.rs"] > summary').focus());
  await tabTo(page, 'details[data-file="src/b.rs"] td button', 3);
  await page.keyboard.press('ArrowDown');
  must((await page.evaluate(() => document.activeElement.textContent)) === '2', 'the arrow key does not move to the next line');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.activeElement?.tagName === 'TEXTAREA');
  await page.keyboard.type('Shorter: one <b>line</b>.');
  await page.keyboard.press('Control+Enter');
  await comment(page, 'src/b.rs', 'Shorter: one <b>line</b>.').waitFor();
  const above = await added.locator('tr.notes').evaluate((row) => row.previousElementSibling.textContent);
  must(above.includes('// long'), `the comment is below ${above}`);
  await page.waitForFunction(() => document.activeElement?.getAttribute('aria-label') === 'Comment on line 2, added');

  // With the mouse, on a line that is gone. Escape leaves another one without a comment.
  // The keyboard is used once the focus has moved, which can be later than the click.
  const isTyping = () => page.waitForFunction(() => document.activeElement?.tagName === 'TEXTAREA');
  await file(page, 'old.md').locator('tr.removed .code').click();
  await isTyping();
  await page.keyboard.type('Why?');
  await file(page, 'old.md').locator('button[type="submit"]').click();
  await comment(page, 'old.md', 'Why?').waitFor();
  await page.waitForFunction(() => document.activeElement?.getAttribute('aria-label') === 'Comment on line 1, removed');
  await file(page, 'src/a.rs').locator('tr.added .code').click();
  await isTyping();
  await page.keyboard.type('Never mind.');
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => document.querySelector('[data-draft]') === null);
  await file(page, 'src/a.rs').getByText('Comment on the file', { exact: true }).click();
  await isTyping();
  await page.keyboard.type('Not this.');
  await page.keyboard.press('Control+Enter');
  await comment(page, 'src/a.rs', 'Not this.').getByText('Remove', { exact: true }).click();
  await comment(page, 'src/a.rs', 'Not this.').waitFor({ state: 'detached' });
  await shot(page, 'review');

  await page.getByText('Request changes…', { exact: true }).click();
  await page.locator('dialog', { hasText: 'receives 2 comments' }).waitFor();
  await page.click('dialog button[type="submit"]');
  await page.locator('.outcome', { hasText: 'with 2 comments' }).waitFor();
  await file(page, 'src/b.rs').locator('tr.added .code', { hasText: 'fn b() {}' }).waitFor();
  await comment(page, 'src/b.rs', 'this proposal addresses it').waitFor();
  await settled(page);
  must((await page.locator('main [data-comment] :is(b, img, script)').count()) === 0, 'a comment is more than text');
  await shot(page, 'reworked');
  await ready('reworked');
  must(faults.length === 0, faults.join('\n'));
});
