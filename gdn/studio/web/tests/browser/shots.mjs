// The pictures of the documentation: pages as a person sees them who has agents at work. `STUDIO_SHOTS` is the folder.
// For reproducible pictures, the clock is fixed and nothing moves. Prints `ready shots`; any line continues.
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

await suite('shots', async (browser) => {
  must((process.env.STUDIO_SHOTS ?? '') !== '', 'STUDIO_SHOTS is not set: it is the folder for the pictures');
  const context = await browser.newContext({ viewport: { width: 1120, height: 720 }, reducedMotion: 'reduce', timezoneId: 'UTC', locale: 'en-US' });
  const faults = await watched(context);
  await context.clock.setFixedTime(NOW);
  const page = await open(context);
  await ready('shots');
  for (const [name, hash, colorScheme] of SHOTS) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await visit(page, hash);
    await settled(page);
    await shot(page, name);
  }
  must(faults.length === 0, faults.join('\n'));
});
