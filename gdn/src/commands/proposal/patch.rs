//! A patch in colours: lines, and within lines that were changed the words.

use std::iter;

use imara_diff::{Algorithm, Diff, InternedInput};

use crate::output::style::{self, Palette};
use crate::output::text;

/// Lines of one change whose words are compared; in longer ones they would help nobody.
const WORD_LINES_MAX: usize = 40;
/// Lines of one binary part that are left out of the view, from the first on.
const BINARY: &str = "GIT binary patch";

/// The patch for a person's eyes. The patch itself is `gdn proposal diff`.
pub(super) fn colored(patch: &[u8], palette: Palette) -> String {
    let patch = String::from_utf8_lossy(patch);
    let mut view = View {
        palette,
        out: String::new(),
        removed: Vec::new(),
        added: Vec::new(),
    };
    let mut left = (0, 0);
    let mut is_binary = false;
    for line in patch.lines() {
        // Within a hunk, only its counts say what is a line of it.
        if left != (0, 0) || (line.starts_with('\\') && !is_binary) {
            view.hunk_line(line, &mut left);
            continue;
        }
        view.flush();
        if let Some(names) = line.strip_prefix("diff --git ") {
            is_binary = false;
            view.title(names);
        } else if is_binary {
            // Encoded bytes say nothing to anybody.
        } else if line == BINARY {
            is_binary = true;
            view.faint("  binary: its sizes are in the list of files");
        } else if let Some(counts) = hunk_counts(line) {
            left = counts;
            view.line(style::HINT, line);
        } else if !(line.starts_with("index ")
            || line.starts_with("--- ")
            || line.starts_with("+++ "))
        {
            view.faint(line);
        }
    }
    view.flush();
    view.out
}

/// How many lines of the old and the new text follow `@@ -a,b +c,d @@`.
fn hunk_counts(line: &str) -> Option<(usize, usize)> {
    let ranges = line.strip_prefix("@@ -")?;
    let (old, rest) = ranges.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let count = |range: &str| match range.split_once(',') {
        Some((_, count)) => count.parse().ok(),
        None => Some(1),
    };
    Some((count(old)?, count(new)?))
}

struct View {
    palette: Palette,
    out: String,
    /// Lines of the change that is being read.
    removed: Vec<String>,
    added: Vec<String>,
}

impl View {
    fn line(&mut self, style: anstyle::Style, line: &str) {
        let line = self.palette.paint(style, &text::printable(line));
        self.out.push_str(&format!("{line}\n"));
    }

    fn faint(&mut self, line: &str) {
        self.line(style::FAINT, line);
    }

    fn title(&mut self, names: &str) {
        let name = names.split_once(" b/").map_or(names, |(_, name)| name);
        self.out.push('\n');
        self.line(style::TITLE, &format!("── {name}"));
    }

    fn hunk_line(&mut self, line: &str, left: &mut (usize, usize)) {
        let rest = line.get(1..).unwrap_or_default();
        match line.as_bytes().first() {
            Some(b'-') => {
                left.0 = left.0.saturating_sub(1);
                if !self.added.is_empty() {
                    self.flush();
                }
                self.removed.push(rest.to_owned());
            }
            Some(b'+') => {
                left.1 = left.1.saturating_sub(1);
                self.added.push(rest.to_owned());
            }
            Some(b'\\') => {
                self.flush();
                self.faint(line);
            }
            _ => {
                *left = (left.0.saturating_sub(1), left.1.saturating_sub(1));
                self.flush();
                self.line(style::PLAIN, line);
            }
        }
    }

    /// Writes the change that was read.
    fn flush(&mut self) {
        let (removed, added) = (
            std::mem::take(&mut self.removed),
            std::mem::take(&mut self.added),
        );
        if removed.is_empty() && added.is_empty() {
            return;
        }
        let (old, new) = (removed.join("\n"), added.join("\n"));
        let is_short = removed.len() + added.len() <= WORD_LINES_MAX;
        let (old_marks, new_marks) = if is_short && !removed.is_empty() && !added.is_empty() {
            marks(&old, &new)
        } else {
            (Vec::new(), Vec::new())
        };
        for (sign, whole, marks, style, is_there) in [
            ('-', old, old_marks, style::BAD, !removed.is_empty()),
            ('+', new, new_marks, style::GOOD, !added.is_empty()),
        ] {
            if is_there {
                self.side(sign, &whole, &marks, style);
            }
        }
    }

    /// One side of a change, its marked words in reverse.
    fn side(&mut self, sign: char, whole: &str, marks: &[bool], style: anstyle::Style) {
        let mut line = self.palette.paint(style, &sign.to_string());
        let mut words = words(whole);
        for (word, is_marked) in words
            .by_ref()
            .zip(marks.iter().copied().chain(iter::repeat(false)))
        {
            if word == "\n" {
                self.out.push_str(&format!("{line}\n"));
                line = self.palette.paint(style, &sign.to_string());
                continue;
            }
            let style = if is_marked { style.invert() } else { style };
            line.push_str(&self.palette.paint(style, &text::printable(word)));
        }
        self.out.push_str(&format!("{line}\n"));
    }
}

/// Words, spaces and signs of a text, each by itself.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let kind = |character: char| match character {
        '\n' => 0,
        character if character.is_alphanumeric() || character == '_' => 1,
        character if character.is_whitespace() => 2,
        _ => 3,
    };
    let mut rest = text;
    iter::from_fn(move || {
        let first = kind(rest.chars().next()?);
        let end = rest
            .char_indices()
            .skip(1)
            .find(|(_, character)| first == 0 || first == 3 || kind(*character) != first);
        let (word, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
        rest = after;
        Some(word)
    })
}

/// Which words of each text the other has not; none if they have nearly nothing in common.
fn marks(old: &str, new: &str) -> (Vec<bool>, Vec<bool>) {
    let mut input = InternedInput::default();
    input.update_before(words(old));
    input.update_after(words(new));
    let diff = Diff::compute(Algorithm::Histogram, &input);
    let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    let removed: Vec<bool> = (0..count(input.before.len()))
        .map(|at| diff.is_removed(at))
        .collect();
    let added: Vec<bool> = (0..count(input.after.len()))
        .map(|at| diff.is_added(at))
        .collect();
    let share = |marks: &[bool]| marks.iter().filter(|is_marked| **is_marked).count() * 4;
    if share(&removed) > removed.len() * 3 && share(&added) > added.len() * 3 {
        return (Vec::new(), Vec::new());
    }
    (removed, added)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "diff --git a/src/a.rs b/src/a.rs\nindex 1..2 100644\n--- a/src/a.rs\n+++ b/src/a.rs\n\
        @@ -1,2 +1,3 @@\n context\n-let total = a + b;\n+let total = a + c;\n+++ b/evil\n\
        diff --git a/x.bin b/x.bin\nindex 1..2\nGIT binary patch\nliteral 3\nKcmZ\n\n";

    #[test]
    fn a_patch_without_colour_is_its_lines_without_what_says_nothing() {
        let shown = colored(PATCH.as_bytes(), Palette::new(false));
        let expected = "\n── src/a.rs\n@@ -1,2 +1,3 @@\n context\n-let total = a + b;\n+let total = a + c;\n\
            +++ b/evil\n\n── x.bin\n  binary: its sizes are in the list of files\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn only_the_words_that_changed_stand_out() {
        let (old, new) = marks("let total = a + b;", "let total = a + c;");
        let marked = |text: &'static str, marks: Vec<bool>| -> Vec<&'static str> {
            let words = words(text).zip(marks);
            words
                .filter_map(|(word, is_marked)| is_marked.then_some(word))
                .collect()
        };
        assert_eq!(marked("let total = a + b;", old), ["b"]);
        assert_eq!(marked("let total = a + c;", new), ["c"]);
        assert!(marks("one two three", "alpha;beta;gamma").0.is_empty());
    }
}
