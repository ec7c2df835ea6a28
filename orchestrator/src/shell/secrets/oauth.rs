//! Storage of OAuth tokens: SOPS documents below `system/oauth/`, replaced as a whole (`SYS-2`,
//! `SYS-3`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use goondan_durable::{IoContext as _, files};
use goondan_oauth::{DocumentKey, Documents, Fields};
use goondan_protocol::ids::{ResourceName, SecretKey, WorkspaceId};
use goondan_protocol::secret::SecretValue;
use goondan_protocol::time::Timestamp;
use goondan_vault::limits::SECRET_DOCUMENT_BYTES_MAX;
use goondan_vault::{Document, Identities, VaultError};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::{KeepError, SecretKeeper, is_document};

/// The directories of documents.
const KINDS: [&str; 3] = ["grants", "locks", "sessions"];

impl SecretKeeper {
    pub(super) fn oauth_dir(&self) -> PathBuf {
        self.vault.system_dir().join("oauth")
    }

    /// True if documents exist that another identity could not decrypt.
    pub(super) fn has_oauth_documents(&self) -> Result<bool, KeepError> {
        for kind in KINDS {
            let dir = self.oauth_dir().join(kind);
            for app in self.entries(&dir)? {
                if !self.entries(&dir.join(app.name))?.is_empty() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Reads all documents of applications of this name, in all workspaces. From then on, their
    /// secrets are masked in logs.
    pub(in crate::shell) fn read_oauth(&self, app: &ResourceName) -> Documents {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut documents = Documents::default();
        for kind in KINDS {
            let dir = self.oauth_dir().join(kind).join(app.as_str());
            let names = match self.files.list(&dir) {
                Ok(names) => names,
                Err(error) => {
                    let dir = dir.display();
                    documents
                        .problems
                        .push(format!("failed to list `{dir}`: {error}"));
                    continue;
                }
            };
            for name in names {
                if !is_document(&name) {
                    continue;
                }
                match self.read_document(&dir.join(&name)) {
                    Ok(fields) => documents.found.extend(fields),
                    Err(error) => documents.problems.push(goondan_log::error_chain(&error)),
                }
            }
        }
        for fields in &documents.found {
            self.mask(fields);
        }
        documents
    }

    fn read_document(&self, path: &Path) -> Result<Option<Fields>, KeepError> {
        let path_of = || path.to_owned();
        let read = self.files.read(path, SECRET_DOCUMENT_BYTES_MAX);
        let read = read.map_err(|source| VaultError::Io {
            path: path_of(),
            source,
        })?;
        let Some(bytes) = read else {
            return Ok(None);
        };
        let found = self.vault.identities(self.files.as_ref())?;
        let identities: Identities = found.ok_or_else(|| self.no_identity())?.identities;
        let bad = |source| VaultError::Document {
            path: path_of(),
            source,
        };
        let document = Document::open(&bytes, &identities).map_err(bad)?;
        let mut fields = BTreeMap::new();
        for key in document.keys() {
            if let Some(value) = document.get(key).map_err(bad)? {
                let value = SecretValue::new(value.expose_secret().to_owned());
                fields.insert(key.to_owned(), value);
            }
        }
        Ok(Some(Fields::new(fields)))
    }

    /// Stores a document durably, in place of the previous one. From then on, its secrets are
    /// masked in logs.
    ///
    /// # Errors
    ///
    /// The reason, as text.
    pub(in crate::shell) fn write_oauth(
        &self,
        place: &DocumentKey,
        fields: &Fields,
        at: Timestamp,
    ) -> Result<(), String> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.mask(fields);
        let written = self.try_write_oauth(place, fields, at);
        written.map_err(|error| goondan_log::error_chain(&error))
    }

    fn try_write_oauth(
        &self,
        place: &DocumentKey,
        fields: &Fields,
        at: Timestamp,
    ) -> Result<(), KeepError> {
        let path = self.oauth_dir().join(place.path());
        let bad = |source| VaultError::Document {
            path: path.clone(),
            source,
        };
        let (identities, _) = self.identities_to_write_with(at)?;
        let mut document = Document::new();
        for (name, value) in fields.iter() {
            let key = SecretKey::new(name).map_err(|_| KeepError::NoKey(name.to_owned()))?;
            document.set(&key, value.expose()).map_err(bad)?;
        }
        let text = document.seal(&identities, at).map_err(bad)?;
        let disk = self.disk.as_ref();
        if let Some(dir) = path.parent() {
            files::ensure_dir(disk, self.layout.root(), dir)?;
        }
        self.replace_in_system(&path, text.as_bytes(), &identities)
    }

    /// Removes a document durably, if it exists.
    ///
    /// # Errors
    ///
    /// The reason, as text.
    pub(in crate::shell) fn remove_oauth(&self, place: &DocumentKey) -> Result<(), String> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.oauth_dir().join(place.path());
        let removed = self.try_remove_oauth(&path);
        removed.map_err(|error| goondan_log::error_chain(&error))
    }

    fn try_remove_oauth(&self, path: &Path) -> Result<(), KeepError> {
        if self.disk.stat(path).during("inspect", path)?.is_none() {
            return Ok(());
        }
        self.delete_in_system(path)
    }

    fn mask(&self, fields: &Fields) {
        for secret in fields.secrets() {
            self.masks.add_value(secret.expose());
        }
    }

    /// Writes an audit record about the tokens of an application, without the tokens (`SEC-5`).
    pub(in crate::shell) fn audit_oauth(
        &self,
        event: &str,
        workspace_id: &WorkspaceId,
        subject: &str,
        at: Timestamp,
    ) {
        let fields = json!({"event": event, "workspaceId": workspace_id, "grant": subject});
        self.record(fields, at);
    }
}

#[cfg(test)]
#[path = "oauth_tests.rs"]
mod tests;
