//! Lines of a stream, none longer than its limit.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes read at a time, at least.
const READ_BYTES: usize = 8 * 1024;

/// Reads lines.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    stream: R,
    read: BytesMut,
    /// How much of `read` is known to hold no line end.
    searched: usize,
    bytes_max: usize,
    has_ended: bool,
}

/// A line, without its end, or the beginning of one that is too long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) bytes: Bytes,
    /// Whether it is the whole line.
    pub(crate) is_whole: bool,
}

impl Line {
    /// Logs a line of a program's stderr.
    pub(crate) fn log_as_stderr(&self) {
        let text = String::from_utf8_lossy(&self.bytes);
        tracing::info!(source = "stderr", truncated = !self.is_whole, "{text}");
    }
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(stream: R, bytes_max: usize) -> Self {
        Self {
            stream,
            read: BytesMut::new(),
            searched: 0,
            bytes_max,
            has_ended: false,
        }
    }

    /// The next line; none at the stream's end. The last line needs no end of its own. Cancel-safe.
    ///
    /// # Errors
    ///
    /// What reading says.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            if self.has_ended {
                let bytes = self.read.split().freeze();
                self.searched = 0;
                let is_whole = true;
                return Ok((!bytes.is_empty()).then_some(Line { bytes, is_whole }));
            }
            self.read.reserve(READ_BYTES);
            self.has_ended = self.stream.read_buf(&mut self.read).await? == 0;
        }
    }

    fn take_line(&mut self) -> Option<Line> {
        let unseen = self.read.get(self.searched..)?;
        match unseen.iter().position(|byte| *byte == b'\n') {
            Some(at) if self.searched + at <= self.bytes_max => {
                let mut bytes = self.read.split_to(self.searched + at + 1);
                bytes.truncate(bytes.len() - 1);
                if bytes.last() == Some(&b'\r') {
                    bytes.truncate(bytes.len() - 1);
                }
                self.searched = 0;
                let bytes = bytes.freeze();
                Some(Line {
                    bytes,
                    is_whole: true,
                })
            }
            None if self.read.len() <= self.bytes_max => {
                self.searched = self.read.len();
                None
            }
            Some(_) | None => {
                let bytes = self.read.split_to(self.bytes_max).freeze();
                self.searched = 0;
                Some(Line {
                    bytes,
                    is_whole: false,
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &str, bytes_max: usize) -> Vec<(String, bool)> {
        let mut lines = Lines::new(text.as_bytes(), bytes_max);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            let text = String::from_utf8(line.bytes.to_vec()).unwrap();
            found.push((text, line.is_whole));
        }
        found
    }

    #[tokio::test]
    async fn lines_are_whole_up_to_the_limit_and_cut_beyond_it() {
        let whole = |text: &str| (text.to_owned(), true);
        assert_eq!(
            lines("a\r\n\nbb\nlast", 4).await,
            [whole("a"), whole(""), whole("bb"), whole("last")]
        );
        assert_eq!(
            lines("1234\n12345\n", 4).await,
            [whole("1234"), ("1234".to_owned(), false), whole("5")]
        );
        assert_eq!(lines("", 4).await, []);
        let long = "x".repeat(100_000);
        assert_eq!(lines(&format!("{long}\n"), 100_000).await, [whole(&long)]);
    }
}
