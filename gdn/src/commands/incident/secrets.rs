//! The secret values that an incident must not contain.
//!
//! They are those that the daemon masks in its log: values that the configuration took from secrets
//! and the environment, tokens of authorization servers, and values that people gave to tasks; and
//! all other entries of the secret store.

use std::fs;
use std::path::{Path, PathBuf};

use goondan_config::Secrets;
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::oauth::SECRET_FIELDS;
use goondan_vault::limits::SECRET_DOCUMENT_BYTES_MAX;
use goondan_vault::{Document, Identities, RealFiles, Vault, VaultError, VaultFiles as _};
use secrecy::ExposeSecret as _;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Ends of the names of encrypted documents.
const DOCUMENT_SUFFIXES: [&str; 2] = [".sops.yaml", ".lock"];
/// Directory of tokens below the store.
const OAUTH_DIR: &str = "oauth";
/// Levels of directories below it.
const OAUTH_DEPTH: usize = 3;
/// File of a task's values, in its work area.
const TASK_SECRETS: &str = ".metadata/secrets.yaml";

/// A value, and the words for it. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SecretText {
    /// Describes it without its value, such as ``secret `github` entry `token` ``.
    pub(super) what: String,
    pub(super) value: String,
}

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretText({})", self.what)
    }
}

/// The values of a loaded configuration.
pub(super) fn of_configuration(secrets: &Secrets) -> Vec<SecretText> {
    let values = secrets.values().map(|value| SecretText {
        what: "a value that the configuration takes from a secret or the environment".to_owned(),
        value: value.to_owned(),
    });
    values.collect()
}

/// All stored values.
///
/// # Errors
///
/// A value cannot be read, so it is unknown whether an incident contains it.
pub(super) fn stored(
    context: &Context,
    workspace: &WorkspaceId,
) -> Result<Vec<SecretText>, Failure> {
    let vault = context.vault();
    let store = SecretDocuments {
        vault: &vault,
        tasks: task_files(&context.state_root, workspace),
    };
    store.read().map_err(|error| {
        let help = error.help();
        let message = "cannot read all secrets, so an incident cannot be checked for them";
        Failure::new(Exit::Damaged, message, help).caused_by(Some(&error))
    })
}

struct SecretDocuments<'v> {
    vault: &'v Vault,
    tasks: Vec<PathBuf>,
}

impl SecretDocuments<'_> {
    fn read(&self) -> Result<Vec<SecretText>, VaultError> {
        let names = self.vault.names(&RealFiles)?;
        let mut tokens = Vec::new();
        find_documents(
            &self.vault.system_dir().join(OAUTH_DIR),
            OAUTH_DEPTH,
            &mut tokens,
        );
        if names.is_empty() && tokens.is_empty() && self.tasks.is_empty() {
            return Ok(Vec::new());
        }
        let identities = self.vault.identities(&RealFiles)?;
        let identities = identities.ok_or_else(|| VaultError::NoIdentity {
            path: self.vault.identity_file(),
        })?;
        let identities = identities.identities;
        let mut found = Vec::new();
        for name in names {
            let Some(document) = self.vault.open(&RealFiles, &name, &identities)? else {
                continue;
            };
            let path = self.vault.document_file(&name);
            let what = |key: &str| Some(format!("secret `{name}` entry `{key}`"));
            found.extend(values(&document, &path, what)?);
        }
        for path in tokens {
            let what = |key: &str| {
                let is_secret = SECRET_FIELDS.contains(&key);
                is_secret.then(|| format!("`{key}` of an authorization server"))
            };
            found.extend(values_at(&path, &identities, what)?);
        }
        for path in &self.tasks {
            let what = |key: &str| Some(format!("the value `{key}` of a task"));
            found.extend(values_at(path, &identities, what)?);
        }
        Ok(found)
    }
}

fn values_at(
    path: &Path,
    identities: &Identities,
    what: impl Fn(&str) -> Option<String>,
) -> Result<Vec<SecretText>, VaultError> {
    let bytes = RealFiles.read(path, SECRET_DOCUMENT_BYTES_MAX);
    let bytes = bytes.map_err(|source| VaultError::Io {
        path: path.to_owned(),
        source,
    })?;
    // A login or a task can end meanwhile.
    let Some(bytes) = bytes else {
        return Ok(Vec::new());
    };
    let document = Document::open(&bytes, identities);
    let document = document.map_err(|source| VaultError::Document {
        path: path.to_owned(),
        source,
    })?;
    values(&document, path, what)
}

fn values(
    document: &Document,
    path: &Path,
    what: impl Fn(&str) -> Option<String>,
) -> Result<Vec<SecretText>, VaultError> {
    let mut found = Vec::new();
    for key in document.keys() {
        let Some(what) = what(key) else {
            continue;
        };
        let value = document.get(key).map_err(|source| VaultError::Document {
            path: path.to_owned(),
            source,
        })?;
        if let Some(value) = value {
            let value = value.expose_secret().to_owned();
            found.push(SecretText { what, value });
        }
    }
    Ok(found)
}

/// Finds encrypted documents; a directory that cannot be read has none.
fn find_documents(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir && depth > 1 {
            find_documents(&path, depth - 1, found);
            continue;
        }
        let name = path.to_string_lossy();
        if DOCUMENT_SUFFIXES.iter().any(|end| name.ends_with(end)) {
            found.push(path.clone());
        }
    }
}

/// The files with values of the workspace's tasks.
fn task_files(state_root: &Path, workspace: &WorkspaceId) -> Vec<PathBuf> {
    let tasks = state_root
        .join("workspaces")
        .join(workspace.as_str())
        .join("tasks");
    let Ok(entries) = fs::read_dir(tasks) else {
        return Vec::new();
    };
    let files = entries
        .flatten()
        .map(|entry| entry.path().join(TASK_SECRETS));
    files.filter(|path| path.is_file()).collect()
}
