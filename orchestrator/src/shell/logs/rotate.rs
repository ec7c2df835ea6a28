//! Size-bounded log files (`LOG-4`): `orchestrator.log`, then `orchestrator.log.1`, the next older
//! …
//!
//! These files are for users; nothing is recovered from them, so they are not synced. `tracing`'s
//! own appender rotates by time only, which does not bound disk usage.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use goondan_protocol::control::LOG_FILE_NAME;

use crate::limits::LOG_WRITE_BYTES;

/// A log file that is rotated before it exceeds its limit. Lines are written on flush, which the
/// writer thread calls whenever the queue is empty.
#[derive(Debug)]
pub(super) struct RotatingFile {
    path: PathBuf,
    file: BufWriter<File>,
    len: u64,
    max_file_bytes: u64,
    max_files: u32,
}

impl RotatingFile {
    /// Opens the log in `dir`, appending to an earlier daemon's log.
    pub(super) fn open(dir: &Path, max_file_bytes: u64, max_files: u32) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let path = dir.join(LOG_FILE_NAME);
        let file = open_file(&path)?;
        let len = file.get_ref().metadata()?.len();
        Ok(Self {
            path,
            file,
            len,
            max_file_bytes,
            max_files: max_files.max(1),
        })
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }

    #[expect(clippy::disallowed_methods, reason = "log files are not durable state")]
    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let oldest = self.max_files - 1;
        if oldest == 0 {
            self.file.get_ref().set_len(0)?;
            self.len = 0;
            return Ok(());
        }
        for number in (1..oldest).rev() {
            match fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, self.numbered(1))?;
        self.file = open_file(&self.path)?;
        self.len = 0;
        Ok(())
    }
}

fn open_file(path: &Path) -> io::Result<BufWriter<File>> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    Ok(BufWriter::with_capacity(LOG_WRITE_BYTES, file))
}

impl Write for RotatingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let bytes = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.len > 0 && self.len.saturating_add(bytes) > self.max_file_bytes {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.len += bytes;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_4_log_files_are_bounded_and_lines_stay_whole() {
        let temp = tempfile::tempdir().unwrap();
        let mut log = RotatingFile::open(temp.path(), 100, 3).unwrap();
        for n in 0..100 {
            writeln!(log, "line {n:03}").unwrap();
        }
        drop(log);
        let mut names: Vec<_> = fs::read_dir(temp.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(
            names,
            [
                "orchestrator.log",
                "orchestrator.log.1",
                "orchestrator.log.2"
            ]
        );
        let mut lines = String::new();
        for name in [
            "orchestrator.log.2",
            "orchestrator.log.1",
            "orchestrator.log",
        ] {
            let text = fs::read_to_string(temp.path().join(name)).unwrap();
            assert!(text.len() <= 100 && text.ends_with('\n'), "{name}");
            lines.push_str(&text);
        }
        let last: Vec<&str> = lines.lines().collect();
        assert!(
            last.last() == Some(&"line 099") && last.len() > 20,
            "{last:?}"
        );
    }
}
