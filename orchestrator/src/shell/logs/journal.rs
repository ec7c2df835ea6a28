//! Lines for systemd's journal: each begins with its priority, `<4>` for a warning, which the journal takes off
//! again and keeps as a field of its own (`sd-daemon(3)`). So `journalctl -p warning` finds them, and
//! `journalctl -o cat` shows them as they were written.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;

/// The environment variable in which systemd tells device and number of the stream that leads to the journal.
const JOURNAL_STREAM: &str = "JOURNAL_STREAM";

/// How far into a line its level is looked for, in bytes. Every line begins with its time and its level.
const LEVEL_WITHIN_BYTES: usize = 96;

/// What stands before a level.
const LEVEL_FIELD: &[u8] = br#""level":""#;

/// The priority of what is said when the daemon cannot start.
pub(in crate::shell) const ERROR: &str = "<3>";

/// Whether this stream leads to the journal. One that was sent elsewhere by whoever started us does not,
/// whatever the environment says.
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

/// Writes lines, each with its priority before it. Whoever uses it hands over one line at a time.
pub(super) struct Prioritized<W>(pub(super) W);

impl<W: Write> Write for Prioritized<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(priority_of(line))?;
        self.0.write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The priority of syslog that stands for a line's level.
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
        let mut written = Prioritized(Vec::new());
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
