//! Finds a text that differs from a file's only in characters that look alike (pure).
//!
//! Models write plain spaces, quotes and hyphens where a file has others, because both look the
//! same to them.

use std::ops::Range;

/// The plain character that looks like `c`.
fn plain(c: char) -> char {
    match c {
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}' => '\'',
        '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{201f}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        c => c,
    }
}

/// Places of `text`, in bytes, that look like `wanted`, in order and without overlap.
pub(super) fn places(text: &str, wanted: &str) -> Vec<Range<usize>> {
    let wanted: String = wanted.chars().map(plain).collect();
    let text_of_plain: String = text.chars().map(plain).collect();
    // Both texts have the same characters at the same positions, but of different lengths.
    let mut real = text.char_indices().map(|(at, _)| at);
    let mut read = text_of_plain.char_indices().map(|(at, _)| at);
    let mut real_place = |plain_at: usize| {
        let mut before = read.by_ref().zip(real.by_ref());
        before
            .find(|(at, _)| *at == plain_at)
            .map_or(text.len(), |(_, real_at)| real_at)
    };
    let mut places: Vec<Range<usize>> = Vec::new();
    let mut last_end: Option<(usize, usize)> = None;
    for (at, found) in text_of_plain.match_indices(&wanted) {
        // A match may begin where the previous one ends.
        let start = match last_end {
            Some((plain_end, real_end)) if plain_end == at => real_end,
            _ => real_place(at),
        };
        let plain_end = at + found.len();
        let end = real_place(plain_end);
        last_end = Some((plain_end, end));
        places.push(start..end);
    }
    places
}

/// The text with `replacement` instead of `wanted` at the places of `wanted`. The start and the end
/// that both have in common keep the characters of the file.
pub(super) fn replaced(
    text: &str,
    places: &[Range<usize>],
    wanted: &str,
    replacement: &str,
) -> String {
    let same = |pair: &(char, char)| pair.0 == pair.1;
    let at_start = wanted.chars().zip(replacement.chars());
    let at_start = at_start.take_while(same).count();
    let shorter = wanted.chars().count().min(replacement.chars().count());
    let at_end = wanted.chars().rev().zip(replacement.chars().rev());
    let at_end = at_end.take_while(same).count().min(shorter - at_start);
    let new: String = {
        let count = replacement.chars().count() - at_start - at_end;
        replacement.chars().skip(at_start).take(count).collect()
    };
    let mut result = String::with_capacity(text.len());
    let mut rest = 0;
    for place in places {
        let found = text.get(place.clone()).unwrap_or_default();
        let bytes_at_start: usize = found.chars().take(at_start).map(char::len_utf8).sum();
        let bytes_at_end: usize = found.chars().rev().take(at_end).map(char::len_utf8).sum();
        let start = place.start + bytes_at_start;
        result.push_str(text.get(rest..start).unwrap_or_default());
        result.push_str(&new);
        rest = place.end - bytes_at_end;
    }
    result.push_str(text.get(rest..).unwrap_or_default());
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prov_1_text_that_looks_the_same_is_found() {
        for (text, wanted, expected) in [
            ("the list in\u{a0}current", "in current", "the list +"),
            ("say “hello” – twice", "\"hello\" - twice", "say +"),
            ("it’s 데이터\u{202f}x", "it's 데이터 x", "+"),
            ("’’’", "'", "+++"),
            ("‘a’ ‘a’", "'a'", "+ +"),
            ("plain \"a\"", "“a”", "plain +"),
            ("a", "b", "a"),
            ("a", "a", "+"),
        ] {
            let places = places(text, wanted);
            assert_eq!(replaced(text, &places, wanted, "+"), expected, "{text}");
        }
    }

    #[test]
    fn prov_1_unchanged_parts_of_an_edit_keep_their_characters() {
        for (text, wanted, replacement, expected) in [
            (
                "say “hello” – twice",
                "say \"hello\" - twice",
                "say \"hello\" - once",
                "say “hello” – once",
            ),
            ("a\u{a0}b", "a b", "a b c", "a\u{a0}b c"),
            ("‘a’ ‘a’", "'a'", "'aa'", "‘aa’ ‘aa’"),
            ("‘aa’", "'aa'", "'a'", "‘a’"),
            ("‘a’", "'a'", "", ""),
            ("‘a’", "'a'", "'a'", "‘a’"),
        ] {
            let places = places(text, wanted);
            assert_eq!(replaced(text, &places, wanted, replacement), expected);
        }
    }
}
