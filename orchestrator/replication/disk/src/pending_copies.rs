//! Captured files that remain to be copied, and their content before a truncation.
//!
//! A hard link preserves removed and replaced files, but not content truncated in place. Stores
//! truncate constantly: a conversation's events are cleared once its turns are committed. Code that
//! truncates a file that remains to be copied therefore first reads its captured content into
//! memory, where the copy finds it.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use goondan_durable::disk::{DiskFile, read_full};

use crate::limits::CUT_BYTES_MAX;

/// The files of one capture that remain to be copied.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingCopies(Arc<Mutex<PendingFiles>>);

#[derive(Debug, Default)]
struct PendingFiles {
    /// By inode: the capture's links are on the workspace's file system.
    files: HashMap<u64, File>,
    /// Bytes in memory.
    held: u64,
    /// True if content was lost in a truncation.
    is_void: bool,
}

#[derive(Debug)]
struct File {
    len: u64,
    names: u32,
    /// Captured content, once the file was truncated.
    content: Option<Arc<[u8]>>,
}

impl PendingCopies {
    fn files(&self) -> MutexGuard<'_, PendingFiles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a captured name of a file, with its captured length.
    pub(crate) fn add(&self, inode: u64, len: u64) {
        let mut files = self.files();
        let file = files.files.entry(inode).or_insert(File {
            len,
            names: 0,
            content: None,
        });
        file.names += 1;
    }

    /// Called before a file is truncated to `len` bytes. Keeps the captured content if it is longer
    /// and not copied yet. If it cannot be kept, the capture becomes void.
    pub(crate) fn keep(&self, file: &mut dyn DiskFile, len: u64) {
        let mut files = self.files();
        if let Err(error) = files.keep(file, len) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to keep a truncated file's content for a snapshot"
            );
            files.is_void = true;
        }
    }

    /// True if no file remains to be copied.
    pub(crate) fn is_empty(&self) -> bool {
        self.files().files.is_empty()
    }

    /// Captured content of a file that was truncated meanwhile. Call this after reading the file
    /// itself.
    pub(crate) fn content(&self, inode: u64) -> Option<Arc<[u8]>> {
        self.files().files.get(&inode)?.content.clone()
    }

    /// Marks one name of a file as copied.
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

    pub(crate) fn end(&self) {
        *self.files() = PendingFiles::default();
    }

    /// True if content was lost in a truncation. Call this after all files were read.
    pub(crate) fn is_void(&self) -> bool {
        self.files().is_void
    }
}

impl PendingFiles {
    fn keep(&mut self, cut: &mut dyn DiskFile, len: u64) -> io::Result<()> {
        // Most truncations happen while no copy is in progress.
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
            let much = format!("such files have {held} bytes; at most {CUT_BYTES_MAX} are allowed");
            return Err(io::Error::other(much));
        }
        // At most the limit.
        let mut content = vec![0; usize::try_from(file.len).unwrap_or(usize::MAX)];
        if read_full(cut, &mut content, 0)? < content.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.content = Some(content.into());
        self.held = held;
        Ok(())
    }
}
