//! Reads lines of bounded length from a stream.

use bytes::{Bytes, BytesMut};
use goondan_log::{text_parts, whole_characters};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Minimum number of bytes per read.
const READ_BYTES: usize = 8 * 1024;

#[derive(Debug)]
pub(crate) struct LineReader<R> {
    stream: R,
    read: BytesMut,
    /// Number of bytes of `read` known to contain no newline.
    searched: usize,
    bytes_max: usize,
    /// Number of parts already taken from the current line.
    parts: u32,
    has_ended: bool,
}

/// A line without its newline, or a part of a line that is too long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProgramLine {
    pub(crate) bytes: Bytes,
    /// Number of the part, from 1; `None` for a complete line.
    pub(crate) part: Option<u32>,
    /// True if it completes the line.
    pub(crate) is_end: bool,
}

/// The program output from which a line was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramStream {
    Stdout,
    Stderr,
}

impl ProgramStream {
    fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

impl ProgramLine {
    /// True if it is a complete line.
    pub(crate) fn is_whole(&self) -> bool {
        self.part.is_none()
    }

    /// True if it contains only white space.
    pub(crate) fn is_blank(&self) -> bool {
        self.bytes.iter().all(u8::is_ascii_whitespace)
    }

    /// Logs a program's output (`LOG-3`).
    pub(crate) fn log(&self, source: ProgramStream) {
        let source = source.as_str();
        for part in text_parts(&String::from_utf8_lossy(&self.bytes)) {
            let split_part = part.number.or(self.part);
            tracing::info!(source, split_part, "{}", part.text);
        }
    }
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(stream: R, bytes_max: usize) -> Self {
        Self {
            stream,
            read: BytesMut::new(),
            searched: 0,
            bytes_max,
            parts: 0,
            has_ended: false,
        }
    }

    /// Reads the next line; `None` at the end of the stream. The last line needs no newline.
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// An I/O error of the stream.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<ProgramLine>> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            if self.has_ended {
                let bytes = self.read.split();
                return Ok((!bytes.is_empty()).then(|| self.end_of_line(bytes)));
            }
            self.read.reserve(READ_BYTES);
            self.has_ended = self.stream.read_buf(&mut self.read).await? == 0;
        }
    }

    fn take_line(&mut self) -> Option<ProgramLine> {
        let unseen = self.read.get(self.searched..)?;
        match unseen.iter().position(|byte| *byte == b'\n') {
            Some(at) if self.searched + at <= self.bytes_max => {
                let mut bytes = self.read.split_to(self.searched + at + 1);
                bytes.truncate(bytes.len() - 1);
                if bytes.last() == Some(&b'\r') {
                    bytes.truncate(bytes.len() - 1);
                }
                Some(self.end_of_line(bytes))
            }
            None if self.read.len() <= self.bytes_max => {
                self.searched = self.read.len();
                None
            }
            Some(_) | None => {
                let within = self.read.get(..self.bytes_max).unwrap_or_default();
                let whole = Some(whole_characters(within)).filter(|whole| *whole > 0);
                let bytes = self.read.split_to(whole.unwrap_or(self.bytes_max));
                self.searched = 0;
                self.parts = self.parts.saturating_add(1);
                Some(ProgramLine {
                    bytes: bytes.freeze(),
                    part: Some(self.parts),
                    is_end: false,
                })
            }
        }
    }

    /// Completes a line, or the last part of one.
    fn end_of_line(&mut self, bytes: BytesMut) -> ProgramLine {
        self.searched = 0;
        let before = std::mem::take(&mut self.parts);
        ProgramLine {
            bytes: bytes.freeze(),
            part: (before > 0).then(|| before.saturating_add(1)),
            is_end: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &str, bytes_max: usize) -> Vec<(String, Option<u32>)> {
        let mut lines = LineReader::new(text.as_bytes(), bytes_max);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            let text = String::from_utf8(line.bytes.to_vec()).unwrap();
            found.push((text, line.part));
        }
        found
    }

    #[tokio::test]
    async fn log_3_overlong_line_is_split_into_numbered_parts() {
        let whole = |text: &str| (text.to_owned(), None);
        let part = |text: &str, number| (text.to_owned(), Some(number));
        assert_eq!(
            lines("a\r\n\nbb\nlast", 4).await,
            [whole("a"), whole(""), whole("bb"), whole("last")]
        );
        assert_eq!(
            lines("1234\n12345\n6\n", 4).await,
            [whole("1234"), part("1234", 1), part("5", 2), whole("6")]
        );
        assert_eq!(
            lines("1234567\u{20ac}", 4).await,
            [part("1234", 1), part("567", 2), part("\u{20ac}", 3)]
        );
        assert_eq!(lines("", 4).await, []);
        let long = "x".repeat(100_000);
        assert_eq!(lines(&format!("{long}\n"), 100_000).await, [whole(&long)]);
    }
}
