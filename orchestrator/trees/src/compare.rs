//! Line-by-line comparison of two texts.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

use crate::limits::PATCH_CONTEXT_LINES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineKind {
    Context,
    /// In the old text only.
    Removed,
    /// In the new text only.
    Added,
}

/// Adjacent changes with their context lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// Number of lines before it in the old text.
    pub(crate) old_start: usize,
    /// Number of lines before it in the new text.
    pub(crate) new_start: usize,
    /// Its lines, including newlines.
    pub(crate) lines: Vec<(LineKind, Vec<u8>)>,
}

impl Hunk {
    /// Returns the number of its lines in the old text.
    pub(crate) fn old_len(&self) -> usize {
        self.lines
            .iter()
            .filter(|(kind, _)| *kind != LineKind::Added)
            .count()
    }

    /// Returns the number of its lines in the new text.
    pub(crate) fn new_len(&self) -> usize {
        self.lines
            .iter()
            .filter(|(kind, _)| *kind != LineKind::Removed)
            .count()
    }
}

/// Splits a text into lines, including newlines; the last line may lack one.
pub(crate) fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Lines of the old text and the lines that replace them, as zero-based ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineReplacement {
    pub(crate) old: Range<usize>,
    pub(crate) new: Range<usize>,
}

/// Returns the differences of two texts, in order. No two of the ranges touch.
pub(crate) fn replaced(old: &[u8], new: &[u8]) -> Vec<LineReplacement> {
    let input = InternedInput::new(old, new);
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let lines = |range: Range<u32>| range.start as usize..range.end as usize;
    let replaced = diff.hunks().map(|change| LineReplacement {
        old: lines(change.before),
        new: lines(change.after),
    });
    replaced.collect()
}

/// Returns the differences of two texts as hunks.
pub(crate) fn hunks(old: &[u8], new: &[u8]) -> Vec<Hunk> {
    let changes = replaced(old, new);
    let (old, new) = (lines(old), lines(new));
    let mut hunks: Vec<Hunk> = Vec::new();
    // End of the previous change in the old and the new text.
    let (mut old_end, mut new_end) = (0, 0);
    for change in changes {
        let (before, after) = (change.old, change.new);
        let between = before.start - old_end;
        match hunks.last_mut() {
            Some(hunk) if between <= 2 * PATCH_CONTEXT_LINES => {
                push(hunk, LineKind::Context, old.get(old_end..before.start));
            }
            last => {
                if let Some(hunk) = last {
                    let end = old_end + PATCH_CONTEXT_LINES;
                    push(hunk, LineKind::Context, old.get(old_end..end));
                }
                let context = between.min(PATCH_CONTEXT_LINES);
                let mut hunk = Hunk {
                    old_start: before.start - context,
                    new_start: after.start - context,
                    lines: Vec::new(),
                };
                let above = old.get(before.start - context..before.start);
                push(&mut hunk, LineKind::Context, above);
                hunks.push(hunk);
            }
        }
        (old_end, new_end) = (before.end, after.end);
        if let Some(hunk) = hunks.last_mut() {
            push(hunk, LineKind::Removed, old.get(before));
            push(hunk, LineKind::Added, new.get(after));
        }
    }
    if let Some(hunk) = hunks.last_mut() {
        let end = (old_end + PATCH_CONTEXT_LINES).min(old.len());
        debug_assert_eq!(old.len() - old_end, new.len() - new_end);
        push(hunk, LineKind::Context, old.get(old_end..end));
    }
    hunks
}

fn push(hunk: &mut Hunk, kind: LineKind, lines: Option<&[&[u8]]>) {
    let lines = lines.unwrap_or_default().iter();
    hunk.lines.extend(lines.map(|line| (kind, line.to_vec())));
}
