//! Append-only files of JSON lines, with handling of torn tails.

use std::path::{Path, PathBuf};

use serde_json::value::RawValue;

use crate::checksum::{Seal, seal_of};
use crate::disk::{Disk, DiskFile, append_all, read_full};
use crate::error::{FileError, IoContext as _};
use crate::limits::{JOURNAL_PENDING_BYTES, READ_CHUNK_BYTES};

/// An append-only file of JSON lines, open for appending.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    written: u64,
    /// Appended bytes that are not written yet.
    pending: Vec<u8>,
    is_dirty: bool,
}

/// Incomplete or damaged lines at the end of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// Offset of the removed bytes.
    pub offset: u64,
    /// Number of removed bytes.
    pub bytes: u64,
    pub kept_in: PathBuf,
}

impl Journal {
    /// Opens a file without reading it; creates it if it is missing.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Self, FileError> {
        let file = disk.open(path).during("open", path)?;
        let len = file.len().during("read the length of", path)?;
        // Data from a killed process may be readable without being durable, so the first sync of a
        // non-empty file is never skipped.
        Ok(Self {
            path: path.to_owned(),
            file,
            written: len,
            pending: Vec::new(),
            is_dirty: len > 0,
        })
    }

    /// Opens an existing file for reading only.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn open_read(disk: &dyn Disk, path: &Path) -> Result<Self, FileError> {
        let file = disk.open_read(path).during("open", path)?;
        let len = file.len().during("read the length of", path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            written: len,
            pending: Vec::new(),
            is_dirty: false,
        })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length in bytes, including unwritten appends.
    #[expect(clippy::len_without_is_empty, reason = "no caller needs it")]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// Appends whole lines. They are in the file after [`Self::write_out`], and durable after
    /// [`Self::sync`].
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn append(&mut self, lines: &[u8]) -> Result<(), FileError> {
        debug_assert!(lines.last() == Some(&b'\n'), "a journal holds whole lines");
        self.is_dirty = true;
        self.pending.extend_from_slice(lines);
        if self.pending.len() >= JOURNAL_PENDING_BYTES {
            self.write_out()?;
        }
        Ok(())
    }

    /// Writes all appended lines to the file.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn write_out(&mut self) -> Result<(), FileError> {
        if !self.pending.is_empty() {
            append_all(self.file.as_mut(), &self.pending).during("append to", &self.path)?;
            self.written += self.pending.len() as u64;
            self.pending.clear();
        }
        Ok(())
    }

    /// Syncs all appended lines. Does nothing without changes.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`], also if the path no longer names this file. The handle must not be used
    /// again then.
    pub fn sync(&mut self) -> Result<(), FileError> {
        if self.is_dirty {
            self.write_out()?;
            self.file.sync().during("sync", &self.path)?;
            // Data in an unlinked file is lost even after a successful sync.
            if !self.file.is_at(&self.path).during("inspect", &self.path)? {
                let gone = "the file was deleted, moved or replaced while in use";
                let gone = std::io::Error::new(std::io::ErrorKind::NotFound, gone);
                return Err(gone).during("write", &self.path);
            }
            self.is_dirty = false;
        }
        Ok(())
    }

    /// Truncates the file. Durable only after [`Self::sync`].
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn cut(&mut self, len: u64) -> Result<(), FileError> {
        self.is_dirty = true;
        let kept = usize::try_from(len.saturating_sub(self.written)).unwrap_or(usize::MAX);
        self.pending.truncate(kept);
        if len < self.written {
            self.file.set_len(len).during("cut", &self.path)?;
            self.written = len;
        }
        Ok(())
    }

    /// Reads up to `max` bytes from `offset`.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn read(&mut self, offset: u64, max: usize) -> Result<Vec<u8>, FileError> {
        let mut buf = Vec::new();
        self.read_into(&mut buf, offset, max)?;
        Ok(buf)
    }

    /// As [`Self::read`], but appends to `buf`.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn read_into(
        &mut self,
        buf: &mut Vec<u8>,
        offset: u64,
        max: usize,
    ) -> Result<(), FileError> {
        let rest = usize::try_from(self.written.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = rest.min(max);
        if wanted > 0 {
            let held = buf.len();
            buf.resize(held + wanted, 0);
            let place = buf.get_mut(held..).unwrap_or_default();
            let filled = read_full(self.file.as_mut(), place, offset).during("read", &self.path)?;
            buf.truncate(held + filled);
            if filled < wanted {
                return Ok(());
            }
        }
        let from = usize::try_from(offset.saturating_sub(self.written)).unwrap_or(usize::MAX);
        let behind = self.pending.get(from..).unwrap_or_default();
        let count = behind.len().min(max - wanted);
        buf.extend_from_slice(behind.get(..count).unwrap_or_default());
        Ok(())
    }

    /// Calls `line` with the offset and content of every complete line, without its newline.
    /// Returns the offset after the last newline.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn scan(&mut self, line: impl FnMut(u64, &[u8])) -> Result<u64, FileError> {
        self.scan_from(0, line)
    }

    /// As [`Self::scan`], starting with the line at `start`.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn scan_from(
        &mut self,
        mut start: u64,
        mut line: impl FnMut(u64, &[u8]),
    ) -> Result<u64, FileError> {
        let mut pending: Vec<u8> = Vec::new();
        let mut offset = start;
        loop {
            let chunk = self.read(offset, READ_CHUNK_BYTES)?;
            if chunk.is_empty() {
                return Ok(start);
            }
            offset += chunk.len() as u64;
            let mut rest = chunk.as_slice();
            while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let (head, tail) = rest.split_at(at);
                if pending.is_empty() {
                    line(start, head);
                } else {
                    pending.extend_from_slice(head);
                    line(start, &pending);
                }
                start += (pending.len().max(head.len()) + 1) as u64;
                pending.clear();
                rest = tail.get(1..).unwrap_or_default();
            }
            pending.extend_from_slice(rest);
        }
    }

    /// Truncates the remains of a crash after the last complete line, and keeps a copy for
    /// inspection (`MSG-11`). A last line that lacks only its newline gets one.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn mend_tail(&mut self, disk: &dyn Disk, good: u64) -> Result<Option<TornTail>, FileError> {
        if good >= self.len() {
            return Ok(None);
        }
        let tail = self.read(good, usize::MAX)?;
        let is_whole = !tail.contains(&b'\n')
            && seal_of(&tail) != Seal::Broken
            && serde_json::from_slice::<&RawValue>(&tail).is_ok();
        if is_whole {
            self.append(b"\n")?;
            self.sync()?;
            return Ok(None);
        }
        let label = format!("torn-{good}");
        let kept_in = crate::files::keep_aside(disk, &self.path, &label, &tail)?;
        self.cut(good)?;
        self.sync()?;
        Ok(Some(TornTail {
            offset: good,
            bytes: tail.len() as u64,
            kept_in,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimulatedDisk;

    fn lines_of(content: &[u8]) -> (Vec<(u64, Vec<u8>)>, u64) {
        let disk = SimulatedDisk::new();
        disk.plant(Path::new("/j"), content).unwrap();
        let mut journal = Journal::open(&disk, Path::new("/j")).unwrap();
        let mut lines = Vec::new();
        let good = journal
            .scan(|at, line| lines.push((at, line.to_vec())))
            .unwrap();
        (lines, good)
    }

    #[test]
    fn lines_have_correct_offsets_across_any_chunks() {
        assert_eq!(lines_of(b""), (vec![], 0));
        let (lines, good) = lines_of(b"a\n\nbc\nd");
        assert_eq!(
            lines,
            [(0, b"a".to_vec()), (2, b"".to_vec()), (3, b"bc".to_vec())]
        );
        assert_eq!(good, 6);
        let long = [vec![b'x'; READ_CHUNK_BYTES * 2 + 7], b"\ny\n".to_vec()].concat();
        let (lines, good) = lines_of(&long);
        assert_eq!(lines[0].1.len(), READ_CHUNK_BYTES * 2 + 7);
        assert_eq!(lines[1], (READ_CHUNK_BYTES as u64 * 2 + 8, b"y".to_vec()));
        assert_eq!(good, long.len() as u64);
    }

    #[test]
    fn msg_11_a_torn_tail_is_cut_and_kept_aside() {
        let disk = SimulatedDisk::new();
        disk.plant(Path::new("/j"), b"{}\n{\"a\":").unwrap();
        let mut journal = Journal::open(&disk, Path::new("/j")).unwrap();
        let good = journal.scan(|_, _| {}).unwrap();
        let torn = journal.mend_tail(&disk, good).unwrap().unwrap();
        assert_eq!((torn.offset, torn.bytes), (3, 5));
        assert_eq!(lines_of_disk(&disk, "/j"), b"{}\n");
        assert_eq!(lines_of_disk(&disk, "/j.torn-3"), b"{\"a\":");
    }

    #[test]
    fn a_whole_last_line_only_gets_its_newline() {
        let disk = SimulatedDisk::new();
        disk.plant(Path::new("/j"), b"{}\n{\"a\":1}").unwrap();
        let mut journal = Journal::open(&disk, Path::new("/j")).unwrap();
        assert_eq!(journal.mend_tail(&disk, 3).unwrap(), None);
        assert_eq!(lines_of_disk(&disk, "/j"), b"{}\n{\"a\":1}\n");
    }

    #[test]
    fn msg_5_nothing_is_acknowledged_into_a_file_that_is_gone() {
        let path = Path::new("/j");
        let other = SimulatedDisk::new();
        for how in ["deleted", "replaced", "moved"] {
            let disk = other.after_crash(crate::disk::Crash::KeepUnsynced);
            let mut journal = Journal::open(&disk, path).unwrap();
            journal.append(b"{}\n").unwrap();
            journal.sync().unwrap();
            match how {
                "deleted" => disk.remove_file(path).unwrap(),
                "moved" => disk.rename(path, Path::new("/k")).unwrap(),
                _ => {
                    crate::files::replace(&disk, path, b"{}\n").unwrap();
                }
            }
            journal.append(b"{}\n").unwrap();
            let error = journal.sync().unwrap_err();
            assert!(error.to_string().contains("/j"), "{how}: {error}");
        }
    }

    #[test]
    fn msg_5_a_real_file_knows_whether_it_is_still_there() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("j");
        let real = crate::disk::RealDisk;
        let file = real.open(&path).unwrap();
        assert!(file.is_at(&path).unwrap());
        real.rename(&path, &temp.path().join("k")).unwrap();
        assert!(!file.is_at(&path).unwrap());
        let other = real.open(&path).unwrap();
        assert!(!file.is_at(&path).unwrap() && other.is_at(&path).unwrap());
    }

    fn lines_of_disk(disk: &SimulatedDisk, path: &str) -> Vec<u8> {
        let mut file = disk.open_read(Path::new(path)).unwrap();
        crate::disk::read_all(file.as_mut(), 1 << 20).unwrap()
    }
}
