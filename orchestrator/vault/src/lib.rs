//! The secret store: what its files say, and how they are read (`SEC-1`, `SYS-3`).
//!
//! A secret is a file of its own, `system/secrets/<name>.sops.yaml`: a flat mapping of keys to values
//! that the `sops` tool understands too. Its values are encrypted with AES-256-GCM under a data key,
//! and the data key with age, for the identity in `system/identity.age`.
//!
//! * [`Identities`] are the keys that open secrets.
//! * [`Document`] is one secret, opened: text in, text out, no file.
//! * [`Vault`] finds both below the System Root, and [`Reader`] looks values up for a configuration.
//! * [`Consents`] say which project may use which secret, and [`Reader`] gives out no other (`SEC-6`).
//!
//! # Invariants
//!
//! * This crate writes nothing: the orchestrator's own code does, so that the client may read secrets
//!   to check a configuration and can never change one.
//! * Nothing is read before a value is asked for.
//! * A document is believed as a whole or not at all: its checksum is compared before any value of it
//!   is given out.
//! * No error holds a value, and what holds one shows it in no `Debug`.

mod consent;
mod document;
mod error;
mod identity;
pub mod limits;
mod reader;
mod sealed;
mod vault;
mod yaml;

pub use consent::{Consents, ProjectIdentity};
pub use document::{Document, Outline};
pub use error::{ConsentError, DocumentError, IdentityError, VaultError};
pub use identity::Identities;
pub use reader::Reader;
pub use vault::{Files, FoundIdentities, Given, IdentityOrigin, RealFiles, Vault};
