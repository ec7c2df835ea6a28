// Patches: a tree of files, and each file with numbered lines in one or two columns, colors, and the comments on them.
// Only the lines near the visible ones are in the document. All text is untrusted.

import { html, LitElement, nothing, type TemplateResult } from 'lit';
import { keyed } from 'lit/directives/keyed.js';
import { type ApiError, asApiError, call } from '../api.js';
import { commentState, keyOf, type Place, type PlacedComments, placed, placeOf, placeText } from '../comments.js';
import type { CodePiece } from '../rich.js';
import { studio } from '../studio.js';
import type { ProposalComment, Sandbox } from '../types.js';
import { lineView, piecesOf, type Ranges, wordsOf } from './code.js';
import { counted } from './figures.js';
import { imageOf, isImage } from './image.js';
import { markdownView } from './markdown.js';
import { type DiffFile, type DiffLine, filesOfDiff, sideRows, type SideRow, type TreeNode, treeOf, unfolded } from './patch.js';
import { languageOf, onRich } from './loader.js';
import { harmless, oneLine } from './text.js';
import { failureView, standingView, textView, timeView } from './views.js';

/** Rows that enter and leave the document together. */
const CHUNK_ROWS = 100;
/** Height of a row until it was shown. */
const ROW_PX = 24;
/** So many rows are in the document before the first paint, more than a screen has. */
const FIRST_ROWS = 100;
/** Rows so far from the visible ones are in the document. */
const AROUND = '800px 0px';
/** Where the choice of one or two columns is kept. */
const KEPT = 'goondan.diff';

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

/** The patch of a proposal, with comments. The page moves to `file`, if it is not empty. */
export function commentedDiffView(diff: string, label: string, commented: Commented, file = ''): TemplateResult {
  return html`<gdn-diff .diff=${diff} .label=${label} .commented=${commented} .wanted=${file}></gdn-diff>`;
}

/** The color of a line, and its changed words. */
type Color = { pieces: CodePiece[] | undefined; words: Ranges };

/** A patch. Its fields are set by the page that shows it. */
export class DiffElement extends LitElement {
  static override properties = { diff: { attribute: false }, commented: { attribute: false } };
  declare diff: string;
  declare commented: Commented | null;
  label = '';
  /** The file of the page's address. */
  wanted = '';
  #wasFound = '';
  #files: DiffFile[] = [];
  #tree: TreeNode[] = [];
  #isOpen: boolean[] = [];
  #isSplit = localStorage.getItem(KEPT) === 'split';
  /** Files that are shown as a document instead of its lines. */
  readonly #rendered = new Set<number>();
  readonly #images = new Map<number, string | null>();
  /** The rows of the files, in the current number of columns. */
  readonly #rows = new Map<number, SideRow[]>();
  /** Chunks of rows in the document, by `file:chunk`, and the heights of those that were. */
  readonly #shown = new Set<string>();
  readonly #heights = new Map<string, number>();
  readonly #colors = new Map<string, Map<DiffLine, Color>>();
  #observer: IntersectionObserver | null = null;
  #placed: PlacedComments = { atLines: new Map(), atFiles: new Map(), others: [] };
  readonly #drafts = new Map<string, Draft>();
  #failure: ApiError | null = null;
  #stop: () => void = () => undefined;

  constructor() {
    super();
    this.diff = '';
    this.commented = null;
  }

  protected override createRenderRoot(): HTMLElement {
    return this;
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.#observer = new IntersectionObserver((entries) => this.#moved(entries), { rootMargin: AROUND });
    this.#stop = onRich(() => {
      this.#colors.clear();
      this.requestUpdate();
    });
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.#observer?.disconnect();
    this.#stop();
    for (const address of this.#images.values()) if (address !== null) URL.revokeObjectURL(address);
    this.#images.clear();
  }

  get #canComment(): boolean {
    return studio.write && this.commented?.isOpen === true;
  }

  protected override willUpdate(changed: Map<string, unknown>): void {
    if (changed.has('diff')) {
      this.#files = filesOfDiff(this.diff);
      this.#tree = treeOf(this.#files.map(({ path }) => path));
      this.#isOpen = unfolded(this.#files);
      this.#rendered.clear();
      this.#images.clear();
      this.#arrange();
    }
    if (changed.size > 0) this.#placed = placed(this.#files, this.commented?.comments ?? [], this.commented?.digest ?? '');
  }

  /** Lays the rows out again; the first ones are shown. */
  #arrange(): void {
    for (const known of [this.#rows, this.#shown, this.#heights, this.#colors]) known.clear();
    let rows = 0;
    this.#files.forEach((_, at) => {
      if (this.#isOpen[at] !== true) return;
      const total = this.#rowsOf(at).length;
      for (let first = 0; first < total && rows < FIRST_ROWS; first += CHUNK_ROWS) {
        this.#shown.add(`${at}:${first / CHUNK_ROWS}`);
        rows += Math.min(CHUNK_ROWS, total - first);
      }
    });
  }

  /** The rows of a file. With one column, each has its line as `note`. */
  #rowsOf(at: number): SideRow[] {
    let rows = this.#rows.get(at);
    if (rows === undefined) {
      const lines = this.#files[at]?.lines ?? [];
      rows = this.#isSplit ? sideRows(lines) : lines.map((line) => ({ note: line }));
      this.#rows.set(at, rows);
    }
    return rows;
  }

  /** Chunks that came near are shown, and those that are far leave the document, unless a person works in them. */
  #moved(entries: IntersectionObserverEntry[]): void {
    let isChanged = false;
    for (const { target, isIntersecting, boundingClientRect } of entries) {
      const key = (target as HTMLElement).dataset['chunk'] ?? '';
      if (isIntersecting === this.#shown.has(key)) continue;
      if (isIntersecting) this.#shown.add(key);
      else {
        const isUsed = target.contains(document.activeElement) || target.querySelector('[data-draft]') !== null;
        if (isUsed || boundingClientRect.height === 0) continue;
        this.#heights.set(key, boundingClientRect.height);
        this.#shown.delete(key);
      }
      isChanged = true;
    }
    if (isChanged) this.requestUpdate();
  }

  /** Tab stops once in each file; the arrow keys move among its lines. */
  protected override updated(): void {
    this.#goToWanted();
    for (const body of this.querySelectorAll('tbody[data-chunk]')) this.#observer?.observe(body);
    for (const table of this.querySelectorAll('table.diff')) {
      if (table.querySelector('button[data-row][tabindex="0"]') !== null) continue;
      table.querySelector('button[data-row]')?.setAttribute('tabindex', '0');
    }
  }

  protected override render(): TemplateResult {
    const { others } = this.#placed;
    const hasTree = this.#files.length > 1;
    return html`${this.#failure === null ? nothing : failureView(this.#failure)}
      ${others.map((comment) => this.#comment(comment, true))}
      ${this.#files.length === 0 ? html`<p class="faint">${this.label}: no changes.</p>` : this.#toolbar()}
      <div class=${hasTree ? 'review' : ''}>
        ${hasTree ? html`<div class="tree" role="group" aria-label="Changed files">${this.#treeView(this.#tree)}</div>` : nothing}
        <div>${keyed(this.diff, this.#files.map((file, at) => this.#file(file, at)))}</div>
      </div>`;
  }

  #toolbar(): TemplateResult {
    const added = this.#files.reduce((sum, file) => sum + file.added, 0);
    const removed = this.#files.reduce((sum, file) => sum + file.removed, 0);
    const choose = (isSplit: boolean) => (): void => {
      this.#isSplit = isSplit;
      localStorage.setItem(KEPT, isSplit ? 'split' : 'unified');
      this.#arrange();
      this.requestUpdate();
    };
    const button = (label: string, isSplit: boolean): TemplateResult => html`<button type="button"
      aria-pressed=${this.#isSplit === isSplit ? 'true' : 'false'} @click=${choose(isSplit)}>${label}</button>`;
    return html`<p class="actions toolbar"><span>${counted(this.#files.length, 'file')} <span class="good">+${added}</span>
        <span class="bad">-${removed}</span></span>
      <span class="choice" role="group" aria-label="Columns">${button('Unified', false)}${button('Side by side', true)}</span></p>`;
  }

  #treeView(nodes: TreeNode[]): TemplateResult {
    return html`<ul>${nodes.map(({ name, file, children }) => {
      const changes = file === undefined ? undefined : this.#files[file];
      return html`<li>${file === undefined || changes === undefined
        ? html`<span class="folder">${oneLine(name)}/</span>${this.#treeView(children)}`
        : html`<button type="button" data-tree=${file} @click=${() => void this.#goTo(file)}>${oneLine(name === '' ? this.label : name)}
            <span class="good">${changes.added === 0 ? '' : `+${changes.added}`}</span>
            <span class="bad">${changes.removed === 0 ? '' : `-${changes.removed}`}</span></button>`}</li>`;
    })}</ul>`;
  }

  /** Moves to the file of the address; once, because the person then moves on. */
  #goToWanted(): void {
    if (this.wanted === this.#wasFound) return;
    const at = this.#files.findIndex(({ path }) => path === this.wanted);
    if (at === -1) return;
    this.#wasFound = this.wanted;
    void this.#goTo(at);
  }

  /** Unfolds a file, and moves to it. */
  async #goTo(at: number): Promise<void> {
    const file = this.querySelector<HTMLDetailsElement>(`details[data-at="${at}"]`);
    if (file === null) return;
    this.#open(at, true);
    await this.updateComplete;
    file.querySelector('summary')?.focus({ preventScroll: true });
    file.scrollIntoView({ block: 'start' });
  }

  #open(at: number, isOpen: boolean): void {
    if (this.#isOpen[at] === isOpen) return;
    this.#isOpen[at] = isOpen;
    if (isOpen) this.#shown.add(`${at}:0`);
    this.requestUpdate();
  }

  #file(file: DiffFile, at: number): TemplateResult {
    const { path, lines, isBinary } = file;
    // A file that became a link is there twice.
    const isFirst = this.#files.findIndex((one) => one.path === path) === at;
    const comments = isFirst ? (this.#placed.atFiles.get(path) ?? []) : [];
    const count = this.commented?.comments.filter((one) => one.path === path).length ?? 0;
    const name = path === '' ? this.label : oneLine(path);
    const place = { path };
    const canComment = isFirst && path !== '' && this.#canComment && !this.#drafts.has(keyOf(place));
    const isDocument = languageOf(path) === 'markdown' && lines.length > 0;
    const content = (): TemplateResult | typeof nothing => {
      if (this.#rendered.has(at)) return documentView(file);
      if (isBinary && isImage(path)) return this.#image(file, at);
      return lines.length === 0 ? nothing : this.#table(at, name);
    };
    return html`<details class="file" data-file=${path} data-at=${at} ?open=${this.#isOpen[at]}
      @toggle=${(event: Event) => this.#open(at, (event.target as HTMLDetailsElement).open)}>
      <summary><span class="name">${name}</span> ${file.status === 'modified' ? nothing : standingView(file.status)}
        ${isBinary ? html`<span class="faint">binary</span>` : sizeView(file)}
        ${count === 0 ? nothing : html`<span class="standing">${counted(count, 'comment')}</span>`}</summary>
      ${comments.map((comment) => this.#comment(comment, true))}
      ${!canComment && !isDocument
        ? nothing
        : html`<p class="actions">${canComment
            ? html`<button type="button" data-place=${keyOf(place)} @click=${() => this.#begin(place)}>Comment on the file</button>`
            : nothing}${isDocument ? this.#documentButton(at, name) : nothing}</p>`}
      ${isFirst ? this.#draft(place) : nothing}
      ${this.#isOpen[at] === true ? content() : nothing}
    </details>`;
  }

  #documentButton(at: number, name: string): TemplateResult {
    const isRendered = this.#rendered.has(at);
    return html`<button type="button" aria-pressed=${isRendered ? 'true' : 'false'} aria-label=${`Rendered ${name}`} @click=${() => {
      if (!this.#rendered.delete(at)) this.#rendered.add(at);
      this.requestUpdate();
    }}>Rendered</button>`;
  }

  #image(file: DiffFile, at: number): TemplateResult {
    const address = this.#images.get(at);
    if (address === undefined) {
      this.#images.set(at, null);
      void imageOf(file.path, file.encoded).then((made) => {
        if (made === null || !this.isConnected) return;
        this.#images.set(at, made);
        this.requestUpdate();
      });
    }
    return address === undefined || address === null
      ? html`<p class="faint">The patch does not contain the complete image.</p>`
      : html`<p><img class="picture" src=${address} alt=${`New content of ${oneLine(file.path)}`}></p>`;
  }

  #table(at: number, name: string): TemplateResult {
    const rows = this.#rowsOf(at);
    const chunks = Array.from({ length: Math.ceil(rows.length / CHUNK_ROWS) }, (_, chunk) => chunk);
    const heads = this.#isSplit
      ? ['Line before', 'Text before', 'Line after', 'Text after']
      : ['Line before', 'Line after', 'Change', 'Text'];
    return html`<table class=${this.#isSplit ? 'diff split' : 'diff'} aria-label=${`Changes of ${name}`}
        @keydown=${(event: KeyboardEvent) => void this.#moveAmongLines(event, at)}>
        <colgroup>${(this.#isSplit ? ['at', 'code', 'at', 'code'] : ['at', 'at', 'sign', 'code']).map((name) => html`<col class=${name}>`)}</colgroup>
        <thead class="hidden"><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
        ${chunks.map((chunk) => this.#chunk(at, chunk, rows))}
      </table>`;
  }

  #chunk(at: number, chunk: number, all: SideRow[]): TemplateResult {
    const key = `${at}:${chunk}`;
    const first = chunk * CHUNK_ROWS;
    const rows = all.slice(first, first + CHUNK_ROWS);
    if (!this.#shown.has(key)) {
      const height = this.#heights.get(key) ?? rows.length * ROW_PX;
      return html`<tbody data-chunk=${key}><tr class="later"><td colspan="4" .style=${`height:${height}px`}></td></tr></tbody>`;
    }
    const { path } = this.#files[at]!;
    const colors = this.#colorsOf(key, rows, languageOf(path));
    return html`<tbody data-chunk=${key}>${rows.map((row, n) =>
      this.#isSplit ? this.#sides(path, row, first + n, colors) : this.#line(path, row.note!, first + n, colors))}</tbody>`;
  }

  /** The colors and the changed words of a chunk. */
  #colorsOf(key: string, rows: SideRow[], language: string): Map<DiffLine, Color> {
    const known = this.#colors.get(key);
    if (known !== undefined) return known;
    const colors = new Map<DiffLine, Color>();
    const sides = this.#isSplit ? rows : sideRows(rows.map(({ note }) => note!));
    for (const side of ['left', 'right'] as const) {
      const lines = sides.map((row) => row[side]).filter((line) => line !== undefined);
      const pieces = piecesOf(lines.map(({ text }) => text), language);
      lines.forEach((line, n) => colors.set(line, { pieces: pieces?.[n], words: [] }));
    }
    for (const { left, right } of sides) {
      if (left === undefined || right === undefined || left === right) continue;
      const words = wordsOf(left.text, right.text);
      if (words === null) continue;
      colors.get(left)!.words = words.old;
      colors.get(right)!.words = words.next;
    }
    this.#colors.set(key, colors);
    return colors;
  }

  #sides(path: string, { left, right, note }: SideRow, row: number, colors: Map<DiffLine, Color>): TemplateResult {
    if (note !== undefined) return html`<tr class=${note.kind}><td></td><td class="code" colspan="3">${harmless(note.text)}</td></tr>`;
    const side = (line: DiffLine | undefined, isOld: boolean): TemplateResult => {
      if (line === undefined) return html`<td class="at none"></td><td class="code none"></td>`;
      // A line on both sides has its comments on the right one.
      const place = isOld && line.kind === 'same' ? null : placeOf(path, line);
      const canComment = place !== null && path !== '' && this.#canComment;
      const color = colors.get(line);
      return html`<td class="at ${line.kind}">${canComment ? this.#lineButton(place, line.kind, row) : isOld ? line.old : line.new}</td>
        <td class="code ${line.kind}" @click=${canComment ? () => this.#clicked(place) : undefined}>${lineView(line.text, color?.pieces, color?.words)}</td>`;
    };
    return html`<tr>${side(left, true)}${side(right, false)}</tr>${left === right ? nothing : this.#notes(path, left)}${this.#notes(path, right)}`;
  }

  /** Comments on a line, below it. */
  #notes(path: string, line: DiffLine | undefined): TemplateResult | typeof nothing {
    const place = line === undefined || path === '' ? null : placeOf(path, line);
    if (place === null) return nothing;
    const comments = this.#placed.atLines.get(keyOf(place)) ?? [];
    const draft = this.#draft(place);
    return comments.length === 0 && draft === nothing
      ? nothing
      : html`<tr class="notes"><td colspan="4">${comments.map((comment) => this.#comment(comment, false))}${draft}</td></tr>`;
  }

  #line(path: string, line: DiffLine, row: number, colors: Map<DiffLine, Color>): TemplateResult {
    const { kind, text } = line;
    const place = path === '' ? null : placeOf(path, line);
    if (place === null && (kind === 'place' || kind === 'note')) {
      return html`<tr class=${kind}><td></td><td></td><td></td><td class="code">${harmless(text)}</td></tr>`;
    }
    const button = place === null || !this.#canComment ? nothing : this.#lineButton(place, kind, row);
    const isOld = kind === 'removed';
    const color = colors.get(line);
    return html`<tr class=${kind}>
        <td class="at">${isOld && button !== nothing ? button : line.old}</td>
        <td class="at">${isOld || button === nothing ? line.new : button}</td>
        <td class="sign" aria-label=${kind === 'same' ? 'same' : kind}>${SIGNS[kind]}</td>
        <td class="code" @click=${button === nothing ? undefined : () => this.#clicked(place)}>${lineView(text, color?.pieces, color?.words)}</td></tr>${
      this.#notes(path, line)}`;
  }

  /** Moves among the lines of a file. A line that is not in the document is shown first. */
  async #moveAmongLines(event: KeyboardEvent, at: number): Promise<void> {
    const button = event.target as HTMLElement;
    if (!button.matches('button[data-row]') || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') {
      const sides = [...(button.closest('tr')?.querySelectorAll<HTMLElement>('button[data-row]') ?? [])];
      event.preventDefault();
      moveStop(button, event.key === 'ArrowLeft' ? sides[0] : sides.at(-1));
      return;
    }
    const rows = this.#rowsOf(at);
    const here = Number(button.dataset['row']);
    const moves: Record<string, [number, number]> = { ArrowDown: [here + 1, 1], ArrowUp: [here - 1, -1], Home: [0, 1], End: [rows.length - 1, -1] };
    const move = moves[event.key];
    if (move === undefined) return;
    event.preventDefault();
    let [to] = move;
    while (rows[to] !== undefined && !hasPlace(rows[to]!)) to += move[1];
    if (rows[to] === undefined) return;
    this.#shown.add(`${at}:${Math.floor(to / CHUNK_ROWS)}`);
    this.requestUpdate();
    await this.updateComplete;
    moveStop(button, this.querySelector<HTMLElement>(`details[data-at="${at}"] button[data-row="${to}"]`));
  }

  #lineButton(place: Place, kind: string, row: number): TemplateResult {
    const label = `Comment on line ${place.line}${kind === 'same' ? '' : `, ${kind}`}`;
    return html`<button type="button" tabindex="-1" data-place=${keyOf(place)} data-row=${row} aria-label=${label} title="Comment"
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

/** True if a row has a line that can have comments. */
function hasPlace({ left, right, note }: SideRow): boolean {
  return left !== undefined || right !== undefined || note?.new !== undefined || note?.old !== undefined;
}

/** Moves the focus, and the stop of Tab with it. */
function moveStop(from: HTMLElement, to: HTMLElement | null | undefined): void {
  if (to === null || to === undefined || to === from) return;
  from.setAttribute('tabindex', '-1');
  to.setAttribute('tabindex', '0');
  to.focus();
}

/** The parts of a document that a patch shows, after the change. */
function documentView({ lines, status }: DiffFile): TemplateResult {
  const parts: string[][] = [[]];
  for (const { kind, text } of lines) {
    if (kind === 'place') parts.push([]);
    else if (kind === 'added' || kind === 'same' || (status === 'deleted' && kind === 'removed')) parts.at(-1)!.push(text);
  }
  const shown = parts.filter((part) => part.length > 0);
  return html`<div class="document">${shown.map((part, at) => html`${at === 0 ? nothing : html`<p class="faint">⋯</p>`}${markdownView(part.join('\n'))}`)}</div>`;
}

customElements.define('gdn-diff', DiffElement);
