//! A workspace's files between the store and the disk (`REP-1`): what is done to them is taken down for the workspace's
//! log, and what a log says is done to a standby's.
//!
//! ```text
//!  store ──▶ ReplicatedDisk ──▶ disk          log ──▶ Replica ──▶ disk
//!                  │ taken down
//!                  ▼
//!              Recording ──▶ batches ──▶ log
//! ```
//!
//! [`scope`] says what is replicated. [`Recording`] knows which workspaces are this node's, and who waits for what;
//! [`ReplicatedDisk`] is the [`Disk`](goondan_durable::disk::Disk) that the daemon changes their files by. [`Replica`]
//! makes records' changes again, [`redo`] says when that has to be noted, and [`note`] is where. A [`Capture`] has the
//! files of one moment, for a snapshot.
//!
//! # Invariants
//!
//! * What is taken down is what happened to the files, in the order in which it did.
//! * A file is handed over before it is synced: what is durable here is on its way to the log.
//! * The files of a workspace that is not this node's are changed by a [`Replica`] alone.
//! * Waits have no deadline: they end with an acknowledgement, or when it is known that none will come.

mod capture;
mod confirmations;
mod disk;
mod error;
mod file;
pub mod limits;
pub mod note;
mod recording;
pub mod redo;
mod replica;
pub mod scope;
mod taken;
mod uncopied;
mod unsettled;
mod walk;
mod workspace;

pub use capture::{Capture, CaptureError};
pub use disk::{ReplicatedDisk, Waits};
pub use error::Refused;
pub use recording::Recording;
pub use replica::Replica;
pub use replica::restore::RestoreError;
pub use workspace::{Content, HandedOver, Outlet};
