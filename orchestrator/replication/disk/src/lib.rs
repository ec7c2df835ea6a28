//! Replication of a workspace's files between the store and the disk (`REP-1`): changes are
//! recorded for the workspace's log, and changes from a log are applied to a standby's files.
//!
//! ```text
//!  store ──▶ ReplicatedDisk ──▶ disk          log ──▶ Replica ──▶ disk
//!                  │ records changes
//!                  ▼
//!              Recording ──▶ batches ──▶ log
//! ```
//!
//! [`scope`] defines the replicated paths. [`OpLog`] tracks the workspaces that the node owns,
//! and the waiting threads. [`ReplicatedDisk`] is the [`Disk`](goondan_durable::disk::Disk) through
//! which the daemon changes their files. [`Replica`] applies changes from records, [`redo`] decides
//! when a note is necessary, and [`note`] stores it. A [`Capture`] holds the files of one moment,
//! for a snapshot.
//!
//! # Invariants
//!
//! * Recorded changes are exactly the changes of the files, in the same order.
//! * A file's changes are submitted before the file is synced: data that is durable here is on its
//!   way to the log.
//! * Only a [`Replica`] changes files of a workspace that the node does not own.
//! * Waits have no deadline: they end with an acknowledgement, or when no acknowledgement can
//!   arrive any longer.

mod capture;
mod captured_ops;
mod confirmations;
mod disk;
mod error;
mod file;
mod indeterminate_ops;
pub mod limits;
pub mod note;
mod op_log;
mod pending_copies;
pub mod redo;
mod replica;
pub mod scope;
mod walk;
mod workspace;

pub use capture::{Capture, CaptureError};
pub use disk::{ConfirmPoint, ReplicatedDisk};
pub use error::ReplicatedDiskError;
pub use op_log::OpLog;
pub use replica::Replica;
pub use replica::restore::RestoreError;
pub use workspace::{BatchContent, BatchReceiver, LogBatch};
