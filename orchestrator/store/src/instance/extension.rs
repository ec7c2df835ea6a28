//! `extensions/<name>.json`: what extensions remember (`EXT-1` … `EXT-4`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use goondan_protocol::ids::ExtensionName;
use serde_json::Value;

use super::{EXTENSIONS, InstanceStore};
use crate::disk::{EntryKind, read_all};
use crate::durable;
use crate::error::{IoContext as _, StoreError};
use crate::naming::extension_file_name;

/// Largest state of one extension, in bytes.
pub(super) const STATE_BYTES_MAX: usize = 4 * 1024 * 1024;

impl InstanceStore {
    fn extension_path(&self, name: &ExtensionName) -> PathBuf {
        self.dir.join(EXTENSIONS).join(extension_file_name(name))
    }

    /// The state an extension last set; none if it never did.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`]; [`StoreError::Damaged`] if the file holds no JSON.
    pub fn extension_state(&self, name: &ExtensionName) -> Result<Option<Value>, StoreError> {
        let path = self.extension_path(name);
        if self.disk.stat(&path).during("look at", &path)?.is_none() {
            return Ok(None);
        }
        let mut file = self.disk.open_read(&path).during("open", &path)?;
        let bytes = read_all(file.as_mut(), STATE_BYTES_MAX).during("read", &path)?;
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| StoreError::Damaged {
                path,
                line: u64::try_from(error.line()).unwrap_or(0),
                problem: error.to_string(),
            })
    }

    /// Sets an extension's state, unless it is what it was (`EXT-3`). Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`], which changes nothing; [`StoreError::Io`].
    pub fn set_extension_state(
        &self,
        name: &ExtensionName,
        state: &Value,
    ) -> Result<(), StoreError> {
        let bytes = super::json_line(state)?;
        if bytes.len() > STATE_BYTES_MAX {
            return Err(StoreError::TooLarge {
                bytes: bytes.len(),
                max: STATE_BYTES_MAX,
            });
        }
        if self.extension_state(name)?.as_ref() == Some(state) {
            return Ok(());
        }
        durable::replace(self.disk.as_ref(), &self.extension_path(name), &bytes)
    }

    /// Every extension's state, by file name without its ending. A file that cannot be read shows as
    /// the error it gives.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if the folder cannot be listed.
    pub fn extension_states(&self) -> Result<BTreeMap<String, Value>, StoreError> {
        let dir = self.dir.join(EXTENSIONS);
        let mut states = BTreeMap::new();
        for entry in self.disk.list(&dir).during("list", &dir)? {
            let name = entry.name.to_string_lossy();
            let Some(name) = name.strip_suffix(".json") else {
                continue;
            };
            if entry.kind != EntryKind::File {
                continue;
            }
            let path = dir.join(&entry.name);
            let mut file = self.disk.open_read(&path).during("open", &path)?;
            let bytes = read_all(file.as_mut(), STATE_BYTES_MAX).during("read", &path)?;
            let state = serde_json::from_slice(&bytes)
                .unwrap_or_else(|error| Value::String(format!("cannot be read: {error}")));
            states.insert(name.to_owned(), state);
        }
        Ok(states)
    }
}
