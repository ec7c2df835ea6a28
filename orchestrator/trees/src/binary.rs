//! Binary parts of git patches: deflated, base 85, as a literal or as a delta.

use std::io::{self, Read as _, Write as _};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Most content bytes in one line of a binary patch.
const LINE_BYTES: usize = 52;

/// Writes `content` as a `literal` part: its heading, its lines, and the terminating empty line.
pub(crate) fn write_literal(out: &mut Vec<u8>, content: &[u8]) -> io::Result<()> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content)?;
    let deflated = encoder.finish()?;
    out.extend_from_slice(format!("literal {}\n", content.len()).as_bytes());
    for line in deflated.chunks(LINE_BYTES) {
        out.push(length_letter(line.len()));
        for group in line.chunks(4) {
            let byte = |at| group.get(at).copied().unwrap_or(0);
            let mut value = u32::from_be_bytes([byte(0), byte(1), byte(2), byte(3)]);
            let mut digits = [0; 5];
            for digit in digits.iter_mut().rev() {
                *digit = ALPHABET.get(value as usize % 85).copied().unwrap_or(b'0');
                value /= 85;
            }
            out.extend_from_slice(&digits);
        }
        out.push(b'\n');
    }
    out.push(b'\n');
    Ok(())
}

fn length_letter(len: usize) -> u8 {
    let len = u8::try_from(len).unwrap_or(0);
    if len <= 26 {
        b'A' + len - 1
    } else {
        b'a' + len - 27
    }
}

/// Decodes one line; `None` if it is not a valid line of a binary patch.
pub(crate) fn decode_line(line: &[u8]) -> Option<Vec<u8>> {
    let (letter, digits) = line.split_first()?;
    let len = usize::from(match letter {
        b'A'..=b'Z' => letter - b'A' + 1,
        b'a'..=b'z' => letter - b'a' + 27,
        _ => return None,
    });
    if digits.len() != len.div_ceil(4) * 5 {
        return None;
    }
    let mut bytes = Vec::with_capacity(len + 3);
    for group in digits.chunks(5) {
        let mut value: u32 = 0;
        for digit in group {
            let digit = ALPHABET.iter().position(|known| known == digit)?;
            value = value
                .checked_mul(85)?
                .checked_add(u32::try_from(digit).ok()?)?;
        }
        bytes.extend_from_slice(&value.to_be_bytes());
    }
    bytes.truncate(len);
    Some(bytes)
}

/// Inflates to exactly `bytes` bytes; `None` if the size differs or the data is damaged.
pub(crate) fn inflate(deflated: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut decoder = ZlibDecoder::new(deflated);
    let read = decoder
        .by_ref()
        .take(bytes as u64 + 1)
        .read_to_end(&mut out)
        .ok()?;
    let is_whole = read == bytes && decoder.total_in() == deflated.len() as u64;
    is_whole.then_some(out)
}

/// Applies a delta to `old`: copies of its parts and new bytes. `None` if the delta is invalid.
pub(crate) fn apply_delta(old: &[u8], delta: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut rest = delta;
    if read_size(&mut rest)? != old.len() {
        return None;
    }
    let size = read_size(&mut rest).filter(|size| *size <= most)?;
    let mut out = Vec::new();
    while let Some((op, after)) = rest.split_first() {
        rest = after;
        let piece = if op & 0x80 != 0 {
            let mut field = |bits: std::ops::Range<u32>| {
                let mut value = 0;
                for (shift, bit) in bits.enumerate() {
                    if op & (1 << bit) != 0 {
                        let (byte, after) = rest.split_first()?;
                        rest = after;
                        value |= usize::from(*byte) << (8 * shift);
                    }
                }
                Some(value)
            };
            let offset = field(0..4)?;
            let len = match field(4..7)? {
                0 => 0x10000,
                len => len,
            };
            old.get(offset..offset.checked_add(len)?)?
        } else {
            let (piece, after) = rest
                .split_at_checked(usize::from(*op))
                .filter(|_| *op != 0)?;
            rest = after;
            piece
        };
        if out.len() + piece.len() > size {
            return None;
        }
        out.extend_from_slice(piece);
    }
    (out.len() == size).then_some(out)
}

fn read_size(rest: &mut &[u8]) -> Option<usize> {
    let mut size = 0_usize;
    for shift in (0..56).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        size |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(size);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(content: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        write_literal(&mut out, content).unwrap();
        let mut deflated = Vec::new();
        for line in out
            .split(|byte| *byte == b'\n')
            .skip(1)
            .filter(|line| !line.is_empty())
        {
            deflated.extend(decode_line(line)?);
        }
        inflate(&deflated, content.len())
    }

    #[test]
    fn every_length_is_read_back() {
        let mut random = fastrand::Rng::with_seed(1);
        for len in (0..300).chain([4096, 100_000]) {
            let content: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
            assert_eq!(read_back(&content), Some(content));
        }
    }

    #[test]
    fn damaged_lines_and_deltas_are_none() {
        for line in [
            "", "A", "A0000", "A00000x", "0", "A~~~~~", "B00 00", "a00000",
        ] {
            assert_eq!(decode_line(line.as_bytes()), None, "{line}");
        }
        // Copy 2 bytes from offset 1, insert `x`.
        assert_eq!(
            apply_delta(b"abcd", &[4, 3, 0x91, 1, 2, 1, b'x'], 9),
            Some(b"bcx".to_vec())
        );
        for bad in [
            &[3, 3, 0x91, 1, 2, 1, b'x'][..],
            &[4, 4, 0x91, 1, 2, 1, b'x'],
            &[4, 2, 0x91, 1, 2, 1, b'x'],
            &[4, 3, 0x91, 3, 2, 1, b'x'],
            &[4, 3, 0x91, 1, 2, 1],
            &[4, 3, 0],
            &[4],
            &[0xff; 12],
        ] {
            assert_eq!(apply_delta(b"abcd", bad, 9), None, "{bad:?}");
        }
    }
}
