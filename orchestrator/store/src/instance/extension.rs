//! `extensions/<name>.json`: extension states (`EXT-1` … `EXT-4`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use goondan_durable::disk::{EntryKind, read_all};
use goondan_durable::{FileError, Finding, FindingKind, IoContext as _, files};
use goondan_protocol::ids::{ExtensionName, ExtensionStates};
use goondan_protocol::limits::MAX_EXTENSION_STATE_BYTES;
use serde_json::Value;

use super::{EXTENSIONS, InstanceStore};
use crate::error::StoreError;
use crate::file_names::extension_file_name;

/// Rejects states that exceed the size limit.
pub(super) fn check_states(states: &ExtensionStates) -> Result<(), StoreError> {
    for state in states.values() {
        bytes_of(state)?;
    }
    Ok(())
}

fn bytes_of(state: &Value) -> Result<Vec<u8>, StoreError> {
    let bytes = super::json_line(state)?;
    if bytes.len() > MAX_EXTENSION_STATE_BYTES {
        return Err(StoreError::TooLarge {
            bytes: bytes.len(),
            max: MAX_EXTENSION_STATE_BYTES,
        });
    }
    Ok(bytes)
}

impl InstanceStore {
    fn extension_path(&self, name: &ExtensionName) -> PathBuf {
        self.dir.join(EXTENSIONS).join(extension_file_name(name))
    }

    /// Returns the state an extension last set, if any.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`]; [`FileError::Damaged`] if the file is not JSON.
    pub fn extension_state(&self, name: &ExtensionName) -> Result<Option<Value>, FileError> {
        let path = self.extension_path(name);
        if self.disk.stat(&path).during("inspect", &path)?.is_none() {
            return Ok(None);
        }
        let mut file = self.disk.open_read(&path).during("open", &path)?;
        let bytes = read_all(file.as_mut(), MAX_EXTENSION_STATE_BYTES).during("read", &path)?;
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| FileError::Damaged {
                path,
                line: u64::try_from(error.line()).unwrap_or(0),
                problem: error.to_string(),
            })
    }

    /// Sets an extension's state, unless it is unchanged (`EXT-3`). Durable when it returns.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`], which changes nothing; [`FileError::Io`].
    pub fn set_extension_state(
        &self,
        name: &ExtensionName,
        state: &Value,
    ) -> Result<(), StoreError> {
        let bytes = bytes_of(state)?;
        if self.extension_state(name)?.as_ref() == Some(state) {
            return Ok(());
        }
        let path = self.extension_path(name);
        Ok(files::replace(self.disk.as_ref(), &path, &bytes)?)
    }

    /// Returns the existing states of the named extensions. A file that is not JSON is moved aside
    /// and reported, and its extension starts without a state.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn restore_states(
        &self,
        names: &[ExtensionName],
    ) -> Result<(ExtensionStates, Vec<Finding>), StoreError> {
        let (mut states, mut findings) = (ExtensionStates::new(), Vec::new());
        for name in names {
            match self.extension_state(name) {
                Ok(state) => states.extend(state.map(|state| (name.clone(), state))),
                Err(FileError::Damaged { path, problem, .. }) => {
                    let disk = self.disk.as_ref();
                    let (aside, _) = files::aside_name(disk, &path, "damaged", None)?;
                    files::install(disk, &path, &aside)?;
                    let problem = format!("the state of extension `{name}` is not JSON: {problem}");
                    let finding = Finding::new(&path, FindingKind::DamagedRecord, problem);
                    findings.push(finding.kept(&aside));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok((states, findings))
    }

    /// Returns every extension's state, by file name without its suffix. An unreadable file's state
    /// is the error text.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`] if the folder cannot be listed.
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
            let bytes = read_all(file.as_mut(), MAX_EXTENSION_STATE_BYTES).during("read", &path)?;
            let state = serde_json::from_slice(&bytes)
                .unwrap_or_else(|error| Value::String(format!("failed to read: {error}")));
            states.insert(name.to_owned(), state);
        }
        Ok(states)
    }
}
