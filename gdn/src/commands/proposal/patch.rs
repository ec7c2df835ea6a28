//! Renders a patch in color, with the changed words of each changed line highlighted.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use goondan_protocol::control::{FileStatus, ProposalFile};
use imara_diff::{Algorithm, Diff, InternedInput};

use crate::output::style::{self, Palette};
use crate::output::text;

/// Maximum number of lines in a change for the word comparison; it is not useful in longer changes.
const WORD_LINES_MAX: usize = 40;
/// Start of a binary section, whose lines are not shown.
const BINARY: &str = "GIT binary patch";

/// Renders a patch for a terminal: moved files by name, binary files by size. `gdn proposal diff` prints the raw
/// patch.
pub(super) fn colored(patch: &[u8], files: &[ProposalFile], palette: Palette) -> String {
    let patch = String::from_utf8_lossy(patch);
    let mut view = View {
        palette,
        out: String::new(),
        removed: Vec::new(),
        added: Vec::new(),
    };
    let by_names: BTreeMap<String, &ProposalFile> = files
        .iter()
        .map(|file| (names_of(&file.change.path), file))
        .collect();
    let moved = files.iter().filter_map(|file| file.renamed_from.as_deref());
    let moved: BTreeSet<&str> = moved.collect();
    let mut left = (0, 0);
    // Skipped lines: binary data, and headers that the title of a moved file already covers.
    let (mut is_binary, mut is_told) = (false, false);
    let mut file = None;
    for line in patch.lines() {
        // Within a hunk, only the line counts decide what belongs to it.
        if left != (0, 0) || (line.starts_with('\\') && !is_binary) {
            if is_told {
                pass(line, &mut left);
            } else {
                view.hunk_line(line, &mut left);
            }
            continue;
        }
        view.flush();
        if let Some(names) = line.strip_prefix("diff --git ") {
            is_binary = false;
            file = by_names.get(names).copied();
            let (path, from) = match file {
                Some(file) => (file.change.path.as_str(), file.renamed_from.as_deref()),
                None => (names, None),
            };
            let is_gone = file.is_some_and(|file| file.change.status == FileStatus::Deleted);
            is_told = from.is_some() || (is_gone && moved.contains(path));
            match from {
                Some(from) => view.title(&format!("{from} → {path}"), "moved, content unchanged"),
                None if is_told => {}
                None => view.title(path, ""),
            }
        } else if let (true, Some(counts)) = (is_told, hunk_counts(line)) {
            left = counts;
        } else if is_binary || is_told {
            // Headers that are not useful to a reader.
        } else if line == BINARY {
            is_binary = true;
            let sizes = file.map(sizes_of).unwrap_or_default();
            view.faint(format!("  binary  {sizes}").trim_end());
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

/// Names in the header of a file in a patch; the path may be quoted.
fn names_of(path: &str) -> String {
    match path.strip_prefix('"') {
        Some(quoted) => format!("\"a/{quoted} \"b/{quoted}"),
        None => format!("a/{path} b/{path}"),
    }
}

/// Counts a hunk line that is not shown.
fn pass(line: &str, left: &mut (usize, usize)) {
    match line.as_bytes().first() {
        Some(b'-') => left.0 = left.0.saturating_sub(1),
        Some(b'+') => left.1 = left.1.saturating_sub(1),
        Some(b'\\') => {}
        _ => *left = (left.0.saturating_sub(1), left.1.saturating_sub(1)),
    }
}

/// Number of old and new lines that follow `@@ -a,b +c,d @@`.
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
    /// Lines of the current change.
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

    fn title(&mut self, name: &str, more: &str) {
        self.out.push('\n');
        self.line(style::TITLE, &format!("── {name}"));
        if !more.is_empty() {
            self.faint(&format!("  {more}"));
        }
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

    /// Writes the current change.
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

    /// Writes one side of a change, with its marked words in reverse video.
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
            let style = if is_marked {
                style::marked(style)
            } else {
                style
            };
            line.push_str(&self.palette.paint(style, &text::printable(word)));
        }
        self.out.push_str(&format!("{line}\n"));
    }
}

/// Splits a text into words, spaces and punctuation.
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

/// Marks the words of each text that the other lacks; empty if the texts have little in common.
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

/// Size before and after, in bytes.
pub(super) fn sizes_of(file: &ProposalFile) -> String {
    match (file.old_bytes, file.new_bytes) {
        (Some(old), Some(new)) if old != new => {
            format!("{} → {}", text::bytes(old), text::bytes(new))
        }
        (_, Some(size)) | (Some(size), None) => text::bytes(size),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::control::ProposedChange;

    use super::*;

    const PATCH: &str = "diff --git a/src/a.rs b/src/a.rs\nindex 1..2 100644\n--- a/src/a.rs\n+++ b/src/a.rs\n\
        @@ -1,2 +1,3 @@\n context\n-let total = a + b;\n+let total = a + c;\n+++ b/evil\n\
        diff --git a/x.bin b/x.bin\nindex 1..2\nGIT binary patch\nliteral 3\nKcmZ\n\n\
        diff --git \"a/new\\tname\" \"b/new\\tname\"\nnew file mode 100644\nindex 0..1\n--- /dev/null\n\
        +++ \"b/new\\tname\"\n@@ -0,0 +1 @@\n+text\n\\ No newline at end of file\n\
        diff --git a/old name b/old name\ndeleted file mode 100644\nindex 1..0\n--- a/old name\t\n+++ /dev/null\n\
        @@ -1 +0,0 @@\n-text\n\\ No newline at end of file\n";

    #[test]
    fn plain_patch_contains_its_lines_without_empty_headers() {
        let file = |path: &str, status, from: Option<&str>| ProposalFile {
            change: ProposedChange {
                path: path.to_owned(),
                status,
                old_sha256: None,
                new_sha256: None,
            },
            renamed_from: from.map(str::to_owned),
            old_bytes: Some(2),
            new_bytes: Some(3),
        };
        let files = [
            file("src/a.rs", FileStatus::Modified, None),
            file("x.bin", FileStatus::Modified, None),
            file("\"new\\tname\"", FileStatus::Added, Some("old name")),
            file("old name", FileStatus::Deleted, None),
        ];
        let shown = colored(PATCH.as_bytes(), &files, Palette::new(false));
        let expected = "\n── src/a.rs\n@@ -1,2 +1,3 @@\n context\n-let total = a + b;\n+let total = a + c;\n\
            +++ b/evil\n\n── x.bin\n  binary  2 B → 3 B\n\n\
            ── old name → \"new\\tname\"\n  moved, content unchanged\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn only_the_changed_words_are_highlighted() {
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
