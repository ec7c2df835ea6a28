//! `configuration.json`: the last configuration of a workspace that ran, used as a fallback when
//! the project's current one is invalid.
//!
//! It holds copies of the project's configuration files. Environment files are never copied, and a
//! project with an inline secret is not kept, so the file holds no secrets (`SEC-1`).

use std::collections::BTreeMap;

use goondan_durable::checksum::{RecordPosition, Seal, seal, seal_of};
use goondan_durable::disk::{Disk, read_all};
use goondan_durable::{FileError, IoContext as _, files};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::limits::CONFIGURATION_BYTES_MAX;
use crate::root::Layout;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredConfiguration {
    /// Digest of the configuration when it ran.
    pub digest: String,
    pub since: Timestamp,
    /// Texts of the files, by their paths relative to the Project Root; `null` for a file that is
    /// only referenced, such as a module.
    pub files: BTreeMap<String, Option<String>>,
}

/// Replaces the kept configuration with the current one. Does nothing if both are equal. Durable
/// when it returns.
///
/// # Errors
///
/// [`StoreError::TooLarge`] if it exceeds the read limit; [`FileError::Io`].
pub fn keep(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
    kept: &StoredConfiguration,
) -> Result<(), StoreError> {
    // An unreadable configuration is replaced.
    if let Ok(Some(before)) = read(disk, layout, id)
        && (&before.digest, &before.files) == (&kept.digest, &kept.files)
    {
        return Ok(());
    }
    // The file has one record, so its number is constant. Its checksum detects edits.
    let bytes = seal(kept, RecordPosition { n: 1, durable: 0 })?;
    if bytes.len() > CONFIGURATION_BYTES_MAX {
        return Err(StoreError::TooLarge {
            bytes: bytes.len(),
            max: CONFIGURATION_BYTES_MAX,
        });
    }
    Ok(files::replace(disk, &layout.configuration(id), &bytes)?)
}

/// True if the checksum matches. A file of an earlier version has no checksum and passes.
pub(crate) fn is_as_written(bytes: &[u8]) -> bool {
    seal_of(bytes.strip_suffix(b"\n").unwrap_or(bytes)) != Seal::Broken
}

/// Reads the last configuration that ran, if one was kept.
///
/// # Errors
///
/// [`FileError::Damaged`] if the content is invalid; [`FileError::Io`].
pub fn read(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
) -> Result<Option<StoredConfiguration>, FileError> {
    let path = layout.configuration(id);
    if disk.stat(&path).during("inspect", &path)?.is_none() {
        return Ok(None);
    }
    let mut file = disk.open_read(&path).during("open", &path)?;
    let bytes = read_all(file.as_mut(), CONFIGURATION_BYTES_MAX).during("read", &path)?;
    if !is_as_written(&bytes) {
        let problem = "checksum mismatch: the file was edited or damaged".to_owned();
        return Err(FileError::Damaged {
            path,
            line: 1,
            problem,
        });
    }
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| FileError::Damaged {
            line: u64::try_from(error.line()).unwrap_or(0),
            problem: error.to_string(),
            path,
        })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use goondan_durable::disk::{Crash, SimulatedDisk};

    use super::*;
    use crate::workspace;

    fn configuration(digest: &str) -> StoredConfiguration {
        let text = Some(format!("# {digest}\nkind: Agent\n"));
        StoredConfiguration {
            digest: digest.to_owned(),
            since: Timestamp::from_unix_millis(0),
            files: BTreeMap::from([
                ("goondan.yaml".to_owned(), text),
                ("tools/clock.py".to_owned(), None),
            ]),
        }
    }

    fn opened() -> (SimulatedDisk, Layout, WorkspaceId) {
        let disk = SimulatedDisk::new();
        for dir in ["/s", "/s/workspaces"] {
            disk.create_dir(Path::new(dir)).unwrap();
        }
        for dir in ["/", "/s"] {
            disk.sync_dir(Path::new(dir)).unwrap();
        }
        let layout = Layout::new("/s");
        let record = workspace::open(&disk, &layout, Path::new("/p/a"), None).unwrap();
        (disk, layout, record.workspace_id)
    }

    #[test]
    fn sup_8_crash_at_any_call_leaves_old_or_new_configuration() {
        let (disk, layout, id) = opened();
        keep(&disk, &layout, &id, &configuration("before")).unwrap();
        let mut crashes = 1;
        loop {
            let disk = disk.after_crash(Crash::KeepUnsynced);
            disk.crash_at(disk.calls() + crashes);
            let written = keep(&disk, &layout, &id, &configuration("after"));
            for crash in [
                Crash::LoseUnsynced,
                Crash::KeepUnsynced,
                Crash::Subset(crashes),
            ] {
                let found = read(&disk.after_crash(crash), &layout, &id)
                    .unwrap()
                    .unwrap();
                assert!(
                    found == configuration("after")
                        || (written.is_err() && found == configuration("before")),
                    "crash at call {crashes}: {found:?}"
                );
            }
            if written.is_ok() {
                break;
            }
            crashes += 1;
        }
        assert!(crashes > 3, "it never crashed");
    }

    #[test]
    fn sup_8_edited_kept_configuration_is_refused_and_old_one_read() {
        let (disk, layout, id) = opened();
        let before = configuration("x");
        keep(&disk, &layout, &id, &before).unwrap();
        let path = layout.configuration(&id);
        let mut file = disk.open_read(&path).unwrap();
        let text = String::from_utf8(read_all(file.as_mut(), 1 << 20).unwrap()).unwrap();
        let edited = text.replacen("kind: Agent", "kind: Agent # by hand", 1);
        assert_ne!(edited, text);
        disk.plant(&path, edited.as_bytes()).unwrap();
        let error = read(&disk, &layout, &id).unwrap_err();
        assert!(error.to_string().contains("checksum mismatch"), "{error}");
        let plain = serde_json::to_vec(&before).unwrap();
        disk.plant(&path, &plain).unwrap();
        assert_eq!(read(&disk, &layout, &id).unwrap(), Some(before));
    }

    #[test]
    fn unchanged_configuration_is_not_rewritten_and_damaged_one_is() {
        let (disk, layout, id) = opened();
        assert_eq!(read(&disk, &layout, &id).unwrap(), None);
        let first = configuration("x");
        keep(&disk, &layout, &id, &first).unwrap();
        let later = StoredConfiguration {
            since: Timestamp::from_unix_millis(9),
            ..first.clone()
        };
        keep(&disk, &layout, &id, &later).unwrap();
        assert_eq!(read(&disk, &layout, &id).unwrap(), Some(first));
        disk.plant(&layout.configuration(&id), b"{").unwrap();
        assert!(matches!(
            read(&disk, &layout, &id),
            Err(FileError::Damaged { .. })
        ));
        keep(&disk, &layout, &id, &later).unwrap();
        assert_eq!(read(&disk, &layout, &id).unwrap(), Some(later));
    }
}
