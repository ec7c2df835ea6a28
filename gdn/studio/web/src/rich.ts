// The second file of the page: libraries that no first paint waits for. `parts/loader.ts` loads it.

import { diffWordsWithSpace } from 'diff';
import bash from 'highlight.js/lib/languages/bash';
import c from 'highlight.js/lib/languages/c';
import cpp from 'highlight.js/lib/languages/cpp';
import csharp from 'highlight.js/lib/languages/csharp';
import css from 'highlight.js/lib/languages/css';
import diff from 'highlight.js/lib/languages/diff';
import dockerfile from 'highlight.js/lib/languages/dockerfile';
import go from 'highlight.js/lib/languages/go';
import ini from 'highlight.js/lib/languages/ini';
import java from 'highlight.js/lib/languages/java';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import kotlin from 'highlight.js/lib/languages/kotlin';
import makefile from 'highlight.js/lib/languages/makefile';
import markdown from 'highlight.js/lib/languages/markdown';
import php from 'highlight.js/lib/languages/php';
import python from 'highlight.js/lib/languages/python';
import ruby from 'highlight.js/lib/languages/ruby';
import rust from 'highlight.js/lib/languages/rust';
import scala from 'highlight.js/lib/languages/scala';
import sql from 'highlight.js/lib/languages/sql';
import swift from 'highlight.js/lib/languages/swift';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';
import { createLowlight } from 'lowlight';
import { lexer, type Token } from 'marked';

const lowlight = createLowlight({
  bash, c, cpp, csharp, css, diff, dockerfile, go, ini, java, javascript, json, kotlin, makefile, markdown, php, python, ruby, rust, scala,
  sql, swift, typescript, xml, yaml,
});

/** A piece of highlighted code: its text, and the class of its color. */
export interface CodePiece {
  text: string;
  tone: string;
}

interface Node {
  type: string;
  value?: string;
  properties?: { className?: string[] };
  children?: Node[];
}

/** The lines of a program text in colored pieces. Null if the language is unknown. */
export function codeLines(text: string, language: string): CodePiece[][] | null {
  if (!lowlight.registered(language)) return null;
  const lines: CodePiece[][] = [[]];
  const add = (node: Node, tone: string): void => {
    if (node.type === 'text') {
      const [first = '', ...rest] = (node.value ?? '').split('\n');
      if (first !== '') lines.at(-1)!.push({ text: first, tone });
      for (const line of rest) lines.push(line === '' ? [] : [{ text: line, tone }]);
      return;
    }
    const own = node.properties?.className?.[0] ?? tone;
    for (const child of node.children ?? []) add(child, own);
  };
  for (const node of lowlight.highlight(language, text).children) add(node as Node, '');
  return lines;
}

/** The changed parts of two lines, as ranges of characters. Null if they have little in common. */
export function changedWords(old: string, next: string): { old: [number, number][]; next: [number, number][] } | null {
  const out = { old: [] as [number, number][], next: [] as [number, number][] };
  let [atOld, atNext, same] = [0, 0, 0];
  for (const { value, added, removed } of diffWordsWithSpace(old, next)) {
    if (added) out.next.push([atNext, atNext + value.length]);
    else if (removed) out.old.push([atOld, atOld + value.length]);
    else same += value.trim().length;
    if (!added) atOld += value.length;
    if (!removed) atNext += value.length;
  }
  return same * 3 < Math.min(old.trim().length, next.trim().length) ? null : out;
}

/** The tokens of a Markdown text. No HTML is made of them here. */
export function markdownTokens(text: string): Token[] {
  return lexer(text, { gfm: true, breaks: true });
}
