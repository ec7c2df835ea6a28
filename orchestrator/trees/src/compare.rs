//! Which lines of two texts differ.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

use crate::limits::PATCH_CONTEXT_LINES;

/// What becomes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// It is in both.
    Context,
    /// It is in the old text only.
    Removed,
    /// It is in the new text only.
    Added,
}

/// Changes that stand close together, with the lines around them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// Lines of the old text before it.
    pub(crate) old_start: usize,
    /// Lines of the new text before it.
    pub(crate) new_start: usize,
    /// Its lines, each with its newline if it has one.
    pub(crate) lines: Vec<(LineKind, Vec<u8>)>,
}

impl Hunk {
    /// How many of its lines are in the old text.
    pub(crate) fn old_len(&self) -> usize {
        self.lines
            .iter()
            .filter(|(kind, _)| *kind != LineKind::Added)
            .count()
    }

    /// How many of its lines are in the new text.
    pub(crate) fn new_len(&self) -> usize {
        self.lines
            .iter()
            .filter(|(kind, _)| *kind != LineKind::Removed)
            .count()
    }
}

/// The lines of a text, each with its newline; only the last may have none.
pub(crate) fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Lines of an old text, and what a new one has in their place; by their numbers, counted from zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replaced {
    pub(crate) old: Range<usize>,
    pub(crate) new: Range<usize>,
}

/// Where two texts differ, in their order. No two of them touch.
pub(crate) fn replaced(old: &[u8], new: &[u8]) -> Vec<Replaced> {
    let input = InternedInput::new(old, new);
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let lines = |range: Range<u32>| range.start as usize..range.end as usize;
    let replaced = diff.hunks().map(|change| Replaced {
        old: lines(change.before),
        new: lines(change.after),
    });
    replaced.collect()
}

/// The differences of two texts.
pub(crate) fn hunks(old: &[u8], new: &[u8]) -> Vec<Hunk> {
    let changes = replaced(old, new);
    let (old, new) = (lines(old), lines(new));
    let mut hunks: Vec<Hunk> = Vec::new();
    // Where the last change ended, in the old and the new text.
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
