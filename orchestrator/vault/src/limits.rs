//! Limits of the secret store that no other crate uses.

use goondan_protocol::limits::MAX_SECRET_VALUE_BYTES;

/// Largest file of one secret, in bytes.
pub const SECRET_DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// Largest identity file, credential or variable, in bytes.
pub const IDENTITY_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of identities: the one that secrets are encrypted for, and earlier ones.
pub const IDENTITIES_MAX: usize = 8;

/// Largest file of consents, in bytes.
pub const CONSENTS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum number of consents: pairs of a secret and a project that may use it.
pub const CONSENTS_MAX: usize = 10_000;

/// Maximum number of decisions about permissions of workspaces.
pub const PERMISSIONS_MAX: usize = 1_000;

/// Maximum number of recipients of one secret that are tried.
pub(crate) const RECIPIENTS_MAX: usize = 64;

/// Deepest nesting of a document that another tool wrote.
pub(crate) const YAML_DEPTH_MAX: usize = 32;

/// Maximum number of lists, mappings and scalars of a document that another tool wrote.
pub(crate) const YAML_NODES_MAX: usize = 16 * 1024;

// A value of the largest size, encrypted, fits into a document.
const _: () = assert!(SECRET_DOCUMENT_BYTES_MAX >= 2 * MAX_SECRET_VALUE_BYTES);
