// The page of a task shows its agent's work live, why a run failed, and sends messages. `STUDIO_TASK` is the task
// (`shop`); its run has begun. Prints `ready work`: a line continues once the run has failed, with a command that
// exited with 1, a change of a file, hostile text, and a line on stderr. Prints `ready kill`: a line continues once the
// daemon was killed and restarted. Then the agent answers each message (`I heard: …`), and the task is completed. With
// `dollars`, it requests permission to change a file first, and repeats the reason of a denial.
import { must, open, ready, settled, shot, suite, tabTo, visit, watched } from './lib.mjs';

const task = process.env.STUDIO_TASK ?? 'shop';

/** The texts of the entries of a kind. */
const entries = (page, kind) => page.$$eval(`.stream [data-entry="${kind}"]`, (all) => all.map((one) => one.textContent));

/** Denies the agent's request to change a file, which is shown as a diff. */
async function deny(page) {
  const request = page.locator('section[aria-label^="Waits for"]', { hasText: 'dollars' });
  await request.locator('.diff .added', { hasText: '+dollars' }).waitFor();
  for (const label of ['Allow once', 'Allow for this task']) must((await request.getByText(label, { exact: true }).count()) === 1, `no button ${label}`);
  await request.getByText('Deny…', { exact: true }).click();
  await page.fill('dialog #reason', 'not on a Friday');
  await page.click('dialog button[type="submit"]');
  await page.waitForFunction(() => document.querySelector('.stream').textContent.includes('not on a Friday'));
}

await suite('task', async (browser) => {
  const context = await browser.newContext();
  const faults = await watched(context);
  const page = await open(context);
  await visit(page, `#/tasks/${task}`);
  await page.waitForSelector('[data-stream="live"]');
  await page.waitForFunction(() => document.querySelector('.stream')?.textContent.includes('I begin.'));
  await ready('work');

  await page.waitForSelector('[data-entry="result"] .bad');
  await page.waitForSelector('[data-last-run].warn');
  await settled(page);
  const [command] = await entries(page, 'command');
  must(command.includes('npm test') && command.includes('exit 1') && command.includes('1 test failed'), `the command is ${command}`);
  must((await entries(page, 'command')).length === 1, 'the start and the end of a command are two entries');
  const lines = await page.$$eval('[data-entry="fileChange"] .diff .removed, [data-entry="fileChange"] .diff .added', (all) =>
    all.map((one) => one.textContent.trim()),
  );
  must(lines[0] === '-old' && lines[1]?.startsWith('+new'), `the change is ${lines}`);
  for (const kind of ['plan', 'thinking', 'usage', 'event']) must((await entries(page, kind)).length > 0, `nothing of the kind ${kind}`);
  const found = await page.evaluate(() => ({
    text: document.querySelector('main').textContent,
    strange: [...document.querySelectorAll('main :is(img, script, svg, b)')].map((one) => one.outerHTML),
  }));
  for (const seen of ['<img', 'onerror', '\\u{1b}', '\\u{202e}']) must(found.text.includes(seen), `the stream does not show ${seen}`);
  must(found.strange.length === 0, `the stream made elements of the agent's text: ${found.strange.join(' ')}`);
  for (const title of ['Last output', 'Error output']) {
    must((await page.textContent(`pre[aria-label="${title}"]`)).trim() !== '', `${title} is empty`);
  }
  const isAtEnd = await page.$eval('.stream', (box) => box.scrollHeight - box.scrollTop - box.clientHeight < 2);
  must(isAtEnd, 'the stream does not follow what arrives');
  await page.evaluate(() => document.querySelector('.stream').scrollIntoView());
  await shot(page, 'task');

  const before = (await entries(page, 'text')).concat(await entries(page, 'command'));
  await ready('kill');
  await page.waitForSelector('[data-stream="live"]');
  const after = (await entries(page, 'text')).concat(await entries(page, 'command'));
  must(after.join() === before.join(), 'after a restart of the daemon, the work is another');

  for (const text of ['euros', 'dollars']) {
    await tabTo(page, '#message');
    await page.keyboard.type(`Prices are in ${text}.`);
    await page.keyboard.press('Control+Enter');
    if (text === 'dollars') await deny(page);
    await page.waitForFunction((word) => document.querySelector('.stream').textContent.includes(`I heard: Prices are in ${word}.`), text);
    // The agent has finished: the next message continues the task.
    await page.waitForSelector('[data-stream="over"]');
    await page.waitForFunction(() => document.querySelector('#message').value === '');
    await page.waitForFunction((word) => {
      const last = [...document.querySelectorAll('[data-message]')].at(-1);
      return last?.dataset.message === 'delivered' && last.textContent.includes(`Prices are in ${word}.`);
    }, text);
  }
  const said = (await entries(page, 'text')).join('\n');
  must(said.split('I heard: Prices are in euros.').length === 2, `an answer is there several times: ${said}`);
  const sent = (await entries(page, 'event')).filter((text) => text.includes('Prices are in'));
  must(sent.length === 2, `the messages are ${sent}`);
  must(faults.length === 0, faults.join('\n'));
});
