//! Splits chunks of any size into lines.

/// A line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum OutputLine<'a> {
    Whole(&'a [u8]),
    /// The beginning of a line longer than the limit, and the number of bytes skipped.
    Cut(&'a [u8], u64),
}

/// Splits a byte stream into lines, and buffers at most one unfinished line.
#[derive(Debug)]
pub struct OutputLineSplitter {
    held: Vec<u8>,
    skipped: u64,
    max: usize,
}

impl OutputLineSplitter {
    /// Creates a splitter for lines of at most `max` bytes.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            held: Vec::new(),
            skipped: 0,
            max,
        }
    }

    /// Processes the next bytes, and calls `each` with every completed line.
    pub fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(OutputLine<'_>)) {
        while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            let (head, rest) = bytes.split_at(at);
            self.hold(head);
            self.give(&mut each);
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.hold(bytes);
    }

    /// Ends the stream: buffered bytes are its last line.
    pub fn end(&mut self, mut each: impl FnMut(OutputLine<'_>)) {
        if !self.held.is_empty() || self.skipped > 0 {
            self.give(&mut each);
        }
    }

    fn hold(&mut self, bytes: &[u8]) {
        let room = self.max.saturating_sub(self.held.len());
        let (kept, skipped) = bytes.split_at(bytes.len().min(room));
        self.held.extend_from_slice(kept);
        self.skipped += skipped.len() as u64;
    }

    fn give(&mut self, each: &mut impl FnMut(OutputLine<'_>)) {
        let line = self.held.strip_suffix(b"\r").unwrap_or(&self.held);
        match self.skipped {
            0 => each(OutputLine::Whole(line)),
            skipped => each(OutputLine::Cut(line, skipped)),
        }
        self.held.clear();
        self.skipped = 0;
    }
}

/// Returns the text of a line without terminal escape sequences and control characters other than
/// tabs; invalid UTF-8 is replaced.
#[must_use]
pub fn text_of(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut shown = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\t' => shown.push(c),
            c if c.is_control() => {}
            c => shown.push(c),
        }
    }
    shown
}

/// Skips an escape sequence after ESC: a control sequence up to its last byte, an operating system
/// command up to BEL or ESC `\`, else one character.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some('[') => {
            // Parameters and intermediates, then one final byte. Other characters belong to the
            // text.
            while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
            chars.next_if(|c| matches!(c, '@'..='~'));
        }
        Some(']' | 'P' | '_' | '^') => {
            while let Some(c) = chars.next() {
                if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                    break;
                }
            }
        }
        Some('(' | ')' | '#' | ' ') => {
            chars.next();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]], max: usize) -> Vec<(Vec<u8>, u64)> {
        let mut found = Vec::new();
        let mut keep = |line: OutputLine<'_>| match line {
            OutputLine::Whole(line) => found.push((line.to_vec(), 0)),
            OutputLine::Cut(line, skipped) => found.push((line.to_vec(), skipped)),
        };
        let mut lines = OutputLineSplitter::new(max);
        for piece in pieces {
            lines.push(piece, &mut keep);
        }
        lines.end(&mut keep);
        found
    }

    #[test]
    fn lines_are_the_same_however_they_were_cut() {
        let bytes = "é\r\n\na long line\n\r\nlast".as_bytes();
        let whole = lines(&[bytes], 8);
        assert_eq!(whole.len(), 5);
        assert_eq!(whole[2], (b"a long l".to_vec(), 3));
        for at in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(at);
            assert_eq!(lines(&[head, tail], 8), whole, "cut at {at}");
        }
    }

    #[test]
    fn sequences_of_terminals_are_no_text() {
        let colored = b"\x1b[1;32m[ERROR]\x1b[0m\x1b]0;title\x07\x1b(B tail\x1b[?25h\x08";
        assert_eq!(text_of(colored), "[ERROR] tail");
        assert_eq!(text_of(b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"), "link");
        assert_eq!(text_of(b"cut \x1b["), "cut ");
        assert_eq!(text_of(b"\xff\tx\x1b"), "\u{fffd}\tx");
    }
}
