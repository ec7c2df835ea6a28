//! Captured files that are still to be copied, and what they held before they were cut.
//!
//! A second name keeps what is removed or replaced, but not what is cut in place, which stores do all the time: a
//! conversation's events are cleared once its turns are committed. So whoever cuts a file that is still to be copied
//! first reads what was captured of it into memory, where the copying finds it.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use goondan_durable::disk::{DiskFile, read_full};

use crate::limits::CUT_BYTES_MAX;

/// The files of one capture that are still to be copied.
#[derive(Debug, Clone, Default)]
pub(crate) struct Uncopied(Arc<Mutex<Files>>);

#[derive(Debug, Default)]
struct Files {
    /// By inode: the capture's names are on the file system of the workspace.
    files: HashMap<u64, File>,
    /// Bytes in memory.
    held: u64,
    /// Whether something was cut that nobody has.
    is_void: bool,
}

#[derive(Debug)]
struct File {
    /// How much of it was captured.
    len: u64,
    /// Under how many names.
    names: u32,
    /// What it held, once it was cut.
    content: Option<Arc<[u8]>>,
}

impl Uncopied {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more name of a file was captured, with so many bytes.
    pub(crate) fn add(&self, inode: u64, len: u64) {
        let mut files = self.files();
        let file = files.files.entry(inode).or_insert(File {
            len,
            names: 0,
            content: None,
        });
        file.names += 1;
    }

    /// A file is about to be cut to `len` bytes: keeps what was captured of it, if that is more and was not copied. The
    /// capture is void if it cannot be kept.
    pub(crate) fn keep(&self, file: &mut dyn DiskFile, len: u64) {
        let mut files = self.files();
        if let Err(error) = files.keep(file, len) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "what a snapshot needs of a file that is cut cannot be kept"
            );
            files.is_void = true;
        }
    }

    /// Whether nothing is to be copied.
    pub(crate) fn is_empty(&self) -> bool {
        self.files().files.is_empty()
    }

    /// What a file held that was cut meanwhile. To be asked after the file itself was read.
    pub(crate) fn content(&self, inode: u64) -> Option<Arc<[u8]>> {
        self.files().files.get(&inode)?.content.clone()
    }

    /// A name of a file was copied.
    pub(crate) fn copied(&self, inode: u64) {
        let mut files = self.files();
        let Some(file) = files.files.get_mut(&inode) else {
            return;
        };
        file.names = file.names.saturating_sub(1);
        if file.names == 0 {
            let held = file.content.as_ref().map_or(0, |content| content.len());
            files.held = files.held.saturating_sub(held as u64);
            files.files.remove(&inode);
        }
    }

    /// Nothing is copied any more.
    pub(crate) fn end(&self) {
        *self.files() = Files::default();
    }

    /// Whether something was cut that nobody has. To be asked after all was read.
    pub(crate) fn is_void(&self) -> bool {
        self.files().is_void
    }
}

impl Files {
    fn keep(&mut self, cut: &mut dyn DiskFile, len: u64) -> io::Result<()> {
        // Most cuts happen while nothing is copied.
        if self.files.is_empty() {
            return Ok(());
        }
        let Some(file) = self.files.get_mut(&cut.inode()?) else {
            return Ok(());
        };
        if file.content.is_some() || len >= file.len {
            return Ok(());
        }
        let held = self.held.saturating_add(file.len);
        if held > CUT_BYTES_MAX {
            let much = format!("there are {held} bytes of such files, and {CUT_BYTES_MAX} at most");
            return Err(io::Error::other(much));
        }
        // No more than the limit.
        let mut content = vec![0; usize::try_from(file.len).unwrap_or(usize::MAX)];
        if read_full(cut, &mut content, 0)? < content.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.content = Some(content.into());
        self.held = held;
        Ok(())
    }
}
