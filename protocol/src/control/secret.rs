//! `secret.*`: the secret store (`SEC-1`, `SYS-1`). No answer ever holds a value.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::workspace::{ChangeKind, WorkspaceReload};
use crate::ids::{SecretKey, SecretName};
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
    /// The identity that was made for the first secret, which is to be backed up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_identity: Option<PathBuf>,
    /// What came of reading the configurations again that name the secret, by workspace.
    pub workspaces: Vec<WorkspaceReload>,
}
