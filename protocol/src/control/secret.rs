//! `secret.*`: the secret store (`SEC-1`, `SYS-1`). No answer ever holds a value.

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
    /// What secrets are encrypted for; `None` before the first is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<SecretIdentity>,
    /// Why the identity cannot be used, or that there are more secrets than are shown, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The secrets, by name.
    pub secrets: Vec<SecretInfo>,
    /// Which workspaces may use which secret, by secret and workspace.
    #[serde(default)]
    pub consents: Vec<SecretConsent>,
}

/// What secrets are encrypted for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretIdentity {
    /// The public key: `age1…`.
    pub recipient: String,
    /// Where the private one comes from: a file, or a variable.
    pub origin: String,
}

/// One secret, without its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretInfo {
    /// Its name.
    pub name: SecretName,
    /// The keys of its entries, in their order.
    pub keys: Vec<String>,
    /// When it was last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Timestamp>,
    /// Why it cannot be used, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// `secret.set`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetSecret {
    /// The secret; made if there is none.
    pub name: SecretName,
    /// The entry.
    pub key: SecretKey,
    /// Its value, of 1 to [`crate::limits::MAX_SECRET_VALUE_BYTES`] bytes.
    pub value: SecretValue,
    /// A Project Root whose workspace may use the secret from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_for: Option<PathBuf>,
}

/// `secret.remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveSecret {
    /// The secret.
    pub name: SecretName,
    /// Only this entry; with the last one the secret goes, too.
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
    /// What became of it.
    pub change: ChangeKind,
    /// The workspace that may use it from now on, if the request allowed it to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<SecretConsent>,
    /// The identity that was made for the first secret, which is to be backed up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_identity: Option<PathBuf>,
    /// What came of reading the configurations again that name the secret, by workspace.
    pub workspaces: Vec<WorkspaceReload>,
}

/// A person's word that a workspace may use a secret (`SEC-6`). It holds for that secret's every entry,
/// and for the workspace in that directory with that package; under another name or elsewhere it is
/// another workspace.
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
    /// When it was allowed.
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
    /// What everything is encrypted for from now on: `age1…`.
    pub recipient: String,
    /// How many documents were encrypted anew.
    pub documents: usize,
    /// Those that were not, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// The file of the identity that was made, which is to be backed up; `None` if identities are given
    /// from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_identity: Option<PathBuf>,
    /// Whether a former identity is still needed, or still there.
    pub former_kept: bool,
}

/// `secret.allow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowSecret {
    /// The secret, which must be there.
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
    /// The Project Root whose workspaces may no longer use it. It need not be there any more. Without
    /// it and `workspaceId` no workspace may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_root: Option<PathBuf>,
    /// The workspace that may no longer use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
}

/// Result of `secret.allow` and `secret.deny`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretConsentChanged {
    /// The secret.
    pub name: SecretName,
    /// The consents that are new, or gone; none if it was so already.
    pub changed: Vec<SecretConsent>,
    /// What came of reading those workspaces' configurations again that run.
    pub workspaces: Vec<WorkspaceReload>,
}
