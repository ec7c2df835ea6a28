// A person sends a message by the keyboard, and reads the answer where it arrives. `STUDIO_CONVERSATION` says in which
// conversation (`main` if it does not); its agent has to answer. Prints `ready send`; any line continues.
import { must, open, ready, shot, suite, tabTo, visit, watched } from './lib.mjs';

const key = process.env.STUDIO_CONVERSATION ?? 'main';

await suite('send', async (browser) => {
  const context = await browser.newContext();
  const faults = await watched(context);
  const page = await open(context);
  await ready('send');
  await visit(page, `#/conversation/${encodeURIComponent(key)}`);
  const text = `hello from Studio, ${Date.now()}`;
  await tabTo(page, '#message');
  await page.keyboard.type(text);
  await page.keyboard.press('Control+Enter');
  await page.waitForFunction((sent) => {
    const said = [...document.querySelectorAll('[data-message]')];
    const at = said.findIndex((one) => one.matches('.user') && one.textContent.includes(sent));
    return at !== -1 && said.slice(at + 1).some((one) => one.matches('.assistant'));
  }, text);
  const times = await page.$$eval('.message.user', (all, sent) => all.filter((one) => one.textContent.includes(sent)).length, text);
  must(times === 1, `the message is there ${times} times`);
  // The page has read everything again by then, which can take longer than the answer.
  await page.waitForFunction(() => document.querySelector('#message').value === '');
  await page.waitForFunction(() => {
    const root = document.documentElement;
    return root.scrollHeight - root.scrollTop - root.clientHeight < 100;
  });
  must(faults.length === 0, faults.join('\n'));
  await shot(page, 'send');
});
