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
/// Suffix of the name of a copy.
const SUFFIX: &str = ".json";

/// `system/workspaces/<workspaceId>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordCopy {
    pub(crate) record: WorkspaceRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<WorkspaceRecord>,
    /// True if the workspace's folder was missing when its project ran, until a person acknowledges
    /// the loss.
    #[serde(
        rename = "folderLost",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub(crate) is_folder_lost: bool,
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
    layout.system().join(COPIES).join(format!("{id}{SUFFIX}"))
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
    let known = RecordCopy::read(disk, layout, id)?;
    let copy = RecordCopy {
        record: record.clone(),
        before,
        is_folder_lost: known.is_some_and(|known| known.is_folder_lost),
    };
    Ok(files::replace(disk, &path, &pretty(&copy)?)?)
}

/// Lists the workspaces that have a copy, which are all workspaces that were ever open here.
pub(crate) fn list(disk: &dyn Disk, layout: &Layout) -> Result<Vec<WorkspaceId>, FileError> {
    let dir = layout.system().join(COPIES);
    if disk.stat(&dir).during("inspect", &dir)?.is_none() {
        return Ok(Vec::new());
    }
    let entries = disk.list(&dir).during("list", &dir)?.into_iter();
    let mut ids: Vec<WorkspaceId> = entries
        .filter_map(|entry| entry.name.to_str()?.strip_suffix(SUFFIX)?.parse().ok())
        .collect();
    ids.sort();
    Ok(ids)
}

/// Records that a workspace's folder is missing, before it is created again. Durable when it
/// returns.
pub(super) fn mark_lost(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
    copy: RecordCopy,
) -> Result<(), StoreError> {
    let copy = RecordCopy {
        is_folder_lost: true,
        ..copy
    };
    Ok(files::replace(disk, &path_of(layout, id), &pretty(&copy)?)?)
}

/// Acknowledges that a workspace's folder was lost. If it is still missing, the workspace is no
/// longer known.
pub(crate) fn acknowledge_loss(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
) -> Result<(), StoreError> {
    let Some(copy) = RecordCopy::read(disk, layout, id)? else {
        return Ok(());
    };
    let (path, folder) = (path_of(layout, id), layout.workspace(id));
    if disk.stat(&folder).during("inspect", &folder)?.is_none() {
        disk.remove_file(&path).during("remove", &path)?;
        let dir = path.parent().unwrap_or(&path);
        disk.sync_dir(dir).during("sync", dir)?;
    } else if copy.is_folder_lost {
        let copy = RecordCopy {
            is_folder_lost: false,
            ..copy
        };
        files::replace(disk, &path, &pretty(&copy)?)?;
    }
    Ok(())
}

/// Returns indented JSON with a trailing newline.
pub(super) fn pretty(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|error| StoreError::InvalidEvent {
        problem: error.to_string(),
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}
