// The daemon is killed under the page and comes back: the page is the conversation, without a gap or a duplicate.
// `STUDIO_CONVERSATION` says which (`main` if it does not). Lines: prints `ready kill`; the driver kills the daemon,
// starts it again, and answers with the conversation as `gdn conversation history --json` prints it, in one line:
// `{"messages":[…],"pending":[…]}`. Prints `equal <messages>` and `ready kill` again, until the driver says `end`.
import { must, open, ready, settled, shot, suite, visit, watched, WAIT_MS } from './lib.mjs';

const key = process.env.STUDIO_CONVERSATION ?? 'main';

/** What a message says, as plain text: for each part its own, as the page shows it. */
function textOf({ data: { content } }) {
  if (typeof content === 'string') return content;
  return content.filter((part) => part.type === 'text').map((part) => part.text).join('\n');
}

function shownOn(page) {
  return page.$$eval('[data-message]', (all) =>
    all.map((one) => ({
      id: one.dataset.message,
      text: [...one.querySelectorAll('[data-text]')].map((part) => part.textContent).join('\n'),
    })),
  );
}

/** Reads the earlier pages, until all of the conversation is there. */
async function readAll(page) {
  for (let pages = 0; pages < 200; pages += 1) {
    const earlier = page.locator('.messages button', { hasText: 'Earlier messages' });
    if ((await earlier.count()) === 0) return;
    const before = await page.locator('[data-message]').count();
    await earlier.click().catch(() => undefined);
    await page.waitForFunction((n) => document.querySelectorAll('[data-message]').length !== n, before).catch(() => undefined);
  }
}

await suite('kill', async (browser) => {
  const context = await browser.newContext();
  const faults = await watched(context);
  const page = await open(context);
  await visit(page, `#/conversation/${encodeURIComponent(key)}`);
  await page.waitForSelector('[data-message]');
  await readAll(page);
  for (let round = 0; ; round += 1) {
    const answer = await ready('kill');
    if (answer === null || answer === 'end') break;
    const { messages, pending = [] } = JSON.parse(answer);
    const expected = [...messages, ...pending].map((message) => ({ id: message.id, text: textOf(message) }));
    await page.waitForSelector('[data-standing="live"]');
    const endsMs = Date.now() + 2 * WAIT_MS;
    let shown;
    do {
      await settled(page);
      await readAll(page);
      shown = await shownOn(page);
      if (JSON.stringify(shown) === JSON.stringify(expected)) break;
      await new Promise((resolve) => setTimeout(resolve, 100));
    } while (Date.now() < endsMs);
    const ids = shown.map((message) => message.id);
    must(new Set(ids).size === ids.length, `messages are there twice: ${ids.join(' ')}`);
    const first = expected.findIndex((message, at) => JSON.stringify(message) !== JSON.stringify(shown[at]));
    must(
      first === -1 && shown.length === expected.length,
      `the page has ${shown.length} messages, the conversation ${expected.length}; the first that differs is number ${first}: ` +
        `${JSON.stringify(shown[first])} and not ${JSON.stringify(expected[first])}`,
    );
    await shot(page, `kill-${round}`);
    console.log(`equal ${shown.length}`);
  }
  must(faults.length === 0, faults.join('\n'));
});
