//! Secrets that users provide for tasks: stored in the task's work area, encrypted for the identity
//! of this System Root (`PROTO-2`).

use std::collections::HashMap;
use std::path::Path;
use std::sync::PoisonError;

use goondan_core::Clear;
use goondan_durable::disk::read_all;
use goondan_durable::register::Register;
use goondan_durable::{IoContext as _, files};
use goondan_protocol::control::ControlError;
use goondan_protocol::ids::SecretKey;
use goondan_protocol::time::Timestamp;
use goondan_vault::limits::SECRET_DOCUMENT_BYTES_MAX;
use goondan_vault::{Document, Identities, VaultError};
use secrecy::ExposeSecret as _;

use super::{KeepError, SecretKeeper};

/// Path of the secrets within a work area.
pub(in crate::shell) const FILE: &str = ".metadata/secrets.yaml";

impl SecretKeeper {
    /// Stores a value for a task under the id of its dependency. Durable on return. An existing
    /// file that cannot be opened here is moved aside.
    pub(in crate::shell) fn keep_for_task(
        &self,
        work_area: &Path,
        register: &Register<'_>,
        id: &str,
        value: &str,
        at: Timestamp,
    ) -> Result<(), ControlError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.masks.add_value(value);
        Ok(self.try_keep(work_area, register, id, value, at)?)
    }

    fn try_keep(
        &self,
        work_area: &Path,
        register: &Register<'_>,
        id: &str,
        value: &str,
        at: Timestamp,
    ) -> Result<(), KeepError> {
        let path = work_area.join(FILE);
        let (identities, _) = self.identities_to_write_with(at)?;
        let disk = self.disk.as_ref();
        let mut document = match self.bytes_at(&path)? {
            None => Document::new(),
            Some(bytes) => match Document::open(&bytes, &identities) {
                Ok(document) => document,
                Err(error) => {
                    let kept = files::keep_aside(disk, &path, "unreadable", &bytes)?;
                    tracing::warn!(
                        path = %kept.display(),
                        error = &error as &dyn std::error::Error,
                        "failed to read secrets of a task; kept aside"
                    );
                    Document::new()
                }
            },
        };
        let refused = |source| {
            KeepError::from(VaultError::Document {
                path: path.clone(),
                source,
            })
        };
        let key = SecretKey::new(id).map_err(|_| KeepError::NoKey(id.to_owned()))?;
        document.set(&key, value).map_err(refused)?;
        let text = document.seal(&identities, at).map_err(refused)?;
        Ok(register.replace(FILE, text.as_bytes())?)
    }

    pub(super) fn bytes_at(&self, path: &Path) -> Result<Option<Vec<u8>>, KeepError> {
        let disk = self.disk.as_ref();
        if disk.stat(path).during("inspect", path)?.is_none() {
            return Ok(None);
        }
        let mut file = disk.open_read(path).during("open", path)?;
        let bytes = read_all(file.as_mut(), SECRET_DOCUMENT_BYTES_MAX).during("read", path)?;
        Ok(Some(bytes))
    }

    /// Reads the values of a task by dependency id. Missing values are omitted from the result.
    ///
    /// # Errors
    ///
    /// The reason that no value can be read.
    pub(in crate::shell) fn read_for_task(
        &self,
        work_area: &Path,
        ids: &[&str],
    ) -> Result<HashMap<String, Clear>, String> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let path = work_area.join(FILE);
        let words = |error: KeepError| goondan_log::error_chain(&error);
        let Some(bytes) = self.bytes_at(&path).map_err(words)? else {
            return Ok(HashMap::new());
        };
        let found = self.vault.identities(self.files.as_ref());
        let found = found.map_err(|error| words(error.into()))?;
        let identities: Identities = found
            .ok_or_else(|| words(self.no_identity().into()))?
            .identities;
        let document = Document::open(&bytes, &identities)
            .map_err(|source| words(VaultError::Document { path, source }.into()))?;
        let mut values = HashMap::new();
        for id in ids {
            if let Ok(Some(value)) = document.get(id) {
                self.masks.add_value(value.expose_secret());
                values.insert((*id).to_owned(), Clear(value.expose_secret().to_owned()));
            }
        }
        Ok(values)
    }
}
