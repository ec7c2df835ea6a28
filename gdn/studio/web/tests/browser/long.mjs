// A conversation of 10,000 messages: its end is usable soon, few of its messages are in the document wherever it is
// scrolled to, and none is missing or there twice. `STUDIO_LONG` is its address, and `STUDIO_CONVERSATION` its key.
// Prints figures.
import { must, open, settled, shot, suite, visit, watched } from './lib.mjs';

const long = process.env.STUDIO_LONG ?? '#/conversation/endless';
const small = process.env.STUDIO_SMALL ?? '#/conversation/main';
/** How much longer the long one may take: it shows more messages than the small one. */
const RATIO_MAX = 8;
const MESSAGES_MAX = 400;
const ROUNDS = 5;
/** Pages of earlier messages that are read by scrolling. */
const PAGES = 30;

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

/** From the address to a conversation in which a person can type, as the page sees it, in milliseconds. */
async function usableAfter(page, hash) {
  const times = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    await visit(page, '#/usage');
    times.push(await page.evaluate((to) => new Promise((resolve) => {
      const beganMs = performance.now();
      location.hash = to;
      const look = () => {
        const field = document.querySelector('#message');
        if (document.querySelector('[data-message]') === null || field === null) return requestAnimationFrame(look);
        field.focus();
        document.execCommand('insertText', false, 'x');
        requestAnimationFrame(() => resolve(performance.now() - beganMs));
      };
      look();
    }), hash));
  }
  return median(times);
}

/** Ids of the messages in the document, with null in place of those that left it. */
function inOrder(page) {
  return page.$$eval('.messages [data-message], .messages .away', (all) => all.map((one) => one.dataset.message ?? null));
}

/** Ids of the messages in the document. */
async function inDocument(page) {
  return (await inOrder(page)).filter((id) => id !== null);
}

/** The place of a message, by its id `n<turn>:<part>`. */
function placeOf(id) {
  const [, turn, part] = /^n(\d+):(\w+)$/.exec(id);
  return Number(turn) * 4 + ['u', 'a1', 'r', 'a2'].indexOf(part);
}

/** The messages near the middle of the view are in the document, in their order. */
async function checkView(page) {
  await page.waitForFunction(() => {
    const middle = document.elementsFromPoint(innerWidth / 2, innerHeight / 2);
    return middle.some((one) => one.matches('[data-message]')) && !middle.some((one) => one.matches('.away'));
  });
  const all = (await inOrder(page)).map((id) => (id === null ? null : placeOf(id)));
  const isWrong = all.some((place, at) => at > 0 && place !== null && all[at - 1] !== null && place !== all[at - 1] + 1);
  const places = all.filter((place) => place !== null);
  must(!isWrong && places.every((place, at) => at === 0 || place > places[at - 1]), `messages are missing or there twice: ${all}`);
  must(places.length <= MESSAGES_MAX, `${places.length} messages are in the document`);
  return places;
}

await suite('long', async (browser) => {
  const context = await browser.newContext();
  const faults = await watched(context);
  const page = await open(context);
  await settled(page);
  const smallMs = await usableAfter(page, small);
  const longMs = await usableAfter(page, long);
  console.log(`usable: small ${Math.round(smallMs)} ms, long ${Math.round(longMs)} ms`);
  must(longMs < Math.max(smallMs, 50) * RATIO_MAX, `the long conversation takes ${longMs} ms, and the small one ${smallMs} ms`);
  must((await page.textContent('main')).includes('10,000 messages'), 'it has not 10,000 messages');
  await page.waitForFunction(() => document.querySelector('summary')?.textContent === 'Turns (2,500)');
  await page.waitForSelector('[data-step]');
  const end = (await inDocument(page)).at(-1);
  must(placeOf(end) === 9999, `the last message is ${end}`);

  let most = 0;
  let first = placeOf((await inDocument(page))[0]);
  for (let read = 0; read < PAGES; read += 1) {
    const waiting = await page.textContent('.messages > p button');
    await page.evaluate(() => window.scrollTo(0, 0));
    await page.waitForFunction((was) => document.querySelector('.messages > p button')?.textContent !== was, waiting);
    const places = await checkView(page);
    most = Math.max(most, places.length);
    must(places[0] < first, `the earlier messages are not shown: the first is ${places[0]}, and was ${first}`);
    first = places[0];
  }
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  for (const part of [0.75, 0.5, 0.25, 1]) {
    await page.evaluate((to) => window.scrollTo(0, to), height * part);
    most = Math.max(most, (await checkView(page)).length);
  }
  await shot(page, 'long');
  console.log(`messages in the document, at most: ${most}, of ${10_000 - first} that were read`);

  // It is the same conversation as before: what a person sends is answered at its end.
  const text = `at the end, ${Date.now()}`;
  await page.fill('#message', text);
  await page.keyboard.press('Control+Enter');
  await page.waitForFunction((sent) => [...document.querySelectorAll('.message.assistant')].some((one) => one.textContent.includes(`You said: ${sent}`)), text);
  const last = (await inDocument(page)).length;
  must(last <= MESSAGES_MAX, `${last} messages are in the document`);
  must(faults.length === 0, faults.join('\n'));
});
