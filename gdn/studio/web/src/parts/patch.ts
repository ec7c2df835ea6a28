// The lines of a patch and what they are. Pure.

/** What a line of a patch is. */
export type LineKind = 'added' | 'removed' | 'place' | 'file' | 'same';

/** The lines of a unified diff with what they are. A line `--- a` within a hunk is one that was removed. */
export function linesOfDiff(diff: string): { kind: LineKind; text: string }[] {
  let left = 0;
  let right = 0;
  const lines = diff.endsWith('\n') ? diff.slice(0, -1).split('\n') : diff.split('\n');
  return lines.map((text) => {
    const place = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/.exec(text);
    if (place !== null) {
      left = Number(place[1] ?? 1);
      right = Number(place[2] ?? 1);
      return { kind: 'place', text };
    }
    if (left <= 0 && right <= 0) return { kind: text === '' ? 'same' : 'file', text };
    const sign = text[0] ?? ' ';
    if (sign !== '+' && sign !== '\\') left -= 1;
    if (sign !== '-' && sign !== '\\') right -= 1;
    return { kind: sign === '+' ? 'added' : sign === '-' ? 'removed' : 'same', text };
  });
}
