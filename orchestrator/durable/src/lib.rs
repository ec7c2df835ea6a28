//! Files that outlive crashes, whatever is kept in them.
//!
//! What lasts stands on these layers, the lowest first: the few file operations that tests can make fail
//! ([`disk`]), whole files that are replaced at once ([`files`]) under names made of any text ([`names`]),
//! files of lines that are appended to ([`journal`]), the checksums of such lines ([`checksum`]), files of
//! lines that say themselves whether they are whole ([`sealed`]), and what was last known of files, in
//! another file than these ([`manifest`]), and of folders, outside of them ([`register`]). [`batch`] is what a writer thread does with its jobs, without the
//! thread. What is wrong with a file is a [`Finding`]; that it cannot be used, a [`FileError`].
//!
//! # Invariants
//!
//! * Nothing here knows what is kept: no conversation, no workspace, no place in the System Root.
//! * A file is replaced only by temp → fsync → rename → fsync of the directory ([`files`]).
//! * A journal is only appended to, and cut to zero only after its content is durable elsewhere (`MSG-6`).
//! * A failed sync is never tried again on the same handle.
//! * No symbolic link is followed.
//! * All file access goes through [`disk::Disk`], so that every call can be made to fail in tests.
//! * No thread, no task and no clock: whoever calls brings them.

pub mod batch;
pub mod checksum;
pub mod disk;
mod error;
pub mod files;
mod finding;
pub mod journal;
pub mod limits;
pub mod manifest;
pub mod names;
pub mod register;
pub mod sealed;

pub use error::{FileError, IoContext};
pub use finding::{ByteRange, Finding, FindingKind, Severity, Verified};
