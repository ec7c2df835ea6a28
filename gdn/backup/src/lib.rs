//! Backups of a state root in a directory.
//!
//! A backup directory contains any number of backups. Each has a file with its list of files, and
//! *packs* with the contents of files. A later backup refers to the packs of earlier ones for
//! contents that have not changed.
//!
//! ```text
//! DIR/goondan-backup.json    marks the directory; its lock admits one writer
//! DIR/backups/<id>.backup    a header line in plain JSON, then the list of files
//! DIR/packs/<id>-<n>.pack    contents of files
//! ```
//!
//! [`Session`] makes a backup in several passes over the files. The last pass must run while no
//! file of the daemon changes; because earlier passes have copied almost everything, it is short.
//!
//! # Invariants
//!
//! * Nothing in a backup directory is trusted: a list of files is validated as a whole before a
//!   restore writes the first file, and every content is compared with its digest.
//! * A restore creates the complete state root, or nothing.
//! * No link is followed below the state root, because agents write there.
//! * The machine that makes encrypted backups does not need a key that decrypts them.

mod cache;
mod create;
mod directory;
mod error;
mod format;
mod index;
mod pack;
mod restore;
mod seal;
mod source;
mod stored_file;
#[cfg(test)]
mod tests;
mod verify;

pub use create::{Created, Session, SessionOptions};
pub use directory::{BackupDir, BackupSummary, Pruned};
pub use error::BackupError;
pub use format::Header;
pub use restore::{RestoreOptions, Restored, restore};
pub use seal::{Identities, Recipients};
pub use verify::{Checked, verify};
