// The files of a patch with their numbered lines. Pure.

/** What a line is: `place` begins a hunk, and `note` is not of the file. */
export type LineKind = 'added' | 'removed' | 'same' | 'place' | 'note';

/** A line of a file's changes. */
export interface DiffLine {
  kind: LineKind;
  /** Without the sign. */
  text: string;
  /** Number before the change, if the line existed. */
  old?: number;
  /** Number after the change, if the line still exists. */
  new?: number;
}

/** The changes of a file. */
export interface DiffFile {
  /** Its path as the daemon writes it; empty for lines that belong to no file. */
  path: string;
  status: 'added' | 'deleted' | 'modified';
  isBinary: boolean;
  lines: DiffLine[];
  added: number;
  removed: number;
  /** Encoded content of a binary file, as git writes it. */
  encoded: string[];
}

/** A row of two columns: a line before the change and one after it, or a line that is of neither. */
export interface SideRow {
  left?: DiffLine;
  right?: DiffLine;
  note?: DiffLine;
}

/** The lines in two columns: removed lines beside the added ones that replace them. */
export function sideRows(lines: DiffLine[]): SideRow[] {
  const rows: SideRow[] = [];
  let removed: DiffLine[] = [];
  let added: DiffLine[] = [];
  const flush = (): void => {
    for (let at = 0; at < Math.max(removed.length, added.length); at += 1) {
      const [left, right] = [removed[at], added[at]];
      rows.push({ ...(left === undefined ? {} : { left }), ...(right === undefined ? {} : { right }) });
    }
    [removed, added] = [[], []];
  };
  for (const line of lines) {
    if (line.kind === 'removed') {
      if (added.length > 0) flush();
      removed.push(line);
    } else if (line.kind === 'added') added.push(line);
    else {
      flush();
      rows.push(line.kind === 'same' ? { left: line, right: line } : { note: line });
    }
  }
  flush();
  return rows;
}

/** Counters within a hunk: lines that are left of it, and the numbers of the next lines. */
interface Hunk {
  oldLeft: number;
  newLeft: number;
  old: number;
  new: number;
}

/** The files of a unified diff, with or without the headers of git. Within a hunk, only its counts decide. */
export function filesOfDiff(diff: string): DiffFile[] {
  const files: DiffFile[] = [];
  const hunk: Hunk = { oldLeft: 0, newLeft: 0, old: 0, new: 0 };
  let isGit = false;
  const begin = (path: string): DiffFile => {
    const file: DiffFile = { path, status: 'modified', isBinary: false, lines: [], added: 0, removed: 0, encoded: [] };
    files.push(file);
    return file;
  };
  const current = (): DiffFile => files.at(-1) ?? begin('');
  const lines = diff.endsWith('\n') ? diff.slice(0, -1).split('\n') : diff.split('\n');
  for (const text of lines) {
    if (hunk.oldLeft > 0 || hunk.newLeft > 0) {
      if (addHunkLine(current(), hunk, text)) continue;
      // The patch was cut.
      hunk.oldLeft = 0;
      hunk.newLeft = 0;
    }
    const place = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(text);
    if (text.startsWith('diff --git ')) {
      isGit = true;
      begin(pathOfNames(text.slice('diff --git '.length)));
    } else if (place !== null) {
      current().lines.push({ kind: 'place', text });
      hunk.old = Number(place[1]);
      hunk.oldLeft = Number(place[2] ?? 1);
      hunk.new = Number(place[3]);
      hunk.newLeft = Number(place[4] ?? 1);
    } else if (text.startsWith('--- ')) {
      if (!isGit) begin(pathOfName(text.slice(4)));
    } else if (text.startsWith('+++ ')) {
      const file = current();
      if (!isGit && file.path === '') file.path = pathOfName(text.slice(4));
    } else if (text === 'GIT binary patch') {
      current().isBinary = true;
    } else if (files.at(-1)?.isBinary === true && isBinaryLine(text)) {
      current().encoded.push(text);
    } else if (text.startsWith('new file mode ')) {
      current().status = 'added';
    } else if (text.startsWith('deleted file mode ')) {
      current().status = 'deleted';
    } else if (text !== '' && !/^index [0-9a-f]+\.\./.test(text)) {
      current().lines.push({ kind: 'note', text: text.startsWith('\\ ') ? text.slice(2) : text });
    }
  }
  return files;
}

/** Adds a line to a hunk; false if it is none of a hunk. */
function addHunkLine(file: DiffFile, hunk: Hunk, line: string): boolean {
  const sign = line[0] ?? ' ';
  const text = line.slice(1);
  if (sign === '\\') {
    file.lines.push({ kind: 'note', text: text.trimStart() });
  } else if (sign === '+') {
    file.lines.push({ kind: 'added', text, new: hunk.new });
    file.added += 1;
  } else if (sign === '-') {
    file.lines.push({ kind: 'removed', text, old: hunk.old });
    file.removed += 1;
  } else if (sign === ' ') {
    file.lines.push({ kind: 'same', text, old: hunk.old, new: hunk.new });
  } else {
    return false;
  }
  if (sign === '-' || sign === ' ') {
    hunk.old += 1;
    hunk.oldLeft -= 1;
  }
  if (sign === '+' || sign === ' ') {
    hunk.new += 1;
    hunk.newLeft -= 1;
  }
  return true;
}

/** A line of encoded content, or its size. */
function isBinaryLine(text: string): boolean {
  return text === '' || /^(literal|delta) \d+$/.test(text) || /^[A-Za-z][!-~]+$/.test(text);
}

/** The path of `a/PATH b/PATH`. */
function pathOfNames(names: string): string {
  const quoted = /^"(?:[^"\\]|\\.)*"/.exec(names);
  if (quoted !== null) return pathOfName(quoted[0]);
  return pathOfName(names.slice(0, (names.length - 1) / 2));
}

/** The path of a name such as `a/PATH`; empty for `/dev/null`. */
function pathOfName(name: string): string {
  const plain = name.split('\t')[0] ?? '';
  if (plain === '/dev/null') return '';
  if (!plain.startsWith('"')) return plain.replace(/^[ab]\//, '');
  // The daemon quotes a path only if it must, git also if it is not ASCII.
  const text = textOfQuoted(plain.slice(1, -1))?.replace(/^[ab]\//, '');
  const mustQuote = text === undefined || text.startsWith('"') || /\p{Cc}/u.test(text);
  return mustQuote ? `"${plain.slice(1).replace(/^[ab]\//, '')}` : text;
}

const ESCAPES: Record<string, number> = { a: 7, b: 8, t: 9, n: 10, v: 11, f: 12, r: 13, '"': 34, '\\': 92 };

/** The text between quotes; undefined if it is not UTF-8. */
function textOfQuoted(quoted: string): string | undefined {
  const bytes = [...quoted.matchAll(/\\([0-7]{3}|.)|[^\\]/g)].map(([one, escape]) =>
    escape === undefined ? one.charCodeAt(0) : (ESCAPES[escape] ?? Number.parseInt(escape, 8)),
  );
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes));
  } catch {
    return undefined;
  }
}

/** Files with more lines are folded at first. */
export const FILE_LINES_OPEN = 400;
/** So many lines are unfolded at first, in all files together. */
export const LINES_OPEN = 2000;

/** Whether each file is unfolded at first: the first ones, unless they are long. A file alone always is. */
export function unfolded(files: DiffFile[]): boolean[] {
  if (files.length === 1) return [true];
  let shown = 0;
  return files.map(({ lines }) => {
    const isOpen = lines.length <= FILE_LINES_OPEN && shown + lines.length <= LINES_OPEN;
    if (isOpen) shown += lines.length;
    return isOpen;
  });
}

/** A folder or a file of a patch. */
export interface TreeNode {
  name: string;
  /** Number of the file; absent for a folder. */
  file?: number;
  children: TreeNode[];
}

/** The files by their folders. Folders with one child are joined with it. */
export function treeOf(paths: string[]): TreeNode[] {
  const root: TreeNode = { name: '', children: [] };
  const folders = new Map<string, TreeNode>([['', root]]);
  const folderOf = (path: string): TreeNode => {
    const known = folders.get(path);
    if (known !== undefined) return known;
    const cut = path.lastIndexOf('/');
    const made: TreeNode = { name: path.slice(cut + 1), children: [] };
    folders.set(path, made);
    folderOf(cut === -1 ? '' : path.slice(0, cut)).children.push(made);
    return made;
  };
  paths.forEach((path, file) => {
    const cut = path.lastIndexOf('/');
    folderOf(cut === -1 ? '' : path.slice(0, cut)).children.push({ name: path.slice(cut + 1), file, children: [] });
  });
  return root.children.map(joined);
}

function joined(node: TreeNode): TreeNode {
  const children = node.children.map(joined);
  const [only] = children;
  if (node.file === undefined && children.length === 1 && only !== undefined && only.file === undefined) {
    return { ...only, name: `${node.name}/${only.name}` };
  }
  return { ...node, children };
}
