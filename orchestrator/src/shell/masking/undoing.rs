//! What JSON and URLs escape, undone, with where each byte stood: so a value is found in a part of a line that is no
//! JSON any more, whichever of its characters were escaped, and how.

use std::ops::Range;

/// How many levels of what JSON escapes are undone: a line may quote another, and that a third.
const LEVELS_MAX: usize = 3;

/// How many bytes one byte of a value takes at most where so many levels hide it: `\\\\u0068`, from within.
pub(super) const ESCAPED_BYTES_MAX: usize = 9;

/// Bytes of a character at most.
const UTF8_BYTES_MAX: usize = 4;

/// Bytes with something undone.
#[derive(Debug)]
pub(super) struct Undone {
    pub(super) bytes: Vec<u8>,
    /// Where each of them stood, and behind them the end.
    starts: Vec<usize>,
}

/// Whether something in these bytes may be escaped.
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

/// These bytes with what hides something undone, in every way that is looked at; not as they are.
pub(super) fn undone(bytes: &[u8]) -> Vec<Undone> {
    let mut all = Vec::new();
    all.extend(Undone::of(bytes, |at| at, percent_in));
    let mut json = Undone::of(bytes, |at| at, json_in);
    for _ in 0..LEVELS_MAX {
        let Some(level) = json else { break };
        let again = |undo| Undone::of(&level.bytes, |at| level.place_of(at), undo);
        all.extend(again(percent_in));
        json = again(json_in);
        all.push(level);
    }
    all
}

/// Where to cut `bytes` at `cut` or before, so that no character of UTF-8 is cut in two, and what escapes the first
/// byte behind the cut stays with it.
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
    // A line of nothing else is cut all the same.
    if marks < cut { cut - marks } else { cut }
}

/// Takes what is escaped from the beginning of bytes: what it stands for, and how many bytes it takes.
type Undo = fn(&[u8]) -> Option<(usize, Taken)>;

/// One character, or one byte of one.
enum Taken {
    Character(char),
    Byte(u8),
}

impl Undone {
    /// None if nothing is escaped so.
    fn of(bytes: &[u8], place_of: impl Fn(usize) -> usize, undo: Undo) -> Option<Self> {
        let mut undone = Self {
            bytes: Vec::with_capacity(bytes.len()),
            starts: Vec::with_capacity(bytes.len() + 1),
        };
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let mut utf8 = [0; 4];
            let (length, text) = match undo(rest) {
                Some((length, Taken::Character(c))) => {
                    (length, c.encode_utf8(&mut utf8).as_bytes())
                }
                Some((length, Taken::Byte(byte))) => {
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

    /// Where the byte of this index stood.
    fn place_of(&self, index: usize) -> usize {
        let last = self.starts.last();
        self.starts.get(index).or(last).copied().unwrap_or_default()
    }

    /// Where these bytes of it stood.
    pub(super) fn places(&self, range: Range<usize>) -> Range<usize> {
        self.place_of(range.start)..self.place_of(range.end)
    }
}

fn json_in(bytes: &[u8]) -> Option<(usize, Taken)> {
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
    Some((2, Taken::Character(c)))
}

/// `\u` with four digits, or twice that for a character beyond the first plane.
fn unit_in(bytes: &[u8]) -> Option<(usize, Taken)> {
    let unit = |bytes: &[u8]| number_in(bytes.strip_prefix(b"\\u")?.get(..4)?);
    let first = unit(bytes)?;
    if let Some(c) = char::from_u32(u32::from(first)) {
        return Some((6, Taken::Character(c)));
    }
    let second = unit(bytes.get(6..)?)?;
    let c = char::decode_utf16([first, second]).next()?.ok()?;
    Some((12, Taken::Character(c)))
}

fn percent_in(bytes: &[u8]) -> Option<(usize, Taken)> {
    let byte = number_in(bytes.strip_prefix(b"%")?.get(..2)?)?;
    Some((3, Taken::Byte(u8::try_from(byte).ok()?)))
}

/// Hexadecimal digits alone: no sign, as numbers have it elsewhere.
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
    fn sec_2_what_is_escaped_is_undone_level_by_level() {
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
        // `a\"bc`, and of that `a"bc`.
        assert_eq!(all[0].places(1..2), 1..3);
        assert_eq!(all[0].places(2..3), 3..5);
        assert_eq!(all[1].places(1..2), 1..5);
        assert_eq!(all[1].places(3..4), 6..7);
    }

    #[test]
    fn sec_2_a_cut_takes_what_escapes_the_next_byte_along() {
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
