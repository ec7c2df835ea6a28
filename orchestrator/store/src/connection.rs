//! `connectors/<connection>.json`: persistent state of a connection.
//!
//! Replaced as a whole, so a crash leaves either the old or the new state.

use std::path::PathBuf;

use goondan_durable::disk::{Disk, read_all};
use goondan_durable::{FileError, IoContext as _, files};
use goondan_protocol::ids::{ConnectionName, WorkspaceId};
use goondan_protocol::limits::MAX_CONNECTION_STATE_BYTES;
use serde_json::value::RawValue;

use crate::error::StoreError;
use crate::file_names::connection_file_name;
use crate::root::Layout;

/// Folder name in the workspace's folder.
const CONNECTORS: &str = "connectors";

fn path_of(layout: &Layout, id: &WorkspaceId, name: &ConnectionName) -> PathBuf {
    let dir = layout.workspace(id).join(CONNECTORS);
    dir.join(connection_file_name(name))
}

/// Returns the last stored state of a connection, if any.
///
/// # Errors
///
/// [`FileError::Io`]; [`FileError::Damaged`] if the file is not valid JSON.
pub fn state(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
    name: &ConnectionName,
) -> Result<Option<Box<RawValue>>, StoreError> {
    let path = path_of(layout, id, name);
    if disk.stat(&path).during("inspect", &path)?.is_none() {
        return Ok(None);
    }
    let mut file = disk.open_read(&path).during("open", &path)?;
    // The extra byte is the trailing newline.
    let bytes = read_all(file.as_mut(), MAX_CONNECTION_STATE_BYTES + 1).during("read", &path)?;
    let state = serde_json::from_slice(&bytes).map_err(|error| FileError::Damaged {
        path,
        line: u64::try_from(error.line()).unwrap_or(0),
        problem: error.to_string(),
    })?;
    Ok(Some(state))
}

/// Replaces the stored state of a connection. Durable when it returns.
///
/// # Errors
///
/// [`StoreError::TooLarge`], which changes nothing; [`FileError::Io`].
pub fn set_state(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
    name: &ConnectionName,
    state: &RawValue,
) -> Result<(), StoreError> {
    let bytes = state.get().len();
    if bytes > MAX_CONNECTION_STATE_BYTES {
        return Err(StoreError::TooLarge {
            bytes,
            max: MAX_CONNECTION_STATE_BYTES,
        });
    }
    let path = path_of(layout, id, name);
    files::ensure_dir(disk, layout.root(), &layout.workspace(id).join(CONNECTORS))?;
    let line = format!("{}\n", state.get());
    Ok(files::replace(disk, &path, line.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use goondan_durable::disk::RealDisk;
    use goondan_protocol::JsonObject;

    use super::*;
    use crate::workspace::{WorkspaceRecord, write};

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn each_connection_gets_only_its_own_last_saved_state() {
        let temp = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let layout = Layout::new(temp.path());
        let id = WorkspaceId::new("w").unwrap();
        files::ensure_dir(disk.as_ref(), layout.root(), &layout.workspace(&id)).unwrap();
        let record = WorkspaceRecord {
            workspace_id: id.clone(),
            project_root: "/p".into(),
            package: None,
            registered: true,
            watch: false,
            env_files: Vec::new(),
            swarm: None,
            extra: JsonObject::new(),
        };
        write(disk.as_ref(), &layout, &record).unwrap();
        let get = |name: &str| {
            let name = ConnectionName::new(name).unwrap();
            let found = state(disk.as_ref(), &layout, &id, &name).unwrap();
            found.map(|raw| raw.get().to_owned())
        };
        let set = |name: &str, text: &str| {
            let name = ConnectionName::new(name).unwrap();
            set_state(disk.as_ref(), &layout, &id, &name, &raw(text))
        };
        assert_eq!(get("clock"), None);
        set("clock", r#"{"a":1}"#).unwrap();
        set("Clock", "2").unwrap();
        set("clock", r#"{"a":2}"#).unwrap();
        assert_eq!(get("clock").as_deref(), Some(r#"{"a":2}"#));
        assert_eq!(get("Clock").as_deref(), Some("2"));
        let large = format!("\"{}\"", "x".repeat(MAX_CONNECTION_STATE_BYTES));
        assert!(matches!(
            set("clock", &large),
            Err(StoreError::TooLarge { .. })
        ));
        assert_eq!(get("clock").as_deref(), Some(r#"{"a":2}"#));
        // The largest allowed state is read back.
        let largest = format!("\"{}\"", "x".repeat(MAX_CONNECTION_STATE_BYTES - 2));
        set("clock", &largest).unwrap();
        assert_eq!(get("clock"), Some(largest));
    }
}
