// Rows of a long list that are in the document: the visible ones, and a few around them.

/** A part of a list: from `first` up to and without `end`. */
export interface Window {
  first: number;
  end: number;
}

/** The most rows that are in the document. */
export const ROWS_MAX = 60;
/** Rows above and below what is seen. */
const ROWS_AROUND = 8;

/** The rows to show of `total` rows of `rowHeight` pixels, in a view of `viewHeight` that was scrolled to `top`. */
export function windowOf(total: number, rowHeight: number, top: number, viewHeight: number): Window {
  const seen = Math.ceil(Math.max(viewHeight, 0) / rowHeight) + 1;
  const size = Math.min(seen + 2 * ROWS_AROUND, ROWS_MAX, total);
  const firstSeen = Math.floor(Math.max(top, 0) / rowHeight);
  const first = Math.max(0, Math.min(firstSeen - ROWS_AROUND, total - size));
  return { first, end: first + size };
}

/** Where to scroll so that a row can be seen whole; where it was if it can. */
export function scrollTo(row: number, rowHeight: number, top: number, viewHeight: number): number {
  const start = row * rowHeight;
  if (start < top) return start;
  const end = start + rowHeight;
  return end > top + viewHeight ? end - viewHeight : top;
}

/** The row that a key leads to, or null if the key is for something else. */
export function rowByKey(key: string, row: number, total: number, rowsSeen: number): number | null {
  if (total === 0) return null;
  const last = total - 1;
  const to: Record<string, number> = {
    ArrowDown: row + 1,
    ArrowUp: row - 1,
    PageDown: row + rowsSeen,
    PageUp: row - rowsSeen,
    Home: 0,
    End: last,
  };
  const next = to[key];
  return next === undefined ? null : Math.max(0, Math.min(last, next));
}

/** Entries that enter and leave the document together, by their places among those that are loaded. */
export interface Chunk extends Window {
  /** The same for the same entries when earlier ones are loaded. */
  number: number;
}

/** The chunks of `loaded` entries, before which `before` are not loaded. */
export function chunksOf(before: number, loaded: number, size: number): Chunk[] {
  const chunks: Chunk[] = [];
  for (let first = 0; first < loaded;) {
    const number = Math.floor((before + first) / size);
    const end = Math.min((number + 1) * size - before, loaded);
    chunks.push({ number, first, end });
    first = end;
  }
  return chunks;
}
