//! Lines for systemd's journal: each is prefixed with its priority, such as `<4>` for a warning.
//! The journal removes the prefix and stores it as a field (`sd-daemon(3)`), so `journalctl -p
//! warning` finds these lines and `journalctl -o cat` shows the original text.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;

/// Environment variable in which systemd passes device and inode of the journal's stream.
const JOURNAL_STREAM: &str = "JOURNAL_STREAM";

/// Number of bytes in which the level is searched. Every line begins with its timestamp and level.
const LEVEL_WITHIN_BYTES: usize = 96;

/// The text before the level.
const LEVEL_FIELD: &[u8] = br#""level":""#;

/// Priority of messages about a failed start of the daemon.
pub(in crate::shell) const ERROR: &str = "<3>";

/// True if this stream leads to the journal. False if the stream was redirected, even if the
/// variable is set.
pub(in crate::shell) fn is_stream(stream: impl AsFd) -> bool {
    let told = std::env::var(JOURNAL_STREAM).unwrap_or_default();
    let Some((device, number)) = told.split_once(':') else {
        return false;
    };
    let Ok(metadata) = stream
        .as_fd()
        .try_clone_to_owned()
        .and_then(|stream| File::from(stream).metadata())
    else {
        return false;
    };
    device.parse() == Ok(metadata.dev()) && number.parse() == Ok(metadata.ino())
}

/// Writes lines with their priority prefix. Each `write` call must contain exactly one line.
pub(super) struct PriorityWriter<W>(pub(super) W);

impl<W: Write> Write for PriorityWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(priority_of(line))?;
        self.0.write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The syslog priority of a line's level.
fn priority_of(line: &[u8]) -> &'static [u8] {
    let head = line.get(..LEVEL_WITHIN_BYTES).unwrap_or(line);
    let at = head
        .windows(LEVEL_FIELD.len())
        .position(|part| part == LEVEL_FIELD);
    let level = at.and_then(|at| head.get(at + LEVEL_FIELD.len()..));
    let level = level.unwrap_or_default();
    let level = level.split(|byte| *byte == b'"').next();
    match level.unwrap_or_default() {
        b"error" => b"<3>",
        b"warn" => b"<4>",
        b"debug" | b"trace" => b"<7>",
        _ => b"<6>",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_2_each_line_has_the_priority_of_its_level() {
        let mut written = PriorityWriter(Vec::new());
        for (level, priority) in [
            ("error", "<3>"),
            ("warn", "<4>"),
            ("info", "<6>"),
            ("debug", "<7>"),
            ("trace", "<7>"),
            ("loud", "<6>"),
        ] {
            let line =
                format!(r#"{{"timestamp":"t","level":"{level}","message":"\"level\":\"error\""}}"#);
            written.0.clear();
            written.write_all(line.as_bytes()).unwrap();
            assert_eq!(written.0, format!("{priority}{line}").into_bytes());
        }
    }
}
