//! Splits long logged texts into marked parts without loss (`LOG-3`).

/// Longest text that a process logs in one line, in bytes. The daemon splits lines that are too
/// long for the log, next to secret values if necessary. Only longer texts are split here, where
/// secret values are unknown.
pub const TEXT_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of bytes of a character, minus one.
const UTF8_REST_MAX: usize = 3;

/// A text logged in one line, or a part of a text that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextPart<'t> {
    pub text: &'t str,
    /// Number of the part, from 1, for the field `split_part`; `None` for a complete text.
    pub number: Option<u32>,
}

/// Splits a text into parts of at most [`TEXT_BYTES_MAX`]; an empty text has one part.
pub fn text_parts(text: &str) -> impl Iterator<Item = TextPart<'_>> {
    let is_whole = text.len() <= TEXT_BYTES_MAX;
    let (mut rest, mut number) = (Some(text), 0);
    std::iter::from_fn(move || {
        let text = rest?;
        let (part, behind) = text.split_at(text.floor_char_boundary(TEXT_BYTES_MAX));
        rest = (!behind.is_empty()).then_some(behind);
        number += 1;
        Some(TextPart {
            text: part,
            number: (!is_whole).then_some(number),
        })
    })
}

/// Number of leading bytes that are complete characters, for a line split inside a character.
#[must_use]
pub fn whole_characters(bytes: &[u8]) -> usize {
    let mut from_end = bytes.iter().rev().take(UTF8_REST_MAX).enumerate();
    let first = from_end.find(|(_, byte)| **byte & 0xc0 != 0x80);
    let Some((behind, byte)) = first else {
        return bytes.len();
    };
    let width = match byte {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    if width > behind + 1 {
        bytes.len() - behind - 1
    } else {
        bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_3_a_text_in_parts_is_the_whole_text() {
        let numbers = |text: &str| text_parts(text).map(|part| part.number).collect::<Vec<_>>();
        assert_eq!(numbers(""), [None]);
        assert_eq!(numbers(&"x".repeat(TEXT_BYTES_MAX)), [None]);
        let long = "\u{20ac}".repeat(TEXT_BYTES_MAX);
        assert_eq!(numbers(&long), [Some(1), Some(2), Some(3), Some(4)]);
        let joined: String = text_parts(&long).map(|part| part.text).collect();
        assert_eq!(joined, long);
    }

    #[test]
    fn log_3_no_character_is_cut_in_two() {
        for text in ["a\u{20ac}", "\u{e9}", "x\u{1f600}y", "plain", ""] {
            for length in 0..=text.len() {
                let whole = whole_characters(&text.as_bytes()[..length]);
                assert_eq!(whole, text.floor_char_boundary(length), "{text} {length}");
            }
        }
        // Non-text bytes can be split anywhere.
        assert_eq!(whole_characters(&[0x80; 9]), 9);
        assert_eq!(whole_characters(b"a\xff"), 2);
    }
}
