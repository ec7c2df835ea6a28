//! Conversations on disk: the only code that writes under the System Root.
//!
//! Everything that lasts goes through this crate: the layout of the System Root ([`root`]), the
//! workspaces and instances in it, the journals of each instance with the turn commit and its
//! recovery ([`instance`]), and what a writer thread does to group many small writes into few syncs
//! ([`writer`]). How a file outlives a crash is the business of `goondan_durable`; the threads are
//! `goondan_writers`.
//!
//! # Invariants
//!
//! * What was acknowledged is on disk: an operation is answered only after the files it wrote are
//!   synced (`MSG-5`, `MSG-13`).
//! * A journal is cut to zero only after its content is durable elsewhere (`MSG-6`).
//! * After a failed write or sync, an instance's handles are thrown away and the instance is opened
//!   and recovered anew; a failed sync is never tried again on the same handle.
//! * Nothing outside the System Root is touched, and no symbolic link below it is followed.
//! * All file access goes through [`goondan_durable::disk::Disk`], so that every call can be made to
//!   fail in tests.

pub mod audit;
pub mod configuration;
pub mod connection;
mod error;
mod format;
pub mod index;
pub mod instance;
pub mod ledger;
pub mod limits;
pub mod naming;
mod own_files;
mod renamed;
pub mod root;
pub mod verify;
pub mod workspace;
pub mod writer;

pub use error::StoreError;
