//! Decodes JSON and URL escapes and records the original position of each byte. This finds values
//! in fragments of a line that are not valid JSON, whichever characters are escaped.

use std::ops::Range;

/// Number of JSON escape levels to decode, because a line can quote another that quotes a third.
const LEVELS_MAX: usize = 3;

/// Maximum number of bytes per byte of a value at this many levels: `\\\\u0068`, counted from
/// within.
pub(super) const ESCAPED_BYTES_MAX: usize = 9;

/// Maximum number of bytes of a character.
const UTF8_BYTES_MAX: usize = 4;

/// Decoded bytes.
#[derive(Debug)]
pub(super) struct DecodedBytes {
    pub(super) bytes: Vec<u8>,
    /// Original position of each byte, and of the end.
    starts: Vec<usize>,
}

/// True if these bytes may contain escapes.
pub(super) fn may_hide(bytes: &[u8]) -> bool {
    bytes.contains(&b'\\') || has_percent(bytes)
}

fn has_percent(bytes: &[u8]) -> bool {
    let mut at = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    at.any(|(at, _)| {
        bytes
            .get(at..)
            .is_some_and(|rest| percent_in(rest).is_some())
    })
}

/// All decoded versions of these bytes, without the original.
pub(super) fn undone(bytes: &[u8]) -> Vec<DecodedBytes> {
    let mut all = Vec::new();
    all.extend(DecodedBytes::of(bytes, |at| at, percent_in));
    let mut json = DecodedBytes::of(bytes, |at| at, json_in);
    for _ in 0..LEVELS_MAX {
        let Some(level) = json else { break };
        let again = |undo| DecodedBytes::of(&level.bytes, |at| level.place_of(at), undo);
        all.extend(again(percent_in));
        json = again(json_in);
        all.push(level);
    }
    all
}

/// Position at or before `cut` at which `bytes` can be cut without splitting a UTF-8 character or
/// the escape of the following byte.
pub(super) fn before_escape(bytes: &[u8], cut: usize) -> usize {
    let is_within = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let mut back = (0..UTF8_BYTES_MAX).map(|back| cut.saturating_sub(back));
    let boundary = back.find(|at| !is_within(at)).filter(|at| *at > 0);
    let cut = boundary.unwrap_or(cut);
    let before = bytes.get(..cut).unwrap_or_default();
    let marks = before
        .iter()
        .rev()
        .take_while(|byte| **byte == b'\\')
        .count();
    // A line of escape characters only is cut anyway.
    if marks < cut { cut - marks } else { cut }
}

/// Decodes an escape at the start of the bytes: returns its length and its value.
type EscapeDecoder = fn(&[u8]) -> Option<(usize, DecodedUnit)>;

/// A character, or one byte of a character.
enum DecodedUnit {
    Character(char),
    Byte(u8),
}

impl DecodedBytes {
    /// `None` if the bytes contain no such escape.
    fn of(bytes: &[u8], place_of: impl Fn(usize) -> usize, undo: EscapeDecoder) -> Option<Self> {
        let mut undone = Self {
            bytes: Vec::with_capacity(bytes.len()),
            starts: Vec::with_capacity(bytes.len() + 1),
        };
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let mut utf8 = [0; 4];
            let (length, text) = match undo(rest) {
                Some((length, DecodedUnit::Character(c))) => {
                    (length, c.encode_utf8(&mut utf8).as_bytes())
                }
                Some((length, DecodedUnit::Byte(byte))) => {
                    utf8 = [byte, 0, 0, 0];
                    (length, utf8.get(..1).unwrap_or_default())
                }
                None => (1, rest.get(..1).unwrap_or_default()),
            };
            undone.bytes.extend_from_slice(text);
            undone.starts.extend(text.iter().map(|_| place_of(at)));
            at += length;
        }
        undone.starts.push(place_of(bytes.len()));
        (undone.bytes.len() < bytes.len()).then_some(undone)
    }

    /// Original position of the byte at this index.
    fn place_of(&self, index: usize) -> usize {
        let last = self.starts.last();
        self.starts.get(index).or(last).copied().unwrap_or_default()
    }

    /// Original range of these decoded bytes.
    pub(super) fn places(&self, range: Range<usize>) -> Range<usize> {
        self.place_of(range.start)..self.place_of(range.end)
    }
}

fn json_in(bytes: &[u8]) -> Option<(usize, DecodedUnit)> {
    let rest = bytes.strip_prefix(b"\\")?;
    let c = match rest.first()? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unit_in(bytes),
        _ => return None,
    };
    Some((2, DecodedUnit::Character(c)))
}

/// `\u` with four digits, or two of them for a surrogate pair.
fn unit_in(bytes: &[u8]) -> Option<(usize, DecodedUnit)> {
    let unit = |bytes: &[u8]| number_in(bytes.strip_prefix(b"\\u")?.get(..4)?);
    let first = unit(bytes)?;
    if let Some(c) = char::from_u32(u32::from(first)) {
        return Some((6, DecodedUnit::Character(c)));
    }
    let second = unit(bytes.get(6..)?)?;
    let c = char::decode_utf16([first, second]).next()?.ok()?;
    Some((12, DecodedUnit::Character(c)))
}

fn percent_in(bytes: &[u8]) -> Option<(usize, DecodedUnit)> {
    let byte = number_in(bytes.strip_prefix(b"%")?.get(..2)?)?;
    Some((3, DecodedUnit::Byte(u8::try_from(byte).ok()?)))
}

/// Hexadecimal digits only, without the sign that other parsers accept.
fn number_in(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0, |number: u16, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(number * 16 + u16::try_from(digit).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(bytes: &[u8]) -> Vec<String> {
        let all = undone(bytes).into_iter();
        all.map(|it| String::from_utf8(it.bytes).unwrap()).collect()
    }

    #[test]
    fn sec_2_escapes_are_decoded_level_by_level() {
        let text = br#"a\"\u00e9\ud83d\ude00\\n\x\u12"#;
        let expected = ["a\"é😀\\n\\x\\u12", "a\"é😀\n\\x\\u12"];
        assert_eq!(texts(text), expected);
        assert_eq!(texts(b"a%2fb%C3%a9%zz%"), ["a/bé%zz%"]);
        assert_eq!(texts(br"\u00252f"), ["/", "%2f"]);
        for plain in ["plain", "50% of", "%+1", "\\", "\\x"] {
            assert!(texts(plain.as_bytes()).is_empty(), "{plain}");
        }
        assert!(may_hide(b"a%2f") && may_hide(b"\\") && !may_hide(b"50% of"));
    }

    #[test]
    fn sec_2_each_byte_knows_where_it_stood() {
        let text = br#"a\\\"bc"#;
        let all = undone(text);
        // `a\"bc`, and its decoding `a"bc`.
        assert_eq!(all[0].places(1..2), 1..3);
        assert_eq!(all[0].places(2..3), 3..5);
        assert_eq!(all[1].places(1..2), 1..5);
        assert_eq!(all[1].places(3..4), 6..7);
    }

    #[test]
    fn sec_2_cut_never_separates_an_escape_from_its_character() {
        assert_eq!(before_escape(b"ab\\\\u0068", 4), 2);
        assert_eq!(before_escape(b"ab\\\\u0068", 5), 5);
        assert_eq!(before_escape(b"\\\\\\\\", 3), 3);
        assert_eq!(before_escape(b"ab", 2), 2);
        assert_eq!(before_escape("a\u{20ac}b".as_bytes(), 3), 1);
        assert_eq!(before_escape("a\u{20ac}b".as_bytes(), 4), 4);
        assert_eq!(before_escape("\u{20ac}b".as_bytes(), 2), 2);
        assert_eq!(before_escape(&[0x80; 9], 8), 8);
    }
}
