//! Replacements of parts of a text.

use std::ops::Range;

use crate::syntax::with_yaml_line_ends;

/// Text that replaces a range.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) range: Range<usize>,
    pub(super) text: String,
}

/// Separates a byte order mark from the rest of a text.
pub(super) fn without_mark(text: &str) -> (&str, &str) {
    let body = text.trim_start_matches('\u{feff}');
    let mark = text.get(..text.len() - body.len()).unwrap_or_default();
    (mark, body)
}

/// Makes edits whose ranges refer to the text with line ends of YAML and without byte order mark.
/// `None` if they overlap. Other text stays byte for byte; added lines end like the file's.
pub(super) fn apply(text: &str, mut edits: Vec<Edit>) -> Option<String> {
    let (mark, body) = without_mark(text);
    let line_end = line_end_of(body);
    // Ends of the lines that end with two bytes instead of one.
    let normal = with_yaml_line_ends(body);
    let mut two_bytes = Vec::new();
    let mut at = 0;
    for line in body.split_inclusive("\r\n") {
        let removed = two_bytes.len();
        at += line.len();
        if line.ends_with("\r\n") {
            two_bytes.push(at - removed - 2);
        }
    }
    let original = |place: usize| place + two_bytes.partition_point(|end| *end < place);
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut out = mark.to_owned();
    let mut done = 0;
    for edit in edits {
        if edit.range.start < done || edit.range.end > normal.len() {
            return None;
        }
        out.push_str(body.get(original(done)..original(edit.range.start))?);
        out.push_str(&edit.text.replace('\n', line_end));
        done = edit.range.end;
    }
    out.push_str(body.get(original(done)..)?);
    Some(out)
}

/// The line end of a file: that of its first line.
pub(super) fn line_end_of(text: &str) -> &'static str {
    let first = text.find(['\r', '\n']);
    let rest = first.and_then(|at| text.get(at..)).unwrap_or_default();
    if rest.starts_with("\r\n") {
        "\r\n"
    } else if rest.starts_with('\r') {
        "\r"
    } else {
        "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str, edits: &[(Range<usize>, &str)]) -> Option<String> {
        let edits = edits.iter().map(|(range, text)| Edit {
            range: range.clone(),
            text: (*text).to_owned(),
        });
        apply(text, edits.collect())
    }

    #[test]
    fn edits_keep_line_ends_and_the_byte_order_mark() {
        // Insert after a line, replace a word, remove a line.
        let edits = [(7..8, "z"), (1..1, "\nx"), (2..4, "")];
        let expected = |end: &str| ["a", "x", "c", "dz", ""].join(end);
        for end in ["\n", "\r\n", "\r"] {
            let text = ["a", "b", "c", "de", ""].join(end);
            assert_eq!(edited(&text, &edits), Some(expected(end)), "{end:?}");
            let marked = format!("\u{feff}{text}");
            let expected = format!("\u{feff}{}", expected(end));
            assert_eq!(edited(&marked, &edits), Some(expected));
        }
        let mixed = edited("a\nb\r\nc\rd", &[(4..5, "x"), (7..7, "\ny")]);
        assert_eq!(mixed.as_deref(), Some("a\nb\r\nx\rd\ny"));
    }

    #[test]
    fn overlapping_edits_are_refused() {
        assert_eq!(edited("abcd", &[(0..2, ""), (1..3, "")]), None);
        assert_eq!(edited("abcd", &[(3..5, "")]), None);
        assert_eq!(
            edited("ab", &[(0..1, ""), (1..1, "x")]).as_deref(),
            Some("xb")
        );
    }
}
