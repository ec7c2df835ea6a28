//! goondan's own files, and directories that others write, too.

use std::fmt;
use std::io;
use std::path::Path;

use goondan_durable::disk::{Disk, Folder, RealDisk};

use crate::RealFolder;

/// The files of the machine, or of a test.
pub trait Files: fmt::Debug + Send + Sync {
    /// goondan's own files.
    fn disk(&self) -> &dyn Disk;

    /// A directory that others write, too.
    ///
    /// # Errors
    ///
    /// As the file system says.
    fn folder(&self, path: &Path) -> io::Result<Box<dyn Folder>>;
}

/// The files of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFiles;

impl Files for RealFiles {
    fn disk(&self) -> &dyn Disk {
        &RealDisk
    }

    fn folder(&self, path: &Path) -> io::Result<Box<dyn Folder>> {
        Ok(Box::new(RealFolder::open(path)?))
    }
}
