//! Splits a text that is too long for one message. No I/O.

/// Unit in which a service measures text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// UTF-16 units, as Telegram does.
    Utf16,
    /// Characters.
    Chars,
}

impl Measure {
    /// Length of a text in this unit.
    pub(super) fn of(self, text: &str) -> usize {
        text.chars().map(|c| self.of_char(c)).sum()
    }

    fn of_char(self, c: char) -> usize {
        match self {
            Self::Utf16 => c.len_utf16(),
            Self::Chars => 1,
        }
    }
}

/// Delimiter of a code block.
const FENCE: &str = "```";

/// Longest opening line of a code block that is repeated in full; a longer one is repeated without
/// its language.
const FENCE_LINE_CHARS_MAX: usize = 32;

/// Preferred positions for a split, best first.
const SEAMS: [&str; 5] = ["\n\n", "\n", ". ", "。", " "];

/// Splits a text into parts of at most `limit`, preferably between paragraphs, lines, sentences or
/// words. With `keeps_fences`, a code block that is split is closed in one part and reopened in the
/// next.
pub(super) fn split(text: &str, limit: usize, measure: Measure, keeps_fences: bool) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = text;
    let mut opening = String::new();
    loop {
        if measure.of(&opening) + measure.of(rest) <= limit {
            if !rest.trim().is_empty() || parts.is_empty() {
                parts.push(format!("{opening}{rest}"));
            }
            return parts;
        }
        let closing = if keeps_fences { FENCE.len() + 1 } else { 0 };
        let room = limit.saturating_sub(measure.of(&opening) + closing).max(1);
        let (part, left) = rest.split_at(cut(rest, room, measure));
        let fence = if keeps_fences {
            fence_after(&opening, part)
        } else {
            None
        };
        let mut whole = format!("{opening}{}", part.trim_end());
        if fence.is_some() {
            whole.push('\n');
            whole.push_str(FENCE);
        }
        parts.push(whole);
        opening = fence.map_or_else(String::new, |line| format!("{line}\n"));
        // In code, leading white space is significant.
        rest = if opening.is_empty() {
            left.trim_start()
        } else {
            left.trim_start_matches('\n')
        };
    }
}

/// The best position for a split within the first `room` of a text. Never 0.
pub(super) fn cut(text: &str, room: usize, measure: Measure) -> usize {
    let mut taken = 0;
    let end = text
        .char_indices()
        .find_map(|(at, c)| {
            taken += measure.of_char(c);
            (taken > room).then_some(at)
        })
        .unwrap_or(text.len());
    let first = text.chars().next().map_or(0, char::len_utf8);
    let end = end.max(first);
    let whole = text.get(..end).unwrap_or(text);
    let seam = SEAMS.iter().find_map(|seam| {
        let at = whole.rfind(seam)? + seam.len();
        // A very short first part would look like a mistake.
        (at >= end / 2).then_some(at)
    });
    seam.unwrap_or(end)
}

/// The opening line of the code block that is still open after `part`, if any.
fn fence_after(opening: &str, part: &str) -> Option<String> {
    let mut open = (!opening.is_empty()).then(|| opening.trim_end().to_owned());
    for line in part.lines().map(str::trim) {
        if !line.starts_with(FENCE) {
            continue;
        }
        // "```x```" opens and closes on one line.
        if line
            .get(FENCE.len()..)
            .is_some_and(|more| more.contains(FENCE))
        {
            continue;
        }
        open = match open {
            Some(_) => None,
            None if line.chars().count() > FENCE_LINE_CHARS_MAX => Some(FENCE.to_owned()),
            None => Some(line.to_owned()),
        };
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_fits_is_one_part_as_it_is() {
        assert_eq!(split(" a \n", 4, Measure::Chars, true), [" a \n"]);
        assert_eq!(split("", 4, Measure::Chars, false), [""]);
    }

    #[test]
    fn cuts_are_where_they_show_least() {
        let parts = |text, limit| split(text, limit, Measure::Chars, false);
        assert_eq!(
            parts("one two\n\nthree four", 12),
            ["one two", "three four"]
        );
        assert_eq!(parts("one two\nthree four", 12), ["one two", "three four"]);
        assert_eq!(parts("One. Two. Three.", 10), ["One. Two.", "Three."]);
        assert_eq!(parts("one two three", 8), ["one two", "three"]);
        assert_eq!(parts("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(parts("a bcdefghij", 6), ["a bcde", "fghij"]);
    }

    #[test]
    fn no_part_is_longer_than_the_limit_and_nothing_is_lost() {
        let text = "😀 héllo, wörld. ".repeat(300);
        for (measure, limit) in [
            (Measure::Utf16, 100),
            (Measure::Chars, 33),
            (Measure::Utf16, 1),
        ] {
            let parts = split(&text, limit, measure, false);
            let fits = |part: &String| measure.of(part) <= limit.max(2);
            assert!(parts.iter().all(fits), "{parts:?}");
            let bare = |text: &str| text.replace(' ', "");
            assert_eq!(bare(&parts.concat()), bare(&text));
        }
    }

    #[test]
    fn split_code_block_continues_in_the_next_part() {
        let code: String = (0..40).map(|n| format!("    line {n}\n")).collect();
        let text = format!("Look:\n```rust\n{code}```\nThat is it.");
        let parts = split(&text, 120, Measure::Chars, true);
        assert!(parts.len() > 3);
        for part in &parts {
            assert!(Measure::Chars.of(part) <= 120, "{part}");
            assert_eq!(part.matches(FENCE).count() % 2, 0, "{part}");
        }
        assert!(parts[1].starts_with("```rust\n    line"), "{}", parts[1]);
        assert!(parts.concat().contains("line 39"));
    }
}
