//! What two edits of one text are together, line by line.

use std::ops::Range;

use crate::compare::{Replaced, lines, replaced};

/// Merges two edits of a text. Edits that neither overlap nor touch are both made; where both sides write
/// the same, it is written once.
///
/// # Errors
///
/// Where they contradict each other: the lines of `ours`, counted from zero. An empty range stands before
/// its line.
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
        // Whatever touches what one side replaced belongs to the same piece, and so on.
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

/// One side: its text, its edits, and how far they have been taken.
struct Edits<'t> {
    text: Vec<&'t [u8]>,
    edits: std::iter::Peekable<std::vec::IntoIter<Replaced>>,
    /// The end of the last piece, in the base and in this side's text.
    base_end: usize,
    text_end: usize,
    /// The last edit that was taken.
    last: Option<Replaced>,
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

    /// Takes the next edit if it begins at `end` at the latest, and moves `end` behind it.
    fn take_until(&mut self, end: &mut usize) -> bool {
        let Some(edit) = self.edits.next_if(|edit| edit.old.start <= *end) else {
            return false;
        };
        *end = edit.old.end.max(*end);
        self.last = Some(edit);
        true
    }

    /// The lines of this side's text that stand for these of the base, once all edits in them are taken.
    fn piece(&mut self, of_base: Range<usize>) -> Range<usize> {
        // Between edits a line of the base is a line of the text.
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
