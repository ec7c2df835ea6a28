//! Secrets: names, references and lookup. The orchestrator stores the values, encrypted (`SEC-1`).

use std::fmt;
use std::path::PathBuf;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Environment variable that may contain the identity that secrets are encrypted to. Configurations
/// cannot read it, and child processes do not receive it.
pub const IDENTITY_VAR: &str = "GOONDAN_AGE_IDENTITY";

/// Environment variable by which an operator lets a debugger of the same user attach to the daemon
/// and its connectors, whose memory holds secrets.
pub const ALLOW_DEBUGGER_VAR: &str = "GOONDAN_ALLOW_DEBUGGER";

/// Prefix of a reference to a secret, as in `Secret/github`.
pub const SECRET_PREFIX: &str = "Secret/";

/// A secret value in transit. It is never displayed.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SecretValue(String);

impl SecretValue {
    /// Wraps a value; the store checks its length.
    #[must_use]
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The value itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

impl<'de> Deserialize<'de> for SecretValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The error does not quote a value of the wrong type, as serde would, because it may be the
        // secret.
        match serde_json::Value::deserialize(deserializer) {
            Ok(serde_json::Value::String(value)) => Ok(Self(value)),
            _ => Err(D::Error::custom("the value of a secret is a text")),
        }
    }
}

/// Lookup of secrets while a configuration is loaded. Passed in, so that the loader has no other
/// access.
pub trait SecretStore {
    /// The value of an entry of a secret.
    ///
    /// # Errors
    ///
    /// The reason of the failure, which never contains a value.
    fn find(&self, name: &str, key: &str) -> Result<String, SecretProblem>;
}

/// Reason why a secret has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretProblem {
    /// The name of the secret or entry is invalid; contains the reason.
    InvalidName(String),
    /// The secret does not exist.
    NoSecret {
        /// The existing secrets.
        names: Vec<String>,
    },
    /// The secret does not have this entry.
    NoKey {
        /// The existing entries.
        keys: Vec<String>,
    },
    /// No person has consented to its use in this project (`SEC-6`).
    NotAllowed {
        /// The project.
        project_root: PathBuf,
    },
    /// The secret cannot be read.
    Unreadable {
        /// The cause.
        message: String,
        /// A suggested fix.
        help: String,
    },
}

/// A store without secrets, for callers that have no real store.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSecrets;

impl SecretStore for NoSecrets {
    fn find(&self, _name: &str, _key: &str) -> Result<String, SecretProblem> {
        Err(SecretProblem::NoSecret { names: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_2_secret_value_is_never_shown_nor_quoted_in_errors() {
        let value: SecretValue = serde_json::from_str("\"hunter2\"").unwrap();
        assert_eq!(value.expose(), "hunter2");
        assert!(!format!("{value:?}").contains("hunter2"));
        for wrong in ["4711", "[4711]", "{\"a\": 4711}", "true"] {
            let error = serde_json::from_str::<SecretValue>(wrong).unwrap_err();
            assert!(!error.to_string().contains("4711"), "{error}");
        }
    }
}
