//! Checkpoints of a work area: complete snapshots of its files, and their exact restoration
//! (`CKPT-1` to `CKPT-5`).
//!
//! [`Store`] is the interface for one work area. The modules, from the lowest up: paths (`place`)
//! and records (`record`); groups of entries that are compressed together (`groups`), their index
//! (`index`), and the archive (`output`, `archive`); then one module for each operation: `make`,
//! `restore`, `rewind`, `drill`, `prune`, `recover`, `adopt`.
//!
//! Joint checkpoints of a conversation (`CKPT-6`) are made in the same way, in the conversation's
//! directory: they contain its work directory, its messages and the states of its extensions.
//! [`Store::restore`] only restores files; `rewind` restores the conversation with them.
//!
//! Checkpoints of a task that works on a copy of the project are in the task's work area as well,
//! and contain that copy.
//!
//! # On disk
//!
//! ```text
//! .checkpoints/checkpoint_NNN/snapshot.tar.gz   the files, for any `tar`
//! .checkpoints/checkpoint_NNN/metadata.json     description and manifest
//! .checkpoints/latest.json                      names the newest checkpoint that no restore made
//! .checkpoints/index                            cached facts about the newest; may be removed
//! .checkpoints/restoring/                       a restore in progress
//! ```
//!
//! # Invariants
//!
//! * A checkpoint appears atomically under its name and is never modified. A checkpoint of the
//!   plain format is replaced as a whole by one of our format (`adopt`).
//! * Nothing in `.checkpoints` is trusted, because the agent of a task can write there. Restored
//!   files are checked against digests, and no archive can write outside of the work area.
//! * A restore changes all files or none, and first makes a checkpoint of the files that it
//!   removes.
//! * `.metadata` is saved but never restored, because the history of a task must not be rewritten.
//!   `.checkpoints`, `.cache`, `.logs` and files that look like secrets are neither saved nor
//!   changed.
//! * No clock, thread or process: callers provide the time. One caller at a time for each work
//!   area.

mod adopt;
mod archive;
mod drill;
mod error;
mod groups;
mod id;
mod index;
pub mod limits;
mod make;
mod output;
mod place;
mod prune;
mod record;
mod recover;
mod registry;
mod restore;
mod rewind;
mod store;

pub use adopt::AdoptionFailure;
pub use drill::DrillResult;
pub use error::CheckpointError;
pub use id::{CheckpointId, IdError};
pub use place::CHECKPOINTS;
pub use prune::Retention;
pub use record::{
    AgentState, CheckpointEntry, CheckpointMetadata, CheckpointReceipt, CheckpointSelector,
    Consistency, MakeCheckpoint, PRE_RESTORE, RestoreResult,
};
pub use rewind::RewindPlan;
pub use store::Store;

#[cfg(test)]
mod copy_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod kinds_tests;
#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod reader_tests;
#[cfg(test)]
mod suite_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
