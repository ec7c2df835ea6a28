//! goondan's own files, accessed through the daemon's disk, which records changes for other nodes,
//! and directories shared with other writers.

use std::io;
use std::path::Path;
use std::sync::Arc;

use goondan_durable::disk::{Disk, Folder};
use goondan_trees::{FileAccess, RealFolder};

#[derive(Debug, Clone)]
pub(super) struct DaemonFiles(pub(super) Arc<dyn Disk>);

impl FileAccess for DaemonFiles {
    fn disk(&self) -> &dyn Disk {
        self.0.as_ref()
    }

    fn folder(&self, path: &Path) -> io::Result<Box<dyn Folder>> {
        Ok(Box::new(RealFolder::open(path)?))
    }
}
