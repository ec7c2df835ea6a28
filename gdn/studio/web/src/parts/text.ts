// Control characters, and characters that reorder, hide or smuggle text. Text of agents, models and strangers can
// contain them. The same rules as `gdn/src/output/invisible.rs`.

const CONTROL = /[\u0000-\u001f\u007f-\u009f]/u;
const INVISIBLE = new RegExp(
  '[\\u{ad}\\u{34f}\\u{61c}\\u{115f}\\u{1160}\\u{17b4}\\u{17b5}\\u{180b}-\\u{180f}\\u{200b}-\\u{200f}\\u{2028}-\\u{202e}' +
    '\\u{2060}-\\u{206f}\\u{3164}\\u{fe00}-\\u{fe0f}\\u{feff}\\u{ffa0}\\u{fff0}-\\u{fffb}\\u{1bca0}-\\u{1bca3}' +
    '\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]',
  'u',
);
const SUSPICIOUS = new RegExp(`${CONTROL.source}|${INVISIBLE.source}|\\p{Surrogate}`, 'u');
const JOINERS = '\u200c\u200d\ufe0e\ufe0f';

/** Joiners and the choice of an emoji's form belong behind a visible character; anywhere else they only hide. */
function belongsBehind(before: string, c: string): boolean {
  if (!JOINERS.includes(c) || before === '') return false;
  const isAscii = before.codePointAt(0)! < 0x80;
  return (
    (!isAscii && !INVISIBLE.test(before)) ||
    (c === '\u200d' && before === '\ufe0f') ||
    (c === '\ufe0f' && /[0-9#*]/.test(before))
  );
}

function escaped(c: string): string {
  if (c === '\r') return '\\r';
  return `\\u{${c.codePointAt(0)!.toString(16)}}`;
}

/** A text with lines and tabs as they are, and all else that is not seen written as `\u{1b}` and the like. */
export function harmless(text: string): string {
  if (!SUSPICIOUS.test(text)) return text;
  let out = '';
  let before = '';
  for (const c of text) {
    const isPlain = c === '\n' || c === '\t' || !SUSPICIOUS.test(c) || belongsBehind(before, c);
    out += isPlain ? c : escaped(c);
    before = c;
  }
  return out;
}

/** The same in one line: line ends and tabs are shown as `\n` and `\t`. */
export function oneLine(text: string): string {
  return harmless(text).replaceAll('\n', '\\n').replaceAll('\t', '\\t');
}

/** The head of a text in one line, of at most so many characters. */
export function head(text: string, charactersMax: number): string {
  const characters = Array.from(text.slice(0, charactersMax * 2 + 2));
  const isWhole = characters.length <= charactersMax;
  return oneLine(isWhole ? text : `${characters.slice(0, charactersMax).join('')}…`);
}

/** A piece of a text: plain, or an address that may be opened. */
export interface Piece {
  text: string;
  href?: string;
}

/** A text in pieces: the http and https addresses in it, written in ASCII, are links; nothing else is. */
export function pieces(text: string): Piece[] {
  const out: Piece[] = [];
  let end = 0;
  for (const match of text.matchAll(/\bhttps?:\/\/[!-~]+/g)) {
    const address = match[0].replace(/[)\]}>"'`.,;:!?*]+$/, '');
    const href = httpAddress(address);
    if (href === null) continue;
    if (match.index > end) out.push({ text: harmless(text.slice(end, match.index)) });
    out.push({ text: address, href });
    end = match.index + address.length;
  }
  if (end < text.length) out.push({ text: harmless(text.slice(end)) });
  return out;
}

/** The address, if it may be opened: of http or https, and without a password. */
export function httpAddress(address: string): string | null {
  try {
    const url = new URL(address);
    const isOpen = (url.protocol === 'http:' || url.protocol === 'https:') && url.username === '' && url.password === '';
    return isOpen ? url.href : null;
  } catch {
    return null;
  }
}

/** A name for a file made of what a stranger may have written: letters, digits, `_` and `-` alone. */
export function fileName(text: string): string {
  const plain = text.replace(/[^A-Za-z0-9_-]+/g, '_').slice(0, 80);
  return plain === '' ? '_' : plain;
}

/** Where a text is cut so that at most so many characters are left and none is cut in two; its length if none is. */
export function cutAt(text: string, charactersMax: number): number {
  if (text.length <= charactersMax) return text.length;
  const isCutInTwo = /[\ud800-\udbff]/.test(text[charactersMax - 1] ?? '');
  return isCutInTwo ? charactersMax - 1 : charactersMax;
}

/** A word for a POSIX shell, quoted where it has to be. */
export function shellWord(word: string): string {
  if (/^[A-Za-z0-9_@%+=:,./-]+$/.test(word)) return word;
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

/** A command for a POSIX shell. */
export function command(...words: string[]): string {
  return words.map(shellWord).join(' ');
}
