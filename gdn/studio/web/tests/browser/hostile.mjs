// Output of agents and tools is shown as text. `STUDIO_CONVERSATION` names a conversation (`hostile` if it does not)
// with a message that holds `<img src=x onerror=…>` and one that holds an escape character and U+202E. Also checks
// other lists. Prints `ready hostile`; any line continues.
import { must, open, pageNames, ready, settled, shot, suite, visit, watched } from './lib.mjs';

const key = process.env.STUDIO_CONVERSATION ?? 'hostile';

await suite('hostile', async (browser) => {
  const context = await browser.newContext();
  const faults = await watched(context);
  const page = await open(context);
  await ready('hostile');
  const names = await pageNames(page);
  for (const hash of [`#/conversation/${encodeURIComponent(key)}`, '#/conversation/main', ...names.map((name) => `#/${name}`)]) {
    await visit(page, hash);
    await settled(page);
    const found = await page.evaluate(() => {
      const main = document.querySelector('main');
      const strange = [...main.querySelectorAll('img, script, iframe, object, embed, svg:not(.graph), style, [onerror], [onload], [onclick]')];
      const links = [...main.querySelectorAll('a')];
      return {
        text: main.textContent,
        strange: strange.map((one) => one.outerHTML.slice(0, 200)),
        links: links.filter((link) => !/^(#\/|https?:\/\/)/.test(link.getAttribute('href') ?? '')).map((link) => link.outerHTML),
        open: links.filter((link) => link.target === '_blank' && link.rel !== 'noopener noreferrer').map((link) => link.outerHTML),
      };
    });
    must(found.strange.length === 0, `${hash} made elements of what was said: ${found.strange.join(' ')}`);
    must(found.links.length === 0 && found.open.length === 0, `${hash} has links that it may not: ${found.links} ${found.open}`);
    const unseen = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/.exec(found.text);
    must(unseen === null, `${hash} shows U+${unseen?.[0].codePointAt(0).toString(16)} as it is`);
    if (!hash.includes(key)) continue;
    for (const seen of ['<img', 'onerror', '\\u{1b}', '\\u{202e}']) must(found.text.includes(seen), `${hash} does not show ${seen}`);
    await shot(page, 'hostile');
  }
  must(faults.length === 0, faults.join('\n'));
});
