//! Errors of the secret store. No error contains a secret value.

use std::io;
use std::path::PathBuf;

use goondan_protocol::limits::{MAX_SECRET_KEYS, MAX_SECRET_VALUE_BYTES, MAX_SECRETS};

use crate::limits::{CONSENTS_MAX, IDENTITIES_MAX, PERMISSIONS_MAX, SECRET_DOCUMENT_BYTES_MAX};

/// Reason why a text is not an identity file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The content is not text, or too long.
    #[error("the text is not UTF-8 or is too long")]
    NotText,
    /// A line is neither empty, nor a comment, nor an identity.
    #[error("line {line} is not an age identity (`AGE-SECRET-KEY-1…`)")]
    NotAnIdentity {
        /// Line number, from 1.
        line: usize,
    },
    /// The file has no identity.
    #[error("no age identity found (`AGE-SECRET-KEY-1…`)")]
    Empty,
    /// The file has too many identities.
    #[error("more than {IDENTITIES_MAX} identities found")]
    TooMany,
}

/// Reason why a document cannot be opened or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The document is too large.
    #[error("larger than {SECRET_DOCUMENT_BYTES_MAX} bytes")]
    TooLarge,
    /// The text is not a YAML mapping of the expected form.
    #[error("not a SOPS document: {0}")]
    NotSops(String),
    /// The document uses an unsupported feature.
    #[error("unsupported: {0}")]
    Unsupported(&'static str),
    /// No stored identity opens the document.
    #[error("encrypted for {recipients}, but the daemon has another identity")]
    OtherIdentity { recipients: String },
    /// A part of the document was changed.
    #[error("damaged, or changed without the key: {0}")]
    Damaged(String),
    /// A value is not encrypted.
    #[error("entry `{0}` is not encrypted")]
    PlainValue(String),
    /// Another tool wrote the document, and a change by goondan would lose data.
    #[error("`gdn` cannot change it: {0}")]
    Foreign(String),
    /// The key cannot be written.
    #[error("`{key}` is not a valid key of a secret: {why}")]
    ReservedKey {
        key: String,
        /// Reason why the key is reserved.
        why: &'static str,
    },
    /// The value is empty or too long.
    #[error("the value must have 1 to {MAX_SECRET_VALUE_BYTES} bytes, found {0}")]
    ValueLength(usize),
    /// There are too many keys.
    #[error("a secret can have at most {MAX_SECRET_KEYS} entries")]
    TooManyKeys,
    /// The random numbers or the cipher of the system failed.
    #[error("failed to encrypt: {0}")]
    Crypto(String),
}

/// Errors in the file of consents.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConsentError {
    /// The text is not of the expected form.
    #[error("damaged: {0}")]
    Malformed(String),
    /// Another version of goondan wrote it.
    #[error("unknown version {0}; upgrade goondan")]
    Version(u32),
    #[error(
        "too many entries: more than {CONSENTS_MAX} consents, or {PERMISSIONS_MAX} permissions"
    )]
    TooMany,
}

/// Reason of a failed operation of the secret store.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("failed to read `{}`", path.display())]
    Io {
        path: PathBuf,
        /// Error of the file system.
        #[source]
        source: io::Error,
    },
    /// Other users can read the identity.
    #[error("users other than its owner can read or change `{}`", path.display())]
    Exposed { path: PathBuf },
    #[error("failed to use the identity in {place}")]
    Identity {
        /// The file or the variable.
        place: String,
        #[source]
        source: IdentityError,
    },
    /// There are secrets, but no identity.
    #[error("no identity found: neither in `{}`, nor as a credential, nor in a variable", path.display())]
    NoIdentity {
        /// Expected path of the file.
        path: PathBuf,
    },
    /// One secret cannot be used.
    #[error("failed to use the secret in `{}`", path.display())]
    Document {
        path: PathBuf,
        /// Reason of the failure.
        #[source]
        source: DocumentError,
    },
    /// The file of consents cannot be read or written.
    #[error("failed to read from `{}` which projects may use secrets", path.display())]
    Consents {
        path: PathBuf,
        /// Reason of the failure.
        #[source]
        source: ConsentError,
    },
    /// The file of permissions cannot be read or written.
    #[error("failed to read from `{}` what people allow workspaces", path.display())]
    Permissions {
        path: PathBuf,
        /// Reason of the failure.
        #[source]
        source: ConsentError,
    },
    /// There are too many secrets.
    #[error("{MAX_SECRETS} secrets exist already, which is the limit")]
    TooMany,
}

impl VaultError {
    /// Suggested fix.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Io { path, .. } => {
                format!(
                    "make sure that the daemon's user can read `{}`",
                    path.display()
                )
            }
            Self::Exposed { path } => format!(
                "run `chmod 600 {}`; if others had access to this machine, replace it and the secrets",
                path.display()
            ),
            Self::Identity { .. } => {
                "restore the identity that `age-keygen` or goondan wrote from your backup"
                    .to_owned()
            }
            Self::NoIdentity { path } => format!(
                "restore `{}` from your backup, or pass this program the daemon's credential or \
                 variable; without the identity the secrets are lost and must be removed and set \
                 again",
                path.display()
            ),
            Self::Document { path, source } => match source {
                DocumentError::OtherIdentity { .. } => {
                    "restore its identity, or remove the secret and set it again".to_owned()
                }
                DocumentError::Foreign(_) => format!("change it with `sops {}`", path.display()),
                DocumentError::ReservedKey { .. } => "choose another key".to_owned(),
                DocumentError::ValueLength(_) => {
                    "store longer values in a separate file, encrypted with a key from this store"
                        .to_owned()
                }
                DocumentError::TooManyKeys => "use another secret".to_owned(),
                _ => "restore the file from a backup, or remove the secret and set it again"
                    .to_owned(),
            },
            Self::Consents {
                source: ConsentError::TooMany,
                ..
            } => "revoke one: `gdn secret deny NAME`".to_owned(),
            Self::Consents { path, .. } => format!(
                "restore `{}` from a backup, or move it away and allow each secret again: `gdn \
                 secret allow NAME`",
                path.display()
            ),
            Self::Permissions { path, .. } => format!(
                "restore `{}` from a backup, or move it away and decide again: `gdn workspace permission \
                 allow PERMISSION`",
                path.display()
            ),
            Self::TooMany => "remove one: `gdn secret remove NAME`".to_owned(),
        }
    }
}
