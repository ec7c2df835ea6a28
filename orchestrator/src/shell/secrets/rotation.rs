//! Encrypting everything anew for another identity (`SYS-3`).
//!
//! While it goes on, the file of the identity has both: the new one first, which everything is encrypted for
//! from then on, and the old one behind it, which opens what is not yet. The old one goes when everything is
//! encrypted anew; a crash in between leaves everything readable, and a repetition finishes it.

use std::path::{Path, PathBuf};

use goondan_durable::disk::EntryKind;
use goondan_durable::files;
use goondan_protocol::control::SecretsRotated;
use goondan_protocol::time::Timestamp;
use goondan_vault::limits::SECRET_DOCUMENT_BYTES_MAX;
use goondan_vault::{Document, Identities, IdentityOrigin, VaultError};
use secrecy::{ExposeSecret as _, SecretSlice};
use serde_json::json;

use super::{KeepError, SecretKeeper};

/// Directories below each other in which documents are, at most.
const DEPTH_MAX: usize = 3;

impl SecretKeeper {
    /// Encrypts everything anew: for a new identity if it is a file here, else for the first of those that
    /// were given.
    pub(super) fn rotate(&self, at: Timestamp) -> Result<SecretsRotated, KeepError> {
        let found = self.vault.identities(self.files.as_ref())?;
        let found = found.ok_or_else(|| self.no_identity())?;
        let (identities, made) = match &found.origin {
            IdentityOrigin::File(path) => {
                let (identities, file) = self.add_identity(path, at)?;
                (identities, Some((path.clone(), file)))
            }
            IdentityOrigin::Credential(_) | IdentityOrigin::Variable => (found.identities, None),
        };
        let mut rotated = SecretsRotated {
            recipient: identities.recipient(),
            documents: 0,
            problems: Vec::new(),
            made_identity: made.as_ref().map(|(path, _)| path.clone()),
            former_kept: made.is_none(),
        };
        for path in self.all_documents() {
            match self.encrypt_anew(&path, &identities, at) {
                Ok(()) => rotated.documents += 1,
                Err(error) => rotated.problems.push(goondan_log::error_chain(&error)),
            }
        }
        if let Some((path, new)) = made {
            // What could not be encrypted anew needs the old one.
            rotated.former_kept = !rotated.problems.is_empty();
            if !rotated.former_kept {
                files::replace(self.disk.as_ref(), &path, new.expose_secret())?;
            }
        }
        self.record(
            json!({"event": "identity.rotated", "recipient": rotated.recipient}),
            at,
        );
        Ok(rotated)
    }

    /// Puts a new identity before those in the file. Gives all of them, and what the file is to hold in the
    /// end.
    fn add_identity(
        &self,
        path: &Path,
        at: Timestamp,
    ) -> Result<(Identities, SecretSlice<u8>), KeepError> {
        let before = self.bytes_at(path)?.unwrap_or_default();
        let new = Identities::generate().file(at);
        let new = new.expose_secret().as_bytes().to_vec();
        let both = SecretSlice::from([new.as_slice(), before.as_slice()].concat());
        let identities = Identities::parse(both.expose_secret());
        let identities = identities.map_err(|source| VaultError::Identity {
            place: format!("`{}`", path.display()),
            source,
        })?;
        files::replace(self.disk.as_ref(), path, both.expose_secret())?;
        Ok((identities, SecretSlice::from(new)))
    }

    fn encrypt_anew(
        &self,
        path: &Path,
        identities: &Identities,
        at: Timestamp,
    ) -> Result<(), KeepError> {
        let bad = |source| VaultError::Document {
            path: path.to_owned(),
            source,
        };
        let Some(bytes) = self.bytes_at(path)? else {
            return Ok(());
        };
        let document = Document::open(&bytes, identities).map_err(bad)?;
        let text = document.seal(identities, at).map_err(bad)?;
        debug_assert!(text.len() <= SECRET_DOCUMENT_BYTES_MAX);
        Ok(files::replace(self.disk.as_ref(), path, text.as_bytes())?)
    }

    /// Every document that is encrypted for the identity: secrets, tokens, and what was provided for tasks.
    fn all_documents(&self) -> Vec<PathBuf> {
        let system = self.vault.system_dir();
        let mut found = self.documents_below(&self.vault.secrets_dir(), DEPTH_MAX);
        found.extend(self.documents_below(&system.join("oauth"), DEPTH_MAX));
        for workspace in self.directories_in(&self.layout.workspaces()) {
            let tasks = self.directories_in(&workspace.join("tasks"));
            let of_tasks = tasks.into_iter().map(|task| task.join(super::tasks::FILE));
            found.extend(of_tasks.filter(|path| matches!(self.disk.stat(path), Ok(Some(_)))));
        }
        found
    }

    fn directories_in(&self, dir: &Path) -> Vec<PathBuf> {
        let entries = self.disk.list(dir).unwrap_or_default().into_iter();
        let dirs = entries.filter(|entry| entry.kind == EntryKind::Directory);
        dirs.map(|entry| dir.join(entry.name)).collect()
    }

    fn documents_below(&self, dir: &Path, depth: usize) -> Vec<PathBuf> {
        let entries = self.disk.list(dir).unwrap_or_default();
        let files = entries.iter().filter(|entry| {
            let name = entry.name.to_string_lossy();
            entry.kind == EntryKind::File
                && (name.ends_with(".sops.yaml") || name.ends_with(".lock"))
        });
        let mut found: Vec<PathBuf> = files.map(|entry| dir.join(&entry.name)).collect();
        if depth > 1 {
            for inner in self.directories_in(dir) {
                found.extend(self.documents_below(&inner, depth - 1));
            }
        }
        found.sort();
        found
    }
}
