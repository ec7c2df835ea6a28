// Every page: by the keyboard alone, axe without findings, in light and in dark, and at 360 pixels without scrolling
// sideways. `STUDIO_EXTRA` names more addresses, apart by spaces, such as `#/tasks/fix-the-login`. Screenshots go to
// `STUDIO_SHOTS`. `STUDIO_READONLY=1` says that the session may not write: then no button that changes anything may be
// there. Prints `ready pages`; any line continues. Prints `checked <part>` after each part, because all take a while.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { must, open, pageNames, ready, settled, shot, suite, tabTo, visit, watched } from './lib.mjs';

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const extra = (process.env.STUDIO_EXTRA ?? '').split(' ').filter((hash) => hash !== '');
const isReadOnly = process.env.STUDIO_READONLY === '1';

/** The check of all pages in a theme is reported in so many parts. */
const PARTS = 4;

/** Words on buttons that change something. */
const CHANGES = /^(Approve|Deny|Answer|Decline|Retry|Drop|Resume|Pause|Apply|Reject|Merge|Send|Rewind|Restore|Restart|Cancel|Start|Provide|Request|Pin|Revert|Create a|Increase|Allow|Settle|Change|Comment|Save|Remove|Delete|Move)/;

async function checkAxe(page, where) {
  // A button below the header of the frame would count as obscured.
  await page.evaluate(() => window.scrollTo(0, 0));
  // The page may not evaluate texts; the protocol of the browser may.
  await page.evaluate(axeSource);
  const results = await page.evaluate(() =>
    window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }),
  );
  must(results.passes.length > 10, `${where}: axe checked next to nothing: ${results.passes.length} rules`);
  const found = results.violations.map(
    ({ id, help, nodes }) => `${id}: ${help}: ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.failureSummary ?? ''}`).join(' | ')}`,
  );
  must(found.length === 0, `${where}: ${found.join('\n')}`);
}

async function checkShape(page, where) {
  const shape = await page.evaluate(() => ({
    titles: document.querySelectorAll('h1').length,
    landmarks: ['header', 'nav', 'main', '[role="status"]'].filter((one) => document.querySelector(one) === null),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    isUnknownTimeShown: /\b(Jan 1, 1970|Dec 31, 1969)\b/.test(document.querySelector('main').textContent),
    failures: [...document.querySelectorAll('main [role="alert"]')].map((one) => one.textContent.trim()),
    buttons: [...document.querySelectorAll('main button')].map((one) => one.textContent.trim()),
  }));
  must(shape.titles === 1, `${where} has ${shape.titles} titles`);
  must(shape.landmarks.length === 0, `${where} lacks ${shape.landmarks.join(', ')}`);
  must(!shape.isUnknownTimeShown, `${where} shows an unknown time as one of 1970`);
  must(shape.wide <= 0, `${where} scrolls sideways by ${shape.wide} pixels`);
  if (isReadOnly) {
    const changes = shape.buttons.filter((label) => CHANGES.test(label));
    must(changes.length === 0, `${where} may not write, and has the buttons ${changes.join(', ')}`);
  }
  return shape.failures;
}

/** Whether the focus can be seen where it is. */
async function checkFocus(page, where) {
  const focus = await page.evaluate(() => {
    const at = document.activeElement;
    const { outlineStyle, outlineWidth } = getComputedStyle(at);
    return { html: at.outerHTML.slice(0, 100), isSeen: outlineStyle !== 'none' && parseFloat(outlineWidth) >= 1 };
  });
  must(focus.isSeen, `${where}: the focus cannot be seen at ${focus.html}`);
}

await suite('pages', async (browser) => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, reducedMotion: 'reduce' });
  const faults = await watched(context);
  const page = await open(context);
  await ready('pages');
  await page.waitForSelector('nav a');

  await page.evaluate(() => document.activeElement?.blur());
  await page.keyboard.press('Tab');
  must(await page.evaluate(() => document.activeElement.matches('.skip')), 'the first stop of Tab is not the skip link');
  await page.keyboard.press('Enter');
  must(await page.evaluate(() => document.activeElement.matches('main')), 'the skip link does not lead to the page');

  const names = await pageNames(page);
  for (const name of names) {
    // By the keyboard: to the link of the page, then into it.
    await page.evaluate(() => document.querySelector('.brand').focus());
    await tabTo(page, `nav a[href^="#/${name}"]`);
    await checkFocus(page, name);
    await page.keyboard.press('Enter');
    await page.waitForSelector(`nav a[href^="#/${name}"][aria-current="page"]`);
    await settled(page);
    await page.waitForFunction(() => document.activeElement?.tagName === 'H1');
    await settled(page);
    const failures = await checkShape(page, name);
    must(failures.length === 0 || name === 'bundles' || name === 'trace', `${name} says: ${failures.join(' ')}`);
    if ((await page.locator('main [data-search]').count()) > 0) {
      await page.keyboard.press('/');
      must(await page.evaluate(() => document.activeElement.matches('[data-search]')), `${name}: / does not lead to the search`);
      await checkFocus(page, name);
    }
  }

  console.log('checked keyboard');

  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
    const all = [...names.map((name) => `#/${name}`), ...extra];
    for (const [at, hash] of all.entries()) {
      const part = Math.floor((at * PARTS) / all.length);
      if (part > Math.floor(((at - 1) * PARTS) / all.length) && at > 0) console.log(`checked part ${part} in ${scheme}`);
      await visit(page, hash);
      await settled(page);
      for (const summary of await page.$$('main details:not([open]) > summary')) await summary.click();
      await checkAxe(page, `${hash} in ${scheme}`);
      await shot(page, `${hash.replace(/[^a-z0-9-]+/gi, '_').replace(/^_/, '')}-${scheme}`);
    }
    console.log(`checked part ${PARTS} in ${scheme}`);
  }

  await page.setViewportSize({ width: 360, height: 740 });
  for (const hash of [...names.map((name) => `#/${name}`), ...extra]) {
    await visit(page, hash);
    await settled(page);
    await checkShape(page, `${hash} at 360 pixels`);
    await shot(page, `${hash.replace(/[^a-z0-9-]+/gi, '_').replace(/^_/, '')}-narrow`);
  }
  console.log('checked narrow');
  await page.setViewportSize({ width: 1280, height: 860 });
  await visit(page, '#/needs');
  await settled(page);

  if (!isReadOnly && (await page.locator('button', { hasText: 'Deny…' }).count()) > 0) {
    await tabTo(page, 'button[aria-label^="Deny"]');
    await page.keyboard.press('Enter');
    await page.waitForSelector('dialog[open]');
    for (let press = 0; press < 8; press += 1) {
      await page.keyboard.press('Tab');
      const isInside = await page.evaluate(() => document.activeElement === document.body || document.activeElement.closest('dialog') !== null);
      must(isInside, 'the focus leaves the dialog');
    }
    await checkAxe(page, 'the dialog');
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => document.querySelector('dialog') === null);
    must(await page.evaluate(() => document.activeElement.matches('button[aria-label^="Deny"]')), 'the focus does not come back from the dialog');
  }
  must(faults.length === 0, faults.join('\n'));
});
