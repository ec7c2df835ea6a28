//! Rotated log files of background daemons (`LOG-4`): `orchestrator.log`, then `orchestrator.log.1`, the next older …
//!
//! They hold the lines of every daemon, so they cover the time before the last start and can be read while no daemon
//! runs.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use goondan_protocol::control::LOG_FILE_NAME;

use super::filter::Filter;

/// Read size while following, in bytes.
const READ_BYTES: usize = 64 * 1024;

/// The log files of one directory.
#[derive(Debug, Clone)]
pub(super) struct LogFiles {
    dir: PathBuf,
}

/// An open file, which may be renamed later.
#[derive(Debug)]
struct OpenLogFile {
    file: File,
    id: (u64, u64),
}

impl OpenLogFile {
    fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let id = id_of(&file.metadata()?);
        Ok(Some(Self { file, id }))
    }
}

fn id_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl LogFiles {
    pub(super) fn of(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// True if a daemon ever wrote here.
    pub(super) fn exist(&self) -> bool {
        self.path(0).is_file()
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of the file of this age; 0 is the current file.
    fn path(&self, age: u32) -> PathBuf {
        match age {
            0 => self.dir.join(LOG_FILE_NAME),
            age => self.dir.join(format!("{LOG_FILE_NAME}.{age}")),
        }
    }

    /// Opens all files, newest first. A file renamed in the meantime is listed once.
    fn open_all(&self) -> io::Result<Vec<OpenLogFile>> {
        let mut all: Vec<OpenLogFile> = Vec::new();
        for age in 0.. {
            match OpenLogFile::open(&self.path(age))? {
                Some(file) if all.iter().any(|other| other.id == file.id) => {}
                Some(file) => all.push(file),
                // Between the two renames of a rotation, the newest file does not exist.
                None if age == 0 => {}
                None => break,
            }
        }
        Ok(all)
    }

    /// Returns the latest `count` lines that match the filter, oldest first, and a follower positioned after the last.
    pub(super) fn latest(
        &self,
        count: usize,
        filter: &Filter,
    ) -> io::Result<(Vec<String>, Follower)> {
        let mut follower = Follower::of(self.clone());
        let mut latest: VecDeque<String> = VecDeque::new();
        for (age, opened) in self.open_all()?.into_iter().enumerate() {
            let (older, end) = read_lines(&opened.file, count - latest.len(), filter)?;
            for line in older.into_iter().rev() {
                latest.push_front(line);
            }
            if age == 0 {
                follower.begin(opened, end);
            }
            if latest.len() >= count {
                break;
            }
        }
        Ok((latest.into(), follower))
    }
}

/// Returns the last `count` matching lines of a file, and the offset after its last complete line.
fn read_lines(file: &File, count: usize, filter: &Filter) -> io::Result<(VecDeque<String>, u64)> {
    let mut reader = BufReader::new(file);
    let mut latest = VecDeque::new();
    let (mut line, mut end) = (Vec::new(), 0);
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Ok((latest, end));
        }
        end += u64::try_from(read).unwrap_or(0);
        let text = String::from_utf8_lossy(&line);
        if filter.takes(&text) {
            latest.push_back(text.into_owned());
        }
        if latest.len() > count {
            latest.pop_front();
        }
    }
}

/// Result of a poll.
#[derive(Debug, Default)]
pub(super) struct FollowedLines {
    pub(super) lines: Vec<String>,
    /// True if files were deleted before they were read to the end.
    pub(super) has_lost: bool,
}

/// Continues reading across rotations.
#[derive(Debug)]
pub(super) struct Follower {
    files: LogFiles,
    current: Option<OpenLogFile>,
    offset: u64,
    pending: Vec<u8>,
}

impl Follower {
    fn of(files: LogFiles) -> Self {
        Self {
            files,
            current: None,
            offset: 0,
            pending: Vec::new(),
        }
    }

    fn begin(&mut self, opened: OpenLogFile, offset: u64) {
        self.current = Some(opened);
        self.offset = offset;
    }

    /// Returns the lines written since the last poll.
    pub(super) fn look(&mut self) -> io::Result<FollowedLines> {
        let mut followed = FollowedLines::default();
        self.read_current(&mut followed)?;
        let newest = match std::fs::metadata(self.files.path(0)) {
            Ok(metadata) => metadata,
            // A rotation is in progress, or the file does not exist yet.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(followed),
            Err(error) => return Err(error),
        };
        let current = self.current.as_ref().map(|opened| opened.id);
        if current == Some(id_of(&newest)) {
            if newest.len() < self.offset {
                // With a single file, a rotation truncates it instead of renaming it.
                self.offset = 0;
                followed.has_lost = true;
                self.read_current(&mut followed)?;
            }
            return Ok(followed);
        }
        // Lines written between the last poll and the rename.
        self.read_current(&mut followed)?;
        let mut newer = self.files.open_all()?;
        match newer.iter().position(|opened| Some(opened.id) == current) {
            Some(at) => newer.truncate(at),
            None => followed.has_lost = current.is_some(),
        }
        for opened in newer.into_iter().rev() {
            self.begin(opened, 0);
            self.read_current(&mut followed)?;
        }
        Ok(followed)
    }

    fn read_current(&mut self, followed: &mut FollowedLines) -> io::Result<()> {
        let Some(opened) = &mut self.current else {
            return Ok(());
        };
        opened.file.seek(SeekFrom::Start(self.offset))?;
        let mut chunk = vec![0; READ_BYTES];
        loop {
            let read = opened.file.read(&mut chunk)?;
            if read == 0 {
                return Ok(());
            }
            self.offset += u64::try_from(read).unwrap_or(0);
            for byte in chunk.iter().take(read) {
                match byte {
                    b'\n' => {
                        let line = std::mem::take(&mut self.pending);
                        followed
                            .lines
                            .push(String::from_utf8_lossy(&line).into_owned());
                    }
                    byte => self.pending.push(*byte),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;

    use super::*;

    /// Log files as the daemon writes them.
    struct LogFixture {
        dir: tempfile::TempDir,
        next: u32,
    }

    impl LogFixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            Self { dir, next: 0 }
        }

        fn files(&self) -> LogFiles {
            LogFiles::of(self.dir.path().to_owned())
        }

        fn write(&mut self, count: u32) {
            let path = self.files().path(0);
            let mut file = OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .unwrap();
            for _ in 0..count {
                writeln!(file, r#"{{"message":"{}"}}"#, self.next).unwrap();
                self.next += 1;
            }
        }

        #[expect(
            clippy::disallowed_methods,
            reason = "simulates the daemon, which alone rotates its log files"
        )]
        fn rotate(&self, oldest: u32) {
            for age in (0..oldest).rev() {
                drop(std::fs::rename(
                    self.files().path(age),
                    self.files().path(age + 1),
                ));
            }
        }
    }

    fn numbers(lines: &[String]) -> Vec<u32> {
        let number = |line: &String| {
            let fields: serde_json::Value = serde_json::from_str(line).unwrap();
            fields["message"].as_str().unwrap().parse().unwrap()
        };
        lines.iter().map(number).collect()
    }

    fn expected(from: u32, to: u32) -> Vec<u32> {
        (from..to).collect()
    }

    #[test]
    fn obs_2_the_latest_lines_are_found_in_however_many_files() {
        let mut written = LogFixture::new();
        for _ in 0..3 {
            written.write(10);
            written.rotate(5);
        }
        written.write(5);
        let latest = |count| {
            let (lines, _) = written.files().latest(count, &Filter::default()).unwrap();
            numbers(&lines)
        };
        assert_eq!(latest(0), expected(0, 0));
        assert_eq!(latest(3), expected(32, 35));
        assert_eq!(latest(17), expected(18, 35));
        assert_eq!(latest(1_000), expected(0, 35));
    }

    #[test]
    fn obs_2_following_misses_and_repeats_no_line_over_rotations() {
        let mut written = LogFixture::new();
        written.write(3);
        let all = Filter::default();
        let (lines, mut follower) = written.files().latest(2, &all).unwrap();
        assert_eq!(numbers(&lines), expected(1, 3));
        let mut seen = Vec::new();
        for round in 0..6 {
            written.write(2);
            if round % 2 == 0 {
                seen.extend(numbers(&follower.look().unwrap().lines));
            }
            // Lines written between the last poll and a rotation, and two rotations between two polls.
            written.write(1);
            written.rotate(5);
            if round == 3 {
                written.write(1);
                written.rotate(5);
            }
        }
        let followed = follower.look().unwrap();
        assert!(!followed.has_lost);
        seen.extend(numbers(&followed.lines));
        written.write(1);
        seen.extend(numbers(&follower.look().unwrap().lines));
        assert_eq!(seen, expected(3, written.next));
    }

    #[test]
    fn obs_2_lost_lines_are_reported_and_partial_line_is_held_back() {
        let mut written = LogFixture::new();
        written.write(1);
        let (_, mut follower) = written.files().latest(0, &Filter::default()).unwrap();
        for _ in 0..3 {
            written.write(1);
            written.rotate(2);
        }
        written.write(1);
        let followed = follower.look().unwrap();
        assert!(followed.has_lost);
        assert_eq!(numbers(&followed.lines).last(), Some(&4));
        let path = written.files().path(0);
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(br#"{"mess"#).unwrap();
        assert!(follower.look().unwrap().lines.is_empty());
        file.write_all(b"age\":\"7\"}\n").unwrap();
        assert_eq!(numbers(&follower.look().unwrap().lines), [7]);
    }
}
