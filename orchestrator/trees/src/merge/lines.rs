//! Line-by-line merge of two edits of one text.

use std::ops::Range;

use crate::compare::{LineReplacement, lines, replaced};

/// Merges two edits of a text. Applies edits that neither overlap nor touch; identical edits are
/// applied once.
///
/// # Errors
///
/// The conflicting lines of `ours`, as zero-based ranges. An empty range is before its line.
pub(super) fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Result<Vec<u8>, Vec<Range<usize>>> {
    let mut our_edits = Edits::new(base, ours);
    let mut their_edits = Edits::new(base, theirs);
    let base = lines(base);
    let mut merged = Vec::new();
    let mut contradictions = Vec::new();
    let mut done = 0;
    while let Some(start) = [our_edits.next_start(), their_edits.next_start()]
        .into_iter()
        .flatten()
        .min()
    {
        merged.extend_from_slice(base.get(done..start).unwrap_or_default());
        // Edits that touch an edit of the other side belong to the same piece, transitively.
        let mut end = start;
        while our_edits.take_until(&mut end) || their_edits.take_until(&mut end) {}
        let (of_ours, of_theirs) = (our_edits.piece(start..end), their_edits.piece(start..end));
        let kept = base.get(start..end).unwrap_or_default();
        let (our_lines, their_lines) = (our_edits.lines(&of_ours), their_edits.lines(&of_theirs));
        if their_lines == kept || our_lines == their_lines {
            merged.extend_from_slice(our_lines);
        } else if our_lines == kept {
            merged.extend_from_slice(their_lines);
        } else {
            contradictions.push(of_ours);
        }
        done = end;
    }
    merged.extend_from_slice(base.get(done..).unwrap_or_default());
    if contradictions.is_empty() {
        Ok(merged.concat())
    } else {
        Err(contradictions)
    }
}

/// One side: its text, its edits, and the progress.
struct Edits<'t> {
    text: Vec<&'t [u8]>,
    edits: std::iter::Peekable<std::vec::IntoIter<LineReplacement>>,
    /// End of the last piece, in the base and in this side's text.
    base_end: usize,
    text_end: usize,
    last: Option<LineReplacement>,
}

impl<'t> Edits<'t> {
    fn new(base: &[u8], text: &'t [u8]) -> Self {
        Self {
            edits: replaced(base, text).into_iter().peekable(),
            text: lines(text),
            base_end: 0,
            text_end: 0,
            last: None,
        }
    }

    fn next_start(&mut self) -> Option<usize> {
        self.edits.peek().map(|edit| edit.old.start)
    }

    /// Consumes the next edit if it begins at or before `end`, and moves `end` after it.
    fn take_until(&mut self, end: &mut usize) -> bool {
        let Some(edit) = self.edits.next_if(|edit| edit.old.start <= *end) else {
            return false;
        };
        *end = edit.old.end.max(*end);
        self.last = Some(edit);
        true
    }

    /// Returns the lines of this side that correspond to these lines of the base, after all edits
    /// in them are consumed.
    fn piece(&mut self, of_base: Range<usize>) -> Range<usize> {
        // Between edits the lines of base and text correspond.
        let start = self.text_end + (of_base.start - self.base_end);
        let end = match self.last.take() {
            Some(edit) => edit.new.end + (of_base.end - edit.old.end),
            None => start + of_base.len(),
        };
        (self.base_end, self.text_end) = (of_base.end, end);
        start..end
    }

    fn lines(&self, range: &Range<usize>) -> &[&'t [u8]] {
        self.text.get(range.clone()).unwrap_or_default()
    }
}
