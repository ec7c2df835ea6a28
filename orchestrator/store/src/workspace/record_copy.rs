//! A copy of each workspace's record outside its folder: the current and the previous record.
//!
//! The copy is written first. A crash between the two writes leaves the record that the copy lists
//! as previous. Any other record was not written by this store.

use std::path::PathBuf;

use goondan_durable::disk::{Disk, read_all};
use goondan_durable::{FileError, IoContext as _, files};
use goondan_protocol::ids::WorkspaceId;
use serde::{Deserialize, Serialize};

use super::{WORKSPACE_BYTES_MAX, WorkspaceRecord, read};
use crate::error::StoreError;
use crate::root::Layout;

/// Directory of the copies in the system's folder.
const COPIES: &str = "workspaces";

/// `system/workspaces/<workspaceId>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordCopy {
    pub(crate) record: WorkspaceRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<WorkspaceRecord>,
}

impl RecordCopy {
    /// Reads a workspace's copy; `None` if it is missing or unreadable.
    pub(crate) fn read(
        disk: &dyn Disk,
        layout: &Layout,
        id: &WorkspaceId,
    ) -> Result<Option<Self>, FileError> {
        let path = path_of(layout, id);
        if disk.stat(&path).during("inspect", &path)?.is_none() {
            return Ok(None);
        }
        let mut file = disk.open_read(&path).during("open", &path)?;
        let bytes = read_all(file.as_mut(), 2 * WORKSPACE_BYTES_MAX).during("read", &path)?;
        let copy: Option<Self> = serde_json::from_slice(&bytes).ok();
        Ok(copy.filter(|copy| copy.record.workspace_id == *id))
    }

    /// True if the record is the current or the previous one.
    pub(crate) fn knows(&self, record: &WorkspaceRecord) -> bool {
        self.record == *record || self.before.as_ref() == Some(record)
    }
}

/// Returns the path of a workspace's copy.
pub(crate) fn path_of(layout: &Layout, id: &WorkspaceId) -> PathBuf {
    layout.system().join(COPIES).join(format!("{id}.json"))
}

/// Writes the copy of a record before the record itself. Durable when it returns.
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

/// Returns indented JSON with a trailing newline.
pub(super) fn pretty(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|error| StoreError::InvalidEvent {
        problem: error.to_string(),
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}
