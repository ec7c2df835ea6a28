//! Conversations on disk: the only code that writes under the System Root.
//!
//! All durable state goes through this crate: the layout of the System Root ([`root`]), its
//! workspaces and instances, the journals of each instance with turn commit and recovery
//! ([`instance`]), and group commit in the writer threads ([`writer`]). `goondan_durable` makes
//! single files crash-safe; `goondan_writers` provides the threads.
//!
//! # Invariants
//!
//! * Acknowledged means on disk: an operation is answered only after the files it wrote are synced
//!   (`MSG-5`, `MSG-13`).
//! * A journal is truncated only after its content is durable elsewhere (`MSG-6`).
//! * After a failed write or sync, an instance's handles are dropped, and the instance is reopened
//!   and recovered. A failed sync is never retried on the same handle.
//! * Nothing outside the System Root is touched, and no symbolic link below it is followed.
//! * All file access goes through [`goondan_durable::disk::Disk`], so that tests can make every
//!   call fail.

pub mod audit;
pub mod configuration;
pub mod connection;
mod error;
pub mod file_names;
mod format;
pub mod index;
pub mod instance;
pub mod ledger;
mod legacy_names;
pub mod limits;
mod own_files;
pub mod root;
pub mod verify;
pub mod workspace;
pub mod writer;

pub use error::StoreError;
