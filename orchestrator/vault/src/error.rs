//! Errors of the secret store. No error contains a secret value.

use std::io;
use std::path::PathBuf;

use goondan_protocol::limits::{MAX_SECRET_KEYS, MAX_SECRET_VALUE_BYTES, MAX_SECRETS};

use crate::limits::{CONSENTS_MAX, IDENTITIES_MAX, SECRET_DOCUMENT_BYTES_MAX};

/// Why a text holds no identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// It is not text, or longer than is read.
    #[error("it is no text of a readable length")]
    NotText,
    /// A line is neither empty, nor a comment, nor an identity.
    #[error("line {line} is no age identity (`AGE-SECRET-KEY-1…`)")]
    NotAnIdentity {
        /// Counted from 1.
        line: usize,
    },
    /// The file has no identity.
    #[error("it holds no age identity (`AGE-SECRET-KEY-1…`)")]
    Empty,
    /// There are more than are tried.
    #[error("it holds more than {IDENTITIES_MAX} identities")]
    TooMany,
}

/// Why a document cannot be opened, or not be changed as was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// It is larger than is read or written.
    #[error("it is larger than {SECRET_DOCUMENT_BYTES_MAX} bytes")]
    TooLarge,
    /// The text is not a YAML mapping of the expected form.
    #[error("it is no SOPS document: {0}")]
    NotSops(String),
    /// It uses what is not understood here.
    #[error("it uses {0}, which is not supported")]
    Unsupported(&'static str),
    /// No identity there is opens it.
    #[error("it is encrypted for {recipients}, and the identity here is another")]
    OtherIdentity {
        /// The recipients it is for.
        recipients: String,
    },
    /// Something in it is not as it was written.
    #[error("it was damaged or changed by someone without the key: {0}")]
    Damaged(String),
    /// A value is not encrypted.
    #[error("its entry `{0}` is not encrypted")]
    PlainValue(String),
    /// It was written by another tool, and changing it here would lose something.
    #[error("it cannot be changed here: {0}")]
    Foreign(String),
    /// The key cannot be written.
    #[error("`{key}` cannot be the key of a secret: {why}")]
    ReservedKey {
        /// The key.
        key: String,
        /// Why not.
        why: &'static str,
    },
    /// The value is empty or too long.
    #[error("the value must have 1 to {MAX_SECRET_VALUE_BYTES} bytes, and has {0}")]
    ValueLength(usize),
    /// There are too many keys.
    #[error("a secret has at most {MAX_SECRET_KEYS} entries")]
    TooManyKeys,
    /// The random numbers or the cipher of the system failed.
    #[error("encrypting failed: {0}")]
    Crypto(String),
}

/// Errors in the file of consents.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConsentError {
    /// The text is not of the expected form.
    #[error("it is damaged: {0}")]
    Malformed(String),
    /// Another version of goondan wrote it.
    #[error("it is of version {0}, which this goondan does not know")]
    Version(u32),
    /// There are too many.
    #[error("there are more than {CONSENTS_MAX} consents")]
    TooMany,
}

/// Why the store cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The file system refused.
    #[error("cannot read `{}`", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the file system.
        #[source]
        source: io::Error,
    },
    /// Others than its owner may read the identity.
    #[error("others than its owner can read or change `{}`", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The identity is invalid.
    #[error("the identity in {place} cannot be used")]
    Identity {
        /// The file or the variable.
        place: String,
        /// The problem.
        #[source]
        source: IdentityError,
    },
    /// There are secrets, but no identity.
    #[error("there is no identity: neither `{}`, nor a credential, nor a variable", path.display())]
    NoIdentity {
        /// Expected path of the file.
        path: PathBuf,
    },
    /// One secret cannot be used.
    #[error("the secret in `{}` cannot be used", path.display())]
    Document {
        /// Its file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: DocumentError,
    },
    /// The file of consents cannot be read or written.
    #[error("which projects may use secrets cannot be told from `{}`", path.display())]
    Consents {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: ConsentError,
    },
    /// There are too many secrets.
    #[error("there are {MAX_SECRETS} secrets already, as many as there may be")]
    TooMany,
}

impl VaultError {
    /// Suggested fix.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Io { path, .. } => {
                format!("see that the daemon's user can read `{}`", path.display())
            }
            Self::Exposed { path } => format!(
                "`chmod 600 {}`; if others had access to this machine, replace it and the secrets",
                path.display()
            ),
            Self::Identity { .. } => {
                "put back the identity that `age-keygen` or goondan wrote, from your backup"
                    .to_owned()
            }
            Self::NoIdentity { path } => format!(
                "put back your backup of `{}`, or give this program the credential or the variable \
                 that the daemon has; without the identity the secrets are lost, and have to be \
                 removed and set again",
                path.display()
            ),
            Self::Document { path, source } => match source {
                DocumentError::OtherIdentity { .. } => {
                    "put back the identity it is for, or remove the secret and set it again"
                        .to_owned()
                }
                DocumentError::Foreign(_) => format!("change it with `sops {}`", path.display()),
                DocumentError::ReservedKey { .. } => "choose another key".to_owned(),
                DocumentError::ValueLength(_) => {
                    "keep what is longer in a file of its own, encrypted with a key that is kept here"
                        .to_owned()
                }
                DocumentError::TooManyKeys => "begin another secret".to_owned(),
                _ => "put the file back from a backup, or remove the secret and set it again"
                    .to_owned(),
            },
            Self::Consents {
                source: ConsentError::TooMany,
                ..
            } => "take one back: `gdn secret deny NAME`".to_owned(),
            Self::Consents { path, .. } => format!(
                "put `{}` back from a backup, or move it away and allow each secret again: `gdn \
                 secret allow NAME`",
                path.display()
            ),
            Self::TooMany => "remove one: `gdn secret remove NAME`".to_owned(),
        }
    }
}
