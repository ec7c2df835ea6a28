// Patches, file by file, with numbered lines and the comments on them. All text is untrusted.

import { html, LitElement, nothing, type TemplateResult } from 'lit';
import { keyed } from 'lit/directives/keyed.js';
import { type ApiError, asApiError, call } from '../api.js';
import { commentState, keyOf, type Place, type PlacedComments, placed, placeOf, placeText } from '../comments.js';
import { studio } from '../studio.js';
import type { ProposalComment, Sandbox } from '../types.js';
import { counted } from './figures.js';
import { type DiffFile, type DiffLine, filesOfDiff, unfolded } from './patch.js';
import { harmless, oneLine } from './text.js';
import { failureView, standingView, textView, timeView } from './views.js';

/** The most lines of a file that are shown. */
export const FILE_LINES_MAX = 5000;

/** The proposal whose patch is shown, for comments on it. */
export interface Commented {
  sandbox: Sandbox;
  digest: string;
  comments: ProposalComment[];
  /** True if comments can be added. */
  isOpen: boolean;
  /** Reads the comments again. */
  changed: () => Promise<void>;
}

/** A comment that is being written. */
interface Draft {
  place: Place;
  /** Digest of the proposal that the author sees. */
  digest: string;
  text: string;
  /** A text that is sent again, because the answer to the first request was lost, has the same id. */
  id: string;
  isBusy: boolean;
  failure: ApiError | null;
}

/** A patch. */
export function diffView(diff: string, label: string): TemplateResult {
  return html`<gdn-diff .diff=${diff} .label=${label}></gdn-diff>`;
}

/** The patch of a proposal, with comments. */
export function commentedDiffView(diff: string, label: string, commented: Commented): TemplateResult {
  return html`<gdn-diff .diff=${diff} .label=${label} .commented=${commented}></gdn-diff>`;
}

/** A patch. Its fields are set by the page that shows it. */
export class DiffElement extends LitElement {
  static override properties = { diff: { attribute: false }, commented: { attribute: false } };
  declare diff: string;
  declare commented: Commented | null;
  label = '';
  #files: DiffFile[] = [];
  #isOpen: boolean[] = [];
  /** Lines of folded files are added to the document when the file is unfolded for the first time. */
  #isFilled: boolean[] = [];
  #placed: PlacedComments = { atLines: new Map(), atFiles: new Map(), others: [] };
  readonly #drafts = new Map<string, Draft>();
  #failure: ApiError | null = null;

  constructor() {
    super();
    this.diff = '';
    this.commented = null;
  }

  protected override createRenderRoot(): HTMLElement {
    return this;
  }

  get #canComment(): boolean {
    return studio.write && this.commented?.isOpen === true;
  }

  protected override willUpdate(changed: Map<string, unknown>): void {
    if (changed.has('diff')) {
      this.#files = filesOfDiff(this.diff);
      this.#isOpen = unfolded(this.#files);
      this.#isFilled = [...this.#isOpen];
    }
    if (changed.size > 0) this.#placed = placed(this.#files, this.commented?.comments ?? [], this.commented?.digest ?? '');
  }

  /** Tab stops once in each file; the arrow keys move among its lines. */
  protected override updated(): void {
    for (const table of this.querySelectorAll('table.diff')) {
      if (table.querySelector('button[data-place][tabindex="0"]') !== null) continue;
      table.querySelector('button[data-place]')?.setAttribute('tabindex', '0');
    }
  }

  protected override render(): TemplateResult {
    const { others } = this.#placed;
    return html`${this.#failure === null ? nothing : failureView(this.#failure)}
      ${others.map((comment) => this.#comment(comment, true))}
      ${this.#files.length === 0 ? html`<p class="faint">${this.label}: no changes.</p>` : nothing}
      ${keyed(this.diff, this.#files.map((file, at) => this.#file(file, at)))}`;
  }

  #file(file: DiffFile, at: number): TemplateResult {
    const { path, lines, isBinary } = file;
    // A file that became a link is there twice.
    const isFirst = this.#files.findIndex((one) => one.path === path) === at;
    const comments = isFirst ? (this.#placed.atFiles.get(path) ?? []) : [];
    const count = this.commented?.comments.filter((one) => one.path === path).length ?? 0;
    const name = path === '' ? this.label : oneLine(path);
    const toggled = (event: Event): void => {
      if (!(event.target as HTMLDetailsElement).open || this.#isFilled[at] === true) return;
      this.#isFilled[at] = true;
      this.requestUpdate();
    };
    const place = { path };
    return html`<details class="file" data-file=${path} ?open=${this.#isOpen[at]} @toggle=${toggled}>
      <summary><span class="name">${name}</span> ${file.status === 'modified' ? nothing : standingView(file.status)}
        ${isBinary ? html`<span class="faint">binary</span>` : sizeView(file)}
        ${count === 0 ? nothing : html`<span class="standing">${counted(count, 'comment')}</span>`}</summary>
      ${comments.map((comment) => this.#comment(comment, true))}
      ${isFirst && path !== '' && this.#canComment && !this.#drafts.has(keyOf(place))
        ? html`<p><button type="button" data-place=${keyOf(place)} @click=${() => this.#begin(place)}>Comment on the file</button></p>`
        : nothing}
      ${isFirst ? this.#draft(place) : nothing}
      ${this.#isFilled[at] !== true || lines.length === 0 ? nothing : this.#table(file, name)}
    </details>`;
  }

  #table({ path, lines }: DiffFile, name: string): TemplateResult {
    const rest = lines.length - FILE_LINES_MAX;
    return html`<table class="diff" aria-label=${`Changes of ${name}`} @keydown=${moveAmongLines}>
        <thead class="hidden"><tr><th scope="col">Line before</th><th scope="col">Line after</th><th scope="col">Change</th>
          <th scope="col">Text</th></tr></thead>
        <tbody>${lines.slice(0, FILE_LINES_MAX).map((line) => this.#line(path, line))}</tbody>
      </table>
      ${rest > 0 ? html`<p class="faint">${counted(rest, 'more line')} not shown.</p>` : nothing}`;
  }

  #line(path: string, line: DiffLine): TemplateResult {
    const { kind, text } = line;
    const place = path === '' ? null : placeOf(path, line);
    if (place === null && (kind === 'place' || kind === 'note')) {
      return html`<tr class=${kind}><td></td><td></td><td></td><td class="code">${harmless(text)}</td></tr>`;
    }
    const button = place === null || !this.#canComment ? nothing : this.#lineButton(place, kind);
    const isOld = kind === 'removed';
    const comments = place === null ? [] : (this.#placed.atLines.get(keyOf(place)) ?? []);
    const draft = place === null ? nothing : this.#draft(place);
    return html`<tr class=${kind}>
        <td class="at">${isOld && button !== nothing ? button : line.old}</td>
        <td class="at">${isOld || button === nothing ? line.new : button}</td>
        <td class="sign" aria-label=${kind === 'same' ? 'same' : kind}>${SIGNS[kind]}</td>
        <td class="code" @click=${button === nothing ? undefined : () => this.#clicked(place)}>${harmless(text)}</td></tr>${
      comments.length === 0 && draft === nothing
        ? nothing
        : html`<tr class="notes"><td colspan="4">${comments.map((comment) => this.#comment(comment, false))}${draft}</td></tr>`}`;
  }

  #lineButton(place: Place, kind: string): TemplateResult {
    const label = `Comment on line ${place.line}${kind === 'same' ? '' : `, ${kind}`}`;
    return html`<button type="button" tabindex="-1" data-place=${keyOf(place)} aria-label=${label} title="Comment"
      @click=${() => this.#begin(place)}>${place.line}</button>`;
  }

  /** A click on a line; a selection of its text is none. */
  #clicked(place: Place | null): void {
    if (place !== null && (document.getSelection()?.isCollapsed ?? true)) this.#begin(place);
  }

  /** A comment; with its place if that is not above it. */
  #comment(comment: ProposalComment, hasPlace: boolean): TemplateResult {
    const { number, at, text, lineText, old } = comment;
    const state = commentState(comment, this.commented?.digest ?? '');
    return html`<div class="comment" data-comment=${number}>
      <p class="faint">Comment ${number} ${timeView(at)} <span class="standing ${comment.state === 'open' ? 'waits' : ''}">${state}</span>
        ${comment.state === 'open' && studio.write
          ? html`<button type="button" aria-label=${`Remove comment ${number}`} @click=${() => void this.#remove(comment)}>Remove</button>`
          : nothing}</p>
      ${hasPlace ? html`<p class="name">${oneLine(placeText(comment))}${old === true ? ' (before the change)' : ''}</p>` : nothing}
      ${hasPlace && lineText !== undefined ? html`<blockquote class="name">${harmless(lineText)}</blockquote>` : nothing}
      <div class="said">${textView(text)}</div>
    </div>`;
  }

  #draft(place: Place): TemplateResult | typeof nothing {
    const key = keyOf(place);
    const draft = this.#drafts.get(key);
    if (draft === undefined) return nothing;
    const edited = (event: Event): void => {
      draft.text = (event.target as HTMLTextAreaElement).value;
      draft.id = crypto.randomUUID();
    };
    const pressed = (event: KeyboardEvent): void => {
      if (event.key === 'Escape') this.#end(key);
      else if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) (event.target as HTMLTextAreaElement).form?.requestSubmit();
      else return;
      event.preventDefault();
    };
    const submitted = (event: SubmitEvent): void => {
      event.preventDefault();
      void this.#save(key, draft);
    };
    const label = `Comment on ${place.line === undefined ? oneLine(place.path) : `line ${place.line}${place.old === true ? ' before the change' : ''}`}`;
    return html`<form class="comment" data-draft=${key} @submit=${submitted}>
      ${draft.failure === null ? nothing : failureView(draft.failure)}
      <label>${label}<textarea name="comment" rows="3" required .value=${draft.text} @input=${edited} @keydown=${pressed}></textarea></label>
      <p class="actions"><button type="submit" class="primary" ?disabled=${draft.isBusy}>Save the comment</button>
        <button type="button" @click=${() => this.#end(key)}>Cancel</button>
        <span class="faint">Ctrl-Enter also saves.</span></p>
    </form>`;
  }

  #begin(place: Place): void {
    const key = keyOf(place);
    if (!this.#drafts.has(key)) {
      const digest = this.commented?.digest ?? '';
      this.#drafts.set(key, { place, digest, text: '', id: crypto.randomUUID(), isBusy: false, failure: null });
    }
    this.requestUpdate();
    void this.updateComplete.then(() => this.#focus('[data-draft]', 'draft', key)?.querySelector('textarea')?.focus());
  }

  #end(key: string): void {
    this.#drafts.delete(key);
    this.requestUpdate();
    void this.updateComplete.then(() => this.#focus('button[data-place]', 'place', key)?.focus());
  }

  #focus(selector: string, name: string, key: string): HTMLElement | undefined {
    return [...this.querySelectorAll<HTMLElement>(selector)].find((one) => one.dataset[name] === key);
  }

  async #save(key: string, draft: Draft): Promise<void> {
    const { commented } = this;
    if (commented === null || draft.isBusy || draft.text.trim() === '') return;
    draft.isBusy = true;
    draft.failure = null;
    this.requestUpdate();
    try {
      const { place, text, digest, id: commentId } = draft;
      await call('proposal.comment', studio.of({ sandbox: commented.sandbox, ...place, text, digest, commentId }));
      await commented.changed();
      studio.announce('The comment is saved.');
      this.#end(key);
    } catch (thrown) {
      draft.failure = asApiError(thrown);
    }
    draft.isBusy = false;
    this.requestUpdate();
  }

  async #remove({ number, ...place }: ProposalComment): Promise<void> {
    const { commented } = this;
    if (commented === null) return;
    this.#failure = null;
    try {
      await call('proposal.uncomment', studio.of({ sandbox: commented.sandbox, number }));
      await commented.changed();
      studio.announce(`Comment ${number} is removed.`);
    } catch (thrown) {
      this.#failure = asApiError(thrown);
    }
    this.requestUpdate();
    await this.updateComplete;
    if (document.activeElement !== document.body) return;
    const line = this.#focus('button[data-place]', 'place', keyOf(place));
    (line ?? this.querySelector('summary'))?.focus();
  }
}

const SIGNS: Record<DiffLine['kind'], string> = { added: '+', removed: '-', same: '', place: '', note: '' };

function sizeView({ added, removed }: DiffFile): TemplateResult {
  return html`${added === 0 ? nothing : html`<span class="good">+${added}</span>`} ${removed === 0 ? nothing : html`<span class="bad">-${removed}</span>`}`;
}

/** The arrow keys move among the lines of a file. */
function moveAmongLines(event: KeyboardEvent): void {
  const button = event.target as HTMLElement;
  if (!button.matches('button[data-place]') || event.ctrlKey || event.altKey || event.metaKey) return;
  const buttons = (): NodeListOf<HTMLElement> => (event.currentTarget as HTMLElement).querySelectorAll('button[data-place]');
  let next: HTMLElement | null | undefined;
  if (event.key === 'Home') next = buttons()[0];
  else if (event.key === 'End') next = [...buttons()].at(-1);
  else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') next = neighbor(button, event.key === 'ArrowDown');
  else return;
  event.preventDefault();
  if (next === null || next === undefined) return;
  button.setAttribute('tabindex', '-1');
  next.setAttribute('tabindex', '0');
  next.focus();
}

/** The button of the next line, or of the previous one. */
function neighbor(button: HTMLElement, isNext: boolean): HTMLElement | null {
  let row = button.closest('tr') as Element | null;
  while (row !== null) {
    row = isNext ? row.nextElementSibling : row.previousElementSibling;
    const found = row?.querySelector<HTMLElement>('button[data-place]') ?? null;
    if (found !== null) return found;
  }
  return null;
}

customElements.define('gdn-diff', DiffElement);
