//! Access to goondan's own files and to directories that other programs write too.

use std::fmt;
use std::io;
use std::path::Path;

use goondan_durable::disk::{Disk, Folder, RealDisk};

use crate::RealFolder;

/// File access of the machine, or of a test.
pub trait FileAccess: fmt::Debug + Send + Sync {
    /// Returns the disk of goondan's own files.
    fn disk(&self) -> &dyn Disk;

    /// Opens a directory that other programs write too.
    ///
    /// # Errors
    ///
    /// I/O errors.
    fn folder(&self, path: &Path) -> io::Result<Box<dyn Folder>>;
}

/// File access of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFiles;

impl FileAccess for RealFiles {
    fn disk(&self) -> &dyn Disk {
        &RealDisk
    }

    fn folder(&self, path: &Path) -> io::Result<Box<dyn Folder>> {
        Ok(Box::new(RealFolder::open(path)?))
    }
}
