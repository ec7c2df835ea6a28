// Shared code of the browser suites. A suite takes the address with a ticket as `STUDIO_URL`, and talks to its driver
// by lines: it prints `ready <what>` and waits for one. It exits with 0 if all went well, else with 1 and the reason on
// stderr.
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

/** How long anything may take that is waited for: much longer than on a busy machine, because a wait ends when it can. */
export const WAIT_MS = 60_000;

export const url = process.env.STUDIO_URL ?? '';

/** A thing that has to be so. */
export function must(isSo, message) {
  if (!isSo) throw new Error(message);
}

const waiting = [];
const heard = [];
let isInputOver = false;
const input = createInterface({ input: process.stdin });
input.on('line', (line) => (waiting.length > 0 ? waiting.shift()(line) : heard.push(line)));
input.on('close', () => {
  isInputOver = true;
  for (const resolve of waiting.splice(0)) resolve(null);
});

/** Says that something is ready, and waits for the driver's line; null if there is none any more. */
export function ready(what) {
  console.log(`ready ${what}`);
  return line();
}

/** The driver's next line. */
export function line() {
  if (heard.length > 0) return Promise.resolve(heard.shift());
  if (isInputOver) return Promise.resolve(null);
  return new Promise((resolve) => waiting.push(resolve));
}

/** Starts the browser. */
export function launch() {
  return chromium.launch({
    executablePath: process.env.GOONDAN_CHROMIUM ?? '/usr/bin/chromium',
    headless: true,
    args: [
      // A proxy of a test has a certificate that nobody trusts.
      ...(url.startsWith('https:') ? ['--ignore-certificate-errors'] : []),
      ...(process.getuid?.() === 0 ? ['--no-sandbox'] : []),
      '--disable-background-networking',
    ],
  });
}

/** Watches what no page may do: dialogs, requests elsewhere, what the CSP forbids, errors. */
export async function watched(context) {
  const faults = [];
  const origin = new URL(url).origin;
  context.on('page', (page) => {
    page.on('dialog', (dialog) => {
      faults.push(`a dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on('pageerror', (error) => faults.push(`an error in the page: ${error.stack ?? error.message}`));
    page.on('console', (message) => {
      const text = message.text();
      // The page shows refused requests; the browser also logs them.
      if (message.type() === 'error' && !text.startsWith('Failed to load resource')) faults.push(`on the console: ${text}`);
    });
  });
  context.on('request', (request) => {
    if (new URL(request.url()).origin !== origin) faults.push(`a request elsewhere: ${request.url()}`);
  });
  await context.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
    });
  });
  return faults;
}

/** Opens Studio and logs in. */
export async function open(context) {
  const page = await context.newPage();
  page.setDefaultTimeout(WAIT_MS);
  await page.goto(url);
  await page.waitForSelector('[data-standing="live"]');
  must(!page.url().includes('t='), `the ticket is still in the address: ${page.url()}`);
  return page;
}

/** Goes to a page of Studio by its address, and waits until it was read. */
export async function visit(page, hash) {
  await page.evaluate((to) => new Promise((resolve) => {
    if (location.hash === to) return resolve();
    // Until the page has heard of it, the earlier one is shown, which is settled.
    window.addEventListener('hashchange', () => requestAnimationFrame(resolve), { once: true });
    location.hash = to;
  }), hash);
  await settled(page);
}

/** Waits until a page has read what it shows. */
export async function settled(page) {
  await page.waitForFunction(() => {
    const main = document.querySelector('main');
    return main?.querySelector('h1') && ![...main.querySelectorAll('.faint')].some((one) => one.textContent === 'Reading…');
  });
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
}

/** The names of the pages, as the navigation has them. */
export function pageNames(page) {
  return page.$$eval('nav a', (links) => links.map((link) => link.getAttribute('href').replace(/^#\//, '').split('?')[0]));
}

/** Takes a picture, if somebody wants them. */
export async function shot(page, name) {
  const folder = process.env.STUDIO_SHOTS;
  if (folder === undefined) return;
  const path = join(folder, `${name}.png`);
  await mkdir(dirname(path), { recursive: true });
  await page.screenshot({ path });
}

/** Presses Tab until the focus is at what the selector names. */
export async function tabTo(page, selector, pressesMax = 200) {
  for (let press = 0; press < pressesMax; press += 1) {
    await page.keyboard.press('Tab');
    if (await page.evaluate((to) => document.activeElement?.matches(to) === true, selector)) return;
  }
  throw new Error(`by Tab, the focus never comes to ${selector}`);
}

/** Runs a suite. */
export async function suite(name, body) {
  const browser = await launch();
  try {
    must(url !== '', 'STUDIO_URL is not set: it is the address that `gdn studio` prints');
    await body(browser);
    console.log(`ok ${name}`);
  } catch (error) {
    console.error(`${name}: ${error.stack ?? error}`);
    process.exitCode = 1;
  } finally {
    await browser.close();
    input.close();
    process.stdin.destroy();
  }
}
