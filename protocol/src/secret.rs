//! Secrets by their names: what they are called, and how a configuration asks for one. The values
//! themselves are kept by the orchestrator, encrypted (`SEC-1`).

use std::fmt;
use std::path::PathBuf;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// The environment variable that may hold the identity secrets are encrypted for. No configuration can
/// read it, and no child process gets it.
pub const IDENTITY_VAR: &str = "GOONDAN_AGE_IDENTITY";

/// The environment variable with which whoever starts the daemon lets a debugger of the same user look into
/// it and its connectors, with the secrets in their memory.
pub const ALLOW_DEBUGGER_VAR: &str = "GOONDAN_ALLOW_DEBUGGER";

/// What stands before a secret's name where one is referred to: `Secret/github`.
pub const SECRET_PREFIX: &str = "Secret/";

/// A secret value on its way to where it is kept. Shown nowhere.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SecretValue(String);

impl SecretValue {
    /// Takes a value; its length is checked by whoever keeps it.
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
        // What is no text is not quoted in the error, as serde would: it may be the secret.
        match serde_json::Value::deserialize(deserializer) {
            Ok(serde_json::Value::String(value)) => Ok(Self(value)),
            _ => Err(D::Error::custom("the value of a secret is a text")),
        }
    }
}

/// Where secrets are looked up when a configuration is loaded. Handed in, so that loading does no more
/// than it is given.
pub trait SecretStore {
    /// The value of one entry of one secret.
    ///
    /// # Errors
    ///
    /// Why there is none, without any value in it.
    fn find(&self, name: &str, key: &str) -> Result<String, SecretProblem>;
}

/// Why a secret has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretProblem {
    /// No secret could ever have that name, or that entry; says why.
    InvalidName(String),
    /// There is no such secret.
    NoSecret {
        /// Those there are.
        names: Vec<String>,
    },
    /// The secret has no such entry.
    NoKey {
        /// Those it has.
        keys: Vec<String>,
    },
    /// No person has allowed this project to use it (`SEC-6`).
    NotAllowed {
        /// The project.
        project_root: PathBuf,
    },
    /// The secret cannot be read.
    Unreadable {
        /// What is wrong.
        message: String,
        /// What to do about it.
        help: String,
    },
}

/// A store without secrets, for what is loaded where none is at hand.
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
    fn sec_2_a_value_is_shown_nowhere_and_what_is_none_is_not_quoted() {
        let value: SecretValue = serde_json::from_str("\"hunter2\"").unwrap();
        assert_eq!(value.expose(), "hunter2");
        assert!(!format!("{value:?}").contains("hunter2"));
        for wrong in ["4711", "[4711]", "{\"a\": 4711}", "true"] {
            let error = serde_json::from_str::<SecretValue>(wrong).unwrap_err();
            assert!(!error.to_string().contains("4711"), "{error}");
        }
    }
}
