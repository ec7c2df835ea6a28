//! `secret.*`: the secret store (`SEC-1`, `SYS-1`). Responses never contain a value.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::workspace::{ChangeKind, WorkspaceReload};
use crate::ids::{SecretKey, SecretName, WorkspaceId};
use crate::secret::SecretValue;
use crate::time::Timestamp;

/// `secret.list`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListSecrets {}

/// Result of `secret.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretList {
    /// The identity that secrets are encrypted to; `None` before the first secret is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<SecretIdentity>,
    /// Reason why the identity is unusable, or a note that the list is truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The secrets, sorted by name.
    pub secrets: Vec<SecretInfo>,
    /// Consents for workspaces to use secrets, sorted by secret and workspace.
    #[serde(default)]
    pub consents: Vec<SecretConsent>,
}

/// Identity that secrets are encrypted to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretIdentity {
    /// The public key: `age1…`.
    pub recipient: String,
    /// Source of the private key: a file or an environment variable.
    pub origin: String,
}

/// One secret, without its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretInfo {
    /// Its name.
    pub name: SecretName,
    /// The keys of its entries, in order.
    pub keys: Vec<String>,
    /// Time of its last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Timestamp>,
    /// Reason why it is unusable, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// `secret.set`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetSecret {
    /// The secret; created if it does not exist.
    pub name: SecretName,
    /// The entry.
    pub key: SecretKey,
    /// Its value, of 1 to [`crate::limits::MAX_SECRET_VALUE_BYTES`] bytes.
    pub value: SecretValue,
    /// A Project Root whose workspace gets consent to use the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_for: Option<PathBuf>,
}

/// `secret.remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveSecret {
    /// The secret.
    pub name: SecretName,
    /// The entry to remove. Removing the last entry removes the secret. If absent, the whole secret
    /// is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<SecretKey>,
}

/// Result of `secret.set` and `secret.remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretChanged {
    /// The secret.
    pub name: SecretName,
    /// The entry; `None` if the whole secret was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<SecretKey>,
    /// The kind of change.
    pub change: ChangeKind,
    /// The new consent, if the request granted one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<SecretConsent>,
    /// Path of the identity created for the first secret, which must be backed up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_identity: Option<PathBuf>,
    /// Results of reloading the workspaces that use the secret.
    pub workspaces: Vec<WorkspaceReload>,
}

/// A person's consent that a workspace may use a secret (`SEC-6`). It applies to all entries of the
/// secret, and to the workspace of that directory and package. A renamed or moved workspace is a
/// different workspace and needs new consent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretConsent {
    /// The secret.
    pub secret: SecretName,
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Its Project Root.
    pub project_root: PathBuf,
    /// Its package, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// Time of the consent.
    pub allowed_at: Timestamp,
}

/// `secret.rotate`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotateSecrets {}

/// Result of `secret.rotate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretsRotated {
    /// The new public key that everything is encrypted to: `age1…`.
    pub recipient: String,
    /// Number of re-encrypted documents.
    pub documents: usize,
    /// Problems with documents that were not re-encrypted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Path of the new identity file, which must be backed up; `None` if identities are provided
    /// externally.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_identity: Option<PathBuf>,
    /// True if a former identity is still needed or still exists.
    pub former_kept: bool,
}

/// `secret.allow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowSecret {
    /// The secret, which must exist.
    pub name: SecretName,
    /// The Project Root of the workspace that may use it.
    pub project_root: PathBuf,
}

/// `secret.deny`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DenySecret {
    /// The secret.
    pub name: SecretName,
    /// The Project Root whose workspaces lose the consent. It need not exist any longer. Without it
    /// and `workspaceId`, all workspaces lose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_root: Option<PathBuf>,
    /// The workspace that loses the consent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
}

/// Result of `secret.allow` and `secret.deny`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretConsentChanged {
    /// The secret.
    pub name: SecretName,
    /// Consents that were added or removed; empty if nothing changed.
    pub changed: Vec<SecretConsent>,
    /// Results of reloading the affected workspaces that run.
    pub workspaces: Vec<WorkspaceReload>,
}
