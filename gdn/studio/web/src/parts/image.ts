// Images that a patch adds: decoded from what git writes of a binary file.

const KINDS: Record<string, string> = { png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp', avif: 'image/avif' };
/** Larger images are not shown. */
const IMAGE_BYTES_MAX = 8 * 1024 * 1024;
const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~';

function kindOf(path: string): string | undefined {
  return KINDS[path.slice(path.lastIndexOf('.') + 1).toLowerCase()];
}

/** True if a file is an image by its name. */
export function isImage(path: string): boolean {
  return kindOf(path) !== undefined;
}

/** The bytes of lines in git's base 85; null if they are none. */
export function bytesOf85(lines: string[]): Uint8Array | null {
  const out: number[] = [];
  for (const line of lines) {
    const sign = line.charCodeAt(0);
    const size = sign >= 97 ? sign - 97 + 27 : sign - 65 + 1;
    const end = out.length + size;
    for (let at = 1; at < line.length; at += 5) {
      let value = 0;
      for (const char of line.slice(at, at + 5)) value = value * 85 + ALPHABET.indexOf(char);
      for (const shift of [24, 16, 8, 0]) out.push(Math.floor(value / 2 ** shift) & 0xff);
    }
    if (out.length < end) return null;
    out.length = end;
  }
  return Uint8Array.from(out);
}

/** An address of the new content of an image, which has to be revoked; null if the patch does not contain it. */
export async function imageOf(path: string, encoded: string[]): Promise<string | null> {
  const kind = kindOf(path);
  const size = Number(/^literal (\d+)$/.exec(encoded[0] ?? '')?.[1] ?? NaN);
  if (kind === undefined || !(size > 0 && size <= IMAGE_BYTES_MAX)) return null;
  const end = encoded.indexOf('');
  const zipped = bytesOf85(encoded.slice(1, end === -1 ? encoded.length : end));
  if (zipped === null) return null;
  try {
    const stream = new Blob([zipped as BlobPart]).stream().pipeThrough(new DecompressionStream('deflate'));
    const content = await new Response(stream).arrayBuffer();
    return content.byteLength === size ? URL.createObjectURL(new Blob([content], { type: kind })) : null;
  } catch {
    return null;
  }
}
