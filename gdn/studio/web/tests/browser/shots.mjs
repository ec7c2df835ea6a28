// The pictures of the documentation: pages as a person sees them who has agents at work, and every page in both themes
// for the gallery. `STUDIO_SHOTS` is the folder. For reproducible pictures, the clock is fixed and nothing moves. Prints
// `ready shots` (any line continues), and a line for each picture.
import { must, open, ready, settled, shot, suite, visit, watched } from './lib.mjs';

/** What the clock shows: a few minutes after what the fake server tells of. */
const NOW = '2026-01-01T00:04:00.000Z';

/** Each picture: its name, its page, light or dark. */
const SHOTS = [
  ['studio-needs', '#/needs', 'light'],
  ['studio-conversation', '#/conversation/main', 'light'],
  ['studio-proposal', '#/proposals/r1%2Fcoder', 'light'],
  ['studio-trace', '#/trace', 'light'],
  ['studio-task-dark', '#/tasks/fix-the-login', 'dark'],
];

/** Pages of the gallery, beside those above. */
const GALLERY = [
  ['inbox', '#/needs'], ['conversations', '#/conversations'], ['conversation', '#/conversation/main'], ['processes', '#/processes'],
  ['traces', '#/trace'], ['comparison', `#/trace/compare?a=${'a'.repeat(32)}&b=5f0c21a5b0f00a08d2c4780e7cb55167`], ['tasks', '#/tasks'],
  ['task', '#/tasks/fix-the-login'], ['proposals', '#/proposals'], ['proposal', '#/proposals/r1%2Fcoder'], ['side-by-side', '#/proposals/r1%2Fcoder'],
  ['usage', '#/usage'], ['logs', '#/logs'], ['audit', '#/audit'], ['configuration', '#/configuration'], ['bundles', '#/bundles'], ['agents', '#/agents'],
  ['search', '#/search?q=Dune'], ['palette', '#/conversations'],
];

/** What a page needs before its picture is taken. */
async function prepare(page, name) {
  if (name === 'side-by-side') await page.getByText('Side by side', { exact: true }).click();
  if (name === 'proposal') await page.getByText('Unified', { exact: true }).click();
  if (name === 'search') await page.waitForSelector('[data-over="true"]');
  if (name === 'traces') await page.waitForSelector('main input[type="checkbox"]');
  if (name === 'logs') await page.waitForSelector('.log tbody tr');
  if (name === 'palette') {
    await page.keyboard.press('Control+k');
    await page.waitForFunction(() => [...document.querySelectorAll('.palette [role="option"]')].some((one) => one.textContent.includes('Proposal')));
    await page.keyboard.type('log');
  }
  await settled(page);
}

await suite('shots', async (browser) => {
  must((process.env.STUDIO_SHOTS ?? '') !== '', 'STUDIO_SHOTS is not set: it is the folder for the pictures');
  const context = await browser.newContext({ viewport: { width: 1120, height: 720 }, reducedMotion: 'reduce', timezoneId: 'UTC', locale: 'en-US' });
  const faults = await watched(context);
  await context.clock.setFixedTime(NOW);
  const page = await open(context);
  await ready('shots');
  // Colors and Markdown come after the first paint.
  await page.waitForSelector('html[data-rich="loaded"]');
  for (const [name, hash, colorScheme] of SHOTS) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await visit(page, hash);
    await prepare(page, name === 'studio-trace' ? 'traces' : '');
    await shot(page, name);
    console.log(`made ${name}`);
  }
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const [name, hash] of GALLERY) {
      await visit(page, '#/none');
      await visit(page, hash);
      await prepare(page, name);
      await shot(page, `studio-gallery-${name}-${colorScheme}`);
      console.log(`made ${name} in ${colorScheme}`);
      await page.keyboard.press('Escape');
    }
  }
  must(faults.length === 0, faults.join('\n'));
});
