// Markdown of agents and documents. Nothing is ever made of HTML: each token becomes a template with text in it, HTML is
// shown as it is written, images are links, and only http and https addresses can be opened.

import { html, nothing, type TemplateResult } from 'lit';
import type { Token, Tokens } from 'marked';
import { codeView } from './code.js';
import { languageOf, richNow } from './loader.js';
import { harmless, httpAddress, oneLine } from './text.js';
import { textView } from './views.js';

/** Longer texts are shown plain: it would hold up the page. */
const MARKDOWN_CHARACTERS_MAX = 65_536;
/** Deeper lists and quotes are shown as text. */
const DEPTH_MAX = 12;
const KEPT_MAX = 300;

const kept = new Map<string, Token[]>();

function tokensOf(text: string): Token[] | null {
  const known = kept.get(text);
  if (known !== undefined) return known;
  const rich = richNow();
  if (rich === null || text.length > MARKDOWN_CHARACTERS_MAX) return null;
  let tokens: Token[];
  try {
    tokens = rich.markdownTokens(text);
  } catch {
    // Nested too deeply for the parser.
    return null;
  }
  if (kept.size >= KEPT_MAX) kept.clear();
  kept.set(text, tokens);
  return tokens;
}

/** A Markdown text; plain if it cannot be read as such. */
export function markdownView(text: string): TemplateResult {
  const tokens = tokensOf(text);
  if (tokens === null) return textView(text);
  return html`<div class="text md">${blocks(tokens, 0)}</div>`;
}

function blocks(tokens: Token[], depth: number): unknown {
  if (depth > DEPTH_MAX) return tokens.map((token) => harmless(token.raw));
  return tokens.map((token) => blockOf(token, depth));
}

function blockOf(token: Token, depth: number): unknown {
  switch (token.type) {
    case 'space':
    case 'def':
      return nothing;
    case 'heading':
      return html`<p class="heading h${(token as Tokens.Heading).depth}">${inlines(token.tokens ?? [], depth)}</p>`;
    case 'paragraph':
      return html`<p>${inlines(token.tokens ?? [], depth)}</p>`;
    case 'text':
      return token.tokens === undefined ? harmless((token as Tokens.Text).text) : inlines(token.tokens, depth);
    case 'code': {
      const { text, lang = '' } = token as Tokens.Code;
      const name = oneLine(lang.split(/\s/)[0] ?? '').slice(0, 20);
      return codeView(text, languageOf(name), name === '' ? 'Code' : `Code, ${name}`);
    }
    case 'blockquote':
      return html`<blockquote>${blocks(token.tokens ?? [], depth + 1)}</blockquote>`;
    case 'list':
      return listView(token as Tokens.List, depth);
    case 'hr':
      return html`<hr>`;
    case 'table':
      return tableOf(token as Tokens.Table, depth);
    default:
      return html`<p>${harmless(token.raw.trimEnd())}</p>`;
  }
}

function listView({ ordered, start, items }: Tokens.List, depth: number): TemplateResult {
  const rows = items.map(({ task, checked, tokens }) => html`<li>${task ? (checked === true ? '☑ ' : '☐ ') : nothing}${blocks(
    tokens.filter(({ type }) => type !== 'checkbox'), depth + 1)}</li>`);
  return ordered ? html`<ol start=${start === '' ? 1 : start}>${rows}</ol>` : html`<ul>${rows}</ul>`;
}

function tableOf({ header, rows }: Tokens.Table, depth: number): TemplateResult {
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>
    <thead><tr>${header.map(({ tokens }) => html`<th scope="col">${inlines(tokens, depth)}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map(({ tokens }) => html`<td>${inlines(tokens, depth)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

function inlines(tokens: Token[], depth: number): unknown {
  if (depth > DEPTH_MAX) return tokens.map((token) => harmless(token.raw));
  return tokens.map((token) => inlineOf(token, depth + 1));
}

function inlineOf(token: Token, depth: number): unknown {
  const inner = (): unknown => inlines(('tokens' in token ? token.tokens : undefined) ?? [], depth);
  switch (token.type) {
    case 'strong':
      return html`<strong>${inner()}</strong>`;
    case 'em':
      return html`<em>${inner()}</em>`;
    case 'del':
      return html`<del>${inner()}</del>`;
    case 'codespan':
      return html`<code>${harmless((token as Tokens.Codespan).text)}</code>`;
    case 'br':
      return html`<br>`;
    case 'link':
      return linkView((token as Tokens.Link).href, token.raw, inner());
    case 'image': {
      const { href, text, raw } = token as Tokens.Image;
      return linkView(href, raw, `image: ${harmless(text === '' ? href : text)}`);
    }
    case 'escape':
      return harmless((token as Tokens.Escape).text);
    case 'text':
      return (token as Tokens.Text).tokens === undefined ? harmless((token as Tokens.Text).text) : inner();
    default:
      return harmless(token.raw);
  }
}

/** A link that shows where it leads, if its text does not; what may not be opened is shown as it is written. */
function linkView(href: string, raw: string, text: unknown): unknown {
  const address = /^[!-~]+$/.test(href) ? httpAddress(href) : null;
  if (address === null) return harmless(raw);
  return html`<a href=${address} target="_blank" rel="noopener noreferrer" title=${address}>${text}</a>`;
}
