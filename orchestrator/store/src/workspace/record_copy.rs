//! A copy of each workspace's record, outside of its folder: what was last written, and what before that.
//!
//! The copy is written first. A crash between the two leaves the record that the copy names as the one
//! before; anything else was not written here.

use std::path::PathBuf;

use goondan_durable::disk::{Disk, read_all};
use goondan_durable::{FileError, IoContext as _, files};
use goondan_protocol::ids::WorkspaceId;
use serde::{Deserialize, Serialize};

use super::{WORKSPACE_BYTES_MAX, WorkspaceRecord, read};
use crate::error::StoreError;
use crate::root::Layout;

/// The directory of the copies, in the system's folder.
const COPIES: &str = "workspaces";

/// `system/workspaces/<workspaceId>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordCopy {
    /// What was last written.
    pub(crate) record: WorkspaceRecord,
    /// What it took the place of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<WorkspaceRecord>,
}

impl RecordCopy {
    /// Reads a workspace's copy; none if there is none, or none that can be read.
    pub(crate) fn read(
        disk: &dyn Disk,
        layout: &Layout,
        id: &WorkspaceId,
    ) -> Result<Option<Self>, FileError> {
        let path = path_of(layout, id);
        if disk.stat(&path).during("look at", &path)?.is_none() {
            return Ok(None);
        }
        let mut file = disk.open_read(&path).during("open", &path)?;
        let bytes = read_all(file.as_mut(), 2 * WORKSPACE_BYTES_MAX).during("read", &path)?;
        let copy: Option<Self> = serde_json::from_slice(&bytes).ok();
        Ok(copy.filter(|copy| copy.record.workspace_id == *id))
    }

    /// Whether a record is one that was written.
    pub(crate) fn knows(&self, record: &WorkspaceRecord) -> bool {
        self.record == *record || self.before.as_ref() == Some(record)
    }
}

/// Where a workspace's copy is.
pub(crate) fn path_of(layout: &Layout, id: &WorkspaceId) -> PathBuf {
    layout.system().join(COPIES).join(format!("{id}.json"))
}

/// Writes the copy of a record that is about to be written. Durable when it returns.
pub(super) fn write(
    disk: &dyn Disk,
    layout: &Layout,
    record: &WorkspaceRecord,
) -> Result<(), StoreError> {
    let id = &record.workspace_id;
    let path = path_of(layout, id);
    let dir = path.parent().unwrap_or(&path);
    files::ensure_dir(disk, layout.root(), dir)?;
    let before = match read(disk, &layout.workspace(id)) {
        Ok(before) => before,
        Err(FileError::Damaged { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let copy = RecordCopy {
        record: record.clone(),
        before,
    };
    Ok(files::replace(disk, &path, &pretty(&copy)?)?)
}

/// JSON for people, with a newline.
pub(super) fn pretty(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|error| StoreError::InvalidEvent {
        problem: error.to_string(),
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}
