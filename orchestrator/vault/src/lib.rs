//! The secret store: its file formats, and reading them (`SEC-1`, `SYS-3`).
//!
//! Each secret is a separate file, `system/secrets/<name>.sops.yaml`: a flat mapping of keys to
//! values in the format of the `sops` tool. Its values are encrypted with AES-256-GCM under a data
//! key, and the data key with age, for the identity in `system/identity.age`.
//!
//! * [`Identities`]: the keys that open secrets.
//! * [`Document`]: one opened secret; text in, text out, without files.
//! * [`Vault`]: finds both below the System Root; [`SecretReader`] looks up values for a configuration.
//! * [`Consents`]: permissions of projects to use secrets; [`SecretReader`] returns only allowed ones
//!   (`SEC-6`).
//! * [`PermissionDecisions`]: other permissions that people gave workspaces (`SEC-3`).
//!
//! # Invariants
//!
//! * This crate writes nothing; the orchestrator's own code does. So the client can read secrets to
//!   check a configuration, but never change one.
//! * Nothing is read before a value is requested.
//! * A document is trusted as a whole or not at all: its checksum is verified before any value is
//!   returned.
//! * No error contains a secret value, and the `Debug` output of types with secret values does not
//!   show them.

mod consent;
mod document;
mod error;
mod identity;
pub mod limits;
mod permission;
mod reader;
mod sealed_value;
mod vault;
mod yaml;

pub use consent::{Consents, ProjectIdentity};
pub use document::{Document, Outline};
pub use error::{ConsentError, DocumentError, IdentityError, VaultError};
pub use identity::Identities;
pub use permission::PermissionDecisions;
pub use reader::SecretReader;
pub use vault::{
    ExternalIdentities, IdentityOrigin, LoadedIdentities, RealFiles, Vault, VaultFiles,
};
