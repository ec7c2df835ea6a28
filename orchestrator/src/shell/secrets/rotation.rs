//! Re-encrypts everything for another identity (`SYS-3`).
//!
//! Meanwhile the identity file has both: first the new one, for which everything is encrypted from
//! then on, then the old one, which opens documents that are not re-encrypted yet. The old one is
//! removed after each document was read back and opened with only the new one, and each directory
//! could be listed. A crash in between leaves everything readable, and a repetition finishes the
//! rotation.

use std::path::{Path, PathBuf};

use goondan_durable::disk::{DiskEntry, EntryKind};
use goondan_durable::register::Register;
use goondan_durable::{IoContext as _, files};
use goondan_protocol::control::SecretsRotated;
use goondan_protocol::time::Timestamp;
use goondan_store::root::TASKS_GROUP;
use goondan_vault::limits::SECRET_DOCUMENT_BYTES_MAX;
use goondan_vault::{Document, Identities, IdentityOrigin, VaultError};
use secrecy::{ExposeSecret as _, SecretSlice};
use serde_json::json;

use super::{KeepError, SecretKeeper, is_document};

/// Maximum depth of directories with documents.
const DEPTH_MAX: usize = 3;

/// Documents that are encrypted for the identity.
#[derive(Debug, Default)]
pub(super) struct EncryptedDocuments {
    pub(super) documents: Vec<PathBuf>,
    /// Locations that may have unreadable documents, as text.
    pub(super) problems: Vec<String>,
}

impl EncryptedDocuments {
    /// Entries of a directory; empty if it does not exist.
    fn entries(&mut self, keeper: &SecretKeeper, dir: &Path) -> Vec<DiskEntry> {
        keeper.entries(dir).unwrap_or_else(|error| {
            self.problems.push(goondan_log::error_chain(&error));
            Vec::new()
        })
    }

    fn directories(&mut self, keeper: &SecretKeeper, dir: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in self.entries(keeper, dir) {
            let path = dir.join(entry.name);
            match entry.kind {
                EntryKind::Directory => found.push(path),
                EntryKind::File => {}
                EntryKind::Other => self.refuse(&path),
            }
        }
        found
    }

    /// The target of a link is not written.
    fn refuse(&mut self, path: &Path) {
        let path = path.display();
        let text = format!("`{path}` is not a file or directory and is skipped");
        self.problems.push(text);
    }

    /// Adds the documents in a directory and below it.
    pub(super) fn look_below(&mut self, keeper: &SecretKeeper, dir: &Path) {
        self.below(keeper, dir, DEPTH_MAX);
    }

    fn below(&mut self, keeper: &SecretKeeper, dir: &Path, depth: usize) {
        let mut directories = Vec::new();
        for entry in self.entries(keeper, dir) {
            let path = dir.join(&entry.name);
            let is_document = is_document(&entry.name);
            match entry.kind {
                EntryKind::Directory => directories.push(path),
                EntryKind::File if is_document => self.documents.push(path),
                EntryKind::Other if is_document => self.refuse(&path),
                EntryKind::File | EntryKind::Other => {}
            }
        }
        if depth > 1 {
            for inner in directories {
                self.below(keeper, &inner, depth - 1);
            }
        }
    }

    /// Adds the secrets that were provided for a task, if there are any.
    fn of_task(&mut self, keeper: &SecretKeeper, task: &Path) {
        let path = task.join(super::tasks::FILE);
        match keeper.disk.stat(&path).during("inspect", &path) {
            Ok(None) => {}
            Ok(Some(stat)) if stat.kind == EntryKind::File => self.documents.push(path),
            Ok(Some(_)) => self.refuse(&path),
            Err(error) => self.problems.push(goondan_log::error_chain(&error)),
        }
    }
}

impl SecretKeeper {
    /// Re-encrypts everything: for a new identity if the identity is a file here, otherwise for the
    /// first given one.
    pub(super) fn rotate(&self, at: Timestamp) -> Result<SecretsRotated, KeepError> {
        let found = self.vault.identities(self.files.as_ref())?;
        let found = found.ok_or_else(|| self.why_no_identity())?;
        let (identities, made) = match &found.origin {
            IdentityOrigin::File(path) => {
                let (identities, file) = self.add_identity(path, at)?;
                (identities, Some((path.clone(), file)))
            }
            IdentityOrigin::Credential(_) | IdentityOrigin::Variable => (found.identities, None),
        };
        let EncryptedDocuments {
            documents,
            problems,
        } = self.all_documents();
        let mut rotated = SecretsRotated {
            recipient: identities.recipient(),
            documents: 0,
            problems,
            made_identity: made.as_ref().map(|(path, _)| path.clone()),
            former_kept: made.is_none(),
        };
        for path in documents {
            match self.encrypt_anew(&path, &identities, at) {
                Ok(true) => rotated.documents += 1,
                Ok(false) => {}
                Err(error) => rotated.problems.push(goondan_log::error_chain(&error)),
            }
        }
        if let Some((path, new)) = made {
            // Documents that could not be re-encrypted need the old identity.
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

    /// No identity was created yet, or it is lost.
    fn why_no_identity(&self) -> KeepError {
        let EncryptedDocuments {
            documents,
            problems,
        } = self.all_documents();
        if documents.is_empty() && problems.is_empty() {
            KeepError::NothingToRotate
        } else {
            self.no_identity().into()
        }
    }

    /// Adds a new identity before those in the file. Returns all of them, and the final content of
    /// the file.
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

    /// Re-encrypts a document, and opens the result on disk with only the new identity. False if
    /// the document was removed meanwhile.
    fn encrypt_anew(
        &self,
        path: &Path,
        identities: &Identities,
        at: Timestamp,
    ) -> Result<bool, KeepError> {
        let bad = |source| VaultError::Document {
            path: path.to_owned(),
            source,
        };
        let Some(bytes) = self.bytes_at(path)? else {
            return Ok(false);
        };
        let document = Document::open(&bytes, identities).map_err(bad)?;
        let text = document.seal(identities, at).map_err(bad)?;
        debug_assert!(text.len() <= SECRET_DOCUMENT_BYTES_MAX);
        self.replace_document(path, text.as_bytes(), identities)?;
        let written = self.bytes_at(path)?.unwrap_or_default();
        Document::open(&written, &identities.current()).map_err(bad)?;
        Ok(true)
    }

    /// Replaces a document. A task's secrets are also recorded outside of its work area.
    fn replace_document(
        &self,
        path: &Path,
        content: &[u8],
        identities: &Identities,
    ) -> Result<(), KeepError> {
        if path.starts_with(self.vault.system_dir()) {
            return self.replace_in_system(path, content, identities);
        }
        let disk = self.disk.as_ref();
        let task = path
            .ancestors()
            .nth(2)
            .filter(|_| path.ends_with(super::tasks::FILE));
        let register = task.map(|task| self.register_of_task(task).here());
        match register {
            Some(register) if register.exists()? => {
                register.replace(super::tasks::FILE, content)?;
            }
            Some(_) | None => files::replace(disk, path, content)?,
        }
        Ok(())
    }

    /// The register of a task, which is in its workspace wherever the work area is.
    fn register_of_task(&self, task: &Path) -> Register<'_> {
        let disk = self.disk.as_ref();
        let tasks = task.parent().unwrap_or(Path::new("/"));
        let is_moved = self
            .layout
            .tasks_root()
            .is_some_and(|tasks_root| tasks.parent() == Some(tasks_root));
        match tasks.file_name().filter(|_| is_moved) {
            Some(workspace) => {
                let workspace = self.layout.workspaces().join(workspace);
                Register::in_group(disk, &workspace, Path::new(TASKS_GROUP), task)
            }
            None => Register::of(disk, task),
        }
    }

    /// All documents that are encrypted for the identity: secrets, tokens, and values that people
    /// provided for tasks.
    pub(super) fn all_documents(&self) -> EncryptedDocuments {
        let mut found = self.documents_in_system();
        let workspaces = found.directories(self, &self.layout.workspaces());
        let usual = workspaces.into_iter().map(|dir| dir.join("tasks"));
        let mut tasks: Vec<PathBuf> = usual.collect();
        if let Some(tasks_root) = self.layout.tasks_root() {
            tasks.extend(found.directories(self, tasks_root));
        }
        for dir in tasks {
            for task in found.directories(self, &dir) {
                found.of_task(self, &task);
            }
        }
        found.documents.sort();
        found
    }
}

#[cfg(test)]
#[path = "rotation_tests.rs"]
mod tests;
