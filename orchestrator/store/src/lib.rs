//! The only code that writes under the System Root.
//!
//! Everything durable goes through this crate: the layout of the System Root ([`root`]), the
//! workspaces and instances in it, the journals of each instance with the turn commit and its
//! recovery ([`instance`]), and the writer threads that group many small writes into few syncs
//! ([`writer`]).
//!
//! # Invariants
//!
//! * What was acknowledged is on disk: an operation is answered only after the files it wrote are
//!   synced (`MSG-5`, `MSG-13`).
//! * A journal is only appended to, and cut to zero only after its content is durable elsewhere
//!   (`MSG-6`).
//! * A file is replaced only by temp → fsync → rename → fsync of the directory ([`durable`]).
//! * After a failed write or sync, an instance's handles are thrown away and the instance is opened
//!   and recovered anew; a failed sync is never tried again on the same handle.
//! * Nothing outside the System Root is touched, and no symbolic link below it is followed.
//! * All file access goes through [`disk::Disk`], so that every call can be made to fail in tests.

pub mod audit;
mod checksum;
pub mod configuration;
pub mod connection;
pub mod disk;
pub mod durable;
mod error;
mod finding;
pub mod index;
pub mod instance;
mod jsonl;
pub mod ledger;
pub mod limits;
mod manifest;
pub mod naming;
mod own_files;
pub mod root;
mod sealed;
pub mod verify;
pub mod workspace;
pub mod writer;

pub use error::{IoContext, StoreError};
pub use finding::{ByteRange, Finding, FindingKind, Severity};
