//! Crash-safe files, independent of their content.
//!
//! The layers, from the lowest up: file operations that can fail in tests ([`disk`]); files that
//! are replaced atomically ([`files`]), with names encoded from any text ([`names`]); append-only
//! files of lines ([`journal`]); line checksums ([`checksum`]); append-only files of checksummed
//! records ([`sealed_log`]); and recorded expectations about files ([`manifest`]) and folders
//! ([`register`]), stored outside of them. [`batch`] is the batch processing of a writer thread,
//! without the thread. A problem found in a file is a [`Finding`]; a failed operation is a
//! [`FileError`].
//!
//! # Invariants
//!
//! * This crate does not depend on conversations, workspaces, or locations in the System Root.
//! * A file is replaced only by temp → fsync → rename → fsync of the directory ([`files`]).
//! * A journal is only appended to, and truncated to zero only after its content is durable
//!   elsewhere (`MSG-6`).
//! * A failed sync is never retried on the same handle.
//! * No symbolic link is followed.
//! * All file access goes through [`disk::Disk`], so that tests can make every call fail.
//! * The crate uses no thread, no task and no clock; callers provide them.

pub mod batch;
pub mod checksum;
pub mod disk;
mod error;
pub mod files;
mod findings;
pub mod journal;
pub mod limits;
pub mod manifest;
pub mod names;
pub mod register;
pub mod sealed_log;

pub use error::{FileError, IoContext};
pub use findings::{ByteRange, Finding, FindingKind, Severity, VerificationResult};
