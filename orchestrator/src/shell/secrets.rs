//! Stores secrets: the writing half of the store that `goondan_vault` reads (`SEC-1`, `SYS-1`).
//!
//! A secret's file is replaced atomically, and so is the identity when it is created; a crash at
//! any moment leaves either the old or the new content. The identity is created with the first
//! secret, and never again: if secrets exist without an identity, it was lost or is provided in
//! another way, and a new one could not open them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use goondan_durable::disk::{Disk, DiskEntry};
use goondan_durable::{FileError, IoContext as _, files};
use goondan_protocol::JsonObject;
use goondan_protocol::control::{
    AllowSecret, ChangeKind, ControlError, ErrorCode, RemoveSecret, SecretChanged, SecretIdentity,
    SecretInfo, SecretList, SetSecret,
};
use goondan_protocol::ids::{SecretKey, SecretName};
use goondan_protocol::limits::{MAX_SECRET_KEYS, MAX_SECRETS};
use goondan_protocol::time::Timestamp;
use goondan_store::root::Layout;
use goondan_store::workspace;
use goondan_vault::{
    ConsentError, Document, DocumentError, Identities, Vault, VaultError, VaultFiles,
};
use serde_json::json;

mod consents;
mod document_registry;
mod oauth;
mod permissions;
mod rotation;
mod tasks;
mod verification;

use super::masking::Masks;
use goondan_core::{SecretWork, SecretsResult, control_error};
pub(super) use tasks::FILE as TASK_SECRETS;

/// The secret store, with one writer at a time.
pub(super) struct SecretKeeper {
    vault: Arc<Vault>,
    files: Box<dyn VaultFiles>,
    disk: Arc<dyn Disk>,
    layout: Layout,
    masks: Arc<Masks>,
    turn: Mutex<()>,
}

/// Errors of reading or changing the store.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Store(#[from] FileError),
    #[error("failed to open the project `{}`", path.display())]
    Project {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the workspace of `{}` has no id: {why}", path.display())]
    Unnamed { path: PathBuf, why: String },
    #[error("the permission is invalid: {0}")]
    InvalidPermission(String),
    #[error("no identity exists yet, and nothing is encrypted")]
    NothingToRotate,
    #[error("`{0}` is not a valid secret name")]
    NoKey(String),
    #[error("secret `{name}`{} does not exist", key_text(key.as_ref()))]
    NotFound {
        name: SecretName,
        key: Option<SecretKey>,
    },
}

fn key_text(key: Option<&SecretKey>) -> String {
    key.map_or_else(String::new, |key| format!(" with an entry `{key}`"))
}

/// True if a file of this name below `system/` is a document that is encrypted for the identity.
fn is_document(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.ends_with(b".sops.yaml") || name.ends_with(b".lock")
}

impl From<KeepError> for ControlError {
    fn from(error: KeepError) -> Self {
        let text = goondan_log::error_chain(&error);
        match error {
            KeepError::Store(error) => control_error(&error.into()),
            KeepError::NotFound { .. } => {
                Self::new(ErrorCode::SecretNotFound, text).suggest("list all: `gdn secret list`")
            }
            KeepError::NothingToRotate => Self::new(ErrorCode::SecretNotFound, text)
                .suggest("`gdn secret set` creates an identity with the first secret"),
            KeepError::InvalidPermission(_) => Self::new(ErrorCode::InvalidRequest, text)
                .suggest("let `gdn workspace permission allow` find out what it covers"),
            KeepError::NoKey(_) => Self::new(ErrorCode::InvalidRequest, text),
            KeepError::Project { .. } => Self::new(ErrorCode::InvalidRequest, text)
                .suggest("pass an existing project, or create one with `gdn init`"),
            KeepError::Unnamed { .. } => Self::new(ErrorCode::InvalidRequest, text)
                .suggest("shorten the name of the project's package"),
            KeepError::Vault(error) => {
                let code = match error {
                    VaultError::Io { .. } => ErrorCode::Storage,
                    VaultError::TooMany
                    | VaultError::Consents {
                        source: ConsentError::TooMany,
                        ..
                    }
                    | VaultError::Permissions {
                        source: ConsentError::TooMany,
                        ..
                    }
                    | VaultError::Document {
                        source:
                            DocumentError::Foreign(_)
                            | DocumentError::ReservedKey { .. }
                            | DocumentError::ValueLength(_)
                            | DocumentError::TooManyKeys
                            | DocumentError::TooLarge,
                        ..
                    } => ErrorCode::InvalidRequest,
                    _ => ErrorCode::SecretUnreadable,
                };
                Self::new(code, text).suggest(error.help())
            }
        }
    }
}

impl SecretKeeper {
    pub(super) fn new(
        vault: Arc<Vault>,
        files: Box<dyn VaultFiles>,
        disk: Arc<dyn Disk>,
        layout: Layout,
        masks: Arc<Masks>,
    ) -> Self {
        Self {
            vault,
            files,
            disk,
            layout,
            masks,
            turn: Mutex::default(),
        }
    }

    /// Executes an operation of the core. Blocks.
    pub(super) fn carry_out(
        &self,
        work: SecretWork,
        at: Timestamp,
    ) -> Result<SecretsResult, ControlError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let done = match work {
            SecretWork::List => Ok(SecretsResult::Listed(self.list()?)),
            SecretWork::Set(set) => {
                self.masks.add_value(set.value.expose());
                self.set(set, at).map(SecretsResult::Changed)
            }
            SecretWork::Remove(remove) => self.remove(remove, at).map(SecretsResult::Changed),
            SecretWork::Allow(allow) => {
                let AllowSecret { name, project_root } = allow;
                self.allow(name, &project_root, at)
                    .map(SecretsResult::Allowed)
            }
            SecretWork::Deny(deny) => self.deny(deny, at).map(SecretsResult::Denied),
            SecretWork::ListPermissions => Ok(SecretsResult::Permissions(self.permissions())),
            SecretWork::Decide(decide) => self.decide(decide, at).map(SecretsResult::Decided),
            SecretWork::Rotate => self.rotate(at).map(SecretsResult::Rotated),
            SecretWork::Verify { repair } => {
                Ok(SecretsResult::Verified(Box::new(self.verify(repair)?)))
            }
        };
        Ok(done?)
    }

    fn list(&self) -> Result<SecretList, KeepError> {
        let files = self.files.as_ref();
        let (identity, problem) = match self.vault.identities(files) {
            Ok(found) => (found, None),
            Err(error) => (None, Some(goondan_log::error_chain(&error))),
        };
        let names = self.vault.names(files)?;
        let identities = identity.as_ref().map(|found| &found.identities);
        let too_many = (names.len() > MAX_SECRETS).then(|| {
            let count = names.len();
            format!("{count} secrets; only the first {MAX_SECRETS} are shown")
        });
        let secrets = names.into_iter().take(MAX_SECRETS);
        let is_identity_bad = problem.is_some();
        let secrets = secrets.filter_map(|name| self.info(name, identities, is_identity_bad));
        let (consents, unreadable) = match self.vault.consents(files) {
            Ok(consents) => (consents.all().to_vec(), None),
            Err(error) => (Vec::new(), Some(goondan_log::error_chain(&error))),
        };
        Ok(SecretList {
            problem: problem.or(unreadable).or(too_many),
            secrets: secrets.collect(),
            consents,
            identity: identity.map(|found| SecretIdentity {
                recipient: found.identities.recipient(),
                origin: found.origin.to_string().replace('`', ""),
            }),
        })
    }

    /// Public facts about a secret; `None` if it was removed meanwhile.
    fn info(
        &self,
        name: SecretName,
        identities: Option<&Identities>,
        is_identity_bad: bool,
    ) -> Option<SecretInfo> {
        let files = self.files.as_ref();
        let outline = match self.vault.outline(files, &name) {
            Ok(outline) => outline?,
            Err(error) => {
                return Some(SecretInfo {
                    name,
                    keys: Vec::new(),
                    changed_at: None,
                    problem: Some(goondan_log::error_chain(&error)),
                });
            }
        };
        let opened = match identities {
            Some(identities) => self.vault.open(files, &name, identities).map(drop),
            None => Err(self.no_identity()),
        };
        let mut keys = outline.keys;
        let problem = match opened {
            Err(VaultError::NoIdentity { .. }) if is_identity_bad => {
                Some("its identity is not usable".to_owned())
            }
            Err(error) => Some(goondan_log::error_chain(&error)),
            Ok(()) if keys.len() > MAX_SECRET_KEYS => Some(format!(
                "it has {} entries; only the first {MAX_SECRET_KEYS} are shown",
                keys.len()
            )),
            Ok(()) => None,
        };
        keys.truncate(MAX_SECRET_KEYS);
        Some(SecretInfo {
            name,
            keys,
            changed_at: outline.changed_at,
            problem,
        })
    }

    fn set(&self, set: SetSecret, at: Timestamp) -> Result<SecretChanged, KeepError> {
        let SetSecret {
            name,
            key,
            value,
            allow_for,
        } = set;
        // Refuse an unsuitable project before any change.
        let workspace = allow_for
            .map(|root| consents::identify(&root))
            .transpose()?;
        let (identities, made_identity) = self.identities_to_write_with(at)?;
        let files = self.files.as_ref();
        let mut document = match self.vault.open(files, &name, &identities)? {
            Some(document) => document,
            None if self.vault.names(files)?.len() >= MAX_SECRETS => {
                return Err(VaultError::TooMany.into());
            }
            None => Document::new(),
        };
        let was_there = document
            .set(&key, value.expose())
            .map_err(|source| self.refused(&name, source))?;
        self.write(&name, &document, &identities, at)?;
        let change = if was_there {
            ChangeKind::Changed
        } else {
            ChangeKind::Added
        };
        self.audit("secret.set", &name, Some(&key), at);
        let allowed = workspace.map(|workspace| self.add_consent(&name, workspace, at));
        Ok(SecretChanged {
            allowed: allowed.transpose()?.map(|(consent, _)| consent),
            name,
            key: Some(key),
            change,
            made_identity,
            workspaces: Vec::new(),
        })
    }

    fn remove(&self, remove: RemoveSecret, at: Timestamp) -> Result<SecretChanged, KeepError> {
        let RemoveSecret { name, key } = remove;
        let path = self.vault.document_file(&name);
        let not_found = || KeepError::NotFound {
            name: name.clone(),
            key: key.clone(),
        };
        match &key {
            // An unreadable secret can be removed, too.
            None => {
                let found = self.disk.stat(&path).during("inspect", &path)?;
                found.ok_or_else(not_found)?;
                self.delete_in_system(&path)?;
            }
            Some(key) => {
                let files = self.files.as_ref();
                if self.vault.outline(files, &name)?.is_none() {
                    return Err(not_found());
                }
                let found = self.vault.identities(files)?;
                let found = found.ok_or_else(|| self.no_identity())?;
                let document = self.vault.open(files, &name, &found.identities)?;
                let mut document = document.ok_or_else(not_found)?;
                let was_there = document
                    .remove(key)
                    .map_err(|source| self.refused(&name, source))?;
                if !was_there {
                    return Err(not_found());
                }
                if document.is_empty() {
                    self.delete_in_system(&path)?;
                } else {
                    self.write(&name, &document, &found.identities, at)?;
                }
            }
        }
        self.audit("secret.removed", &name, key.as_ref(), at);
        Ok(SecretChanged {
            allowed: None,
            name,
            key,
            change: ChangeKind::Removed,
            made_identity: None,
            workspaces: Vec::new(),
        })
    }

    fn no_identity(&self) -> VaultError {
        VaultError::NoIdentity {
            path: self.vault.identity_file(),
        }
    }

    fn refused(&self, name: &SecretName, source: DocumentError) -> VaultError {
        let path = self.vault.document_file(name);
        VaultError::Document { path, source }
    }

    /// The stored identities; creates one if there is none, and returns its location.
    fn identities_to_write_with(
        &self,
        at: Timestamp,
    ) -> Result<(Identities, Option<PathBuf>), KeepError> {
        use secrecy::ExposeSecret as _;
        let files = self.files.as_ref();
        if let Some(found) = self.vault.identities(files)? {
            return Ok((found.identities, None));
        }
        let is_needed = !self.vault.names(files)?.is_empty()
            || self.has_oauth_documents()?
            || !self.all_documents().documents.is_empty();
        if is_needed {
            return Err(self.no_identity().into());
        }
        let made = Identities::generate();
        let path = self.vault.identity_file();
        let disk = self.disk.as_ref();
        files::ensure_dir(disk, self.layout.root(), self.vault.system_dir())?;
        let file = made.file(at);
        files::replace(disk, &path, file.expose_secret().as_bytes())?;
        self.record(
            json!({"event": "identity.created", "recipient": made.recipient()}),
            at,
        );
        Ok((made, Some(path)))
    }

    fn write(
        &self,
        name: &SecretName,
        document: &Document,
        identities: &Identities,
        at: Timestamp,
    ) -> Result<(), KeepError> {
        let text = document
            .seal(identities, at)
            .map_err(|source| self.refused(name, source))?;
        let disk = self.disk.as_ref();
        files::ensure_dir(disk, self.layout.root(), &self.vault.secrets_dir())?;
        let path = self.vault.document_file(name);
        self.replace_in_system(&path, text.as_bytes(), identities)
    }

    /// Entries of a directory; empty if it does not exist.
    fn entries(&self, dir: &Path) -> Result<Vec<DiskEntry>, KeepError> {
        if self.disk.stat(dir).during("inspect", dir)?.is_none() {
            return Ok(Vec::new());
        }
        Ok(self.disk.list(dir).during("list", dir)?)
    }

    /// Writes an audit record that names the secret, but never its value (`SEC-5`).
    fn audit(&self, event: &str, name: &SecretName, key: Option<&SecretKey>, at: Timestamp) {
        self.record(json!({"event": event, "secret": name, "key": key}), at);
    }

    fn record(&self, fields: serde_json::Value, at: Timestamp) {
        let mut record = JsonObject::from_iter([("at".to_owned(), json!(at))]);
        if let serde_json::Value::Object(fields) = fields {
            record.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
        }
        let disk = self.disk.as_ref();
        let written = workspace::append_system_audit(disk, &self.layout, &record);
        if let Err(error) = written {
            // The change is durable, and a failed audit record does not roll it back.
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "failed to write the audit log"
            );
        }
    }
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
