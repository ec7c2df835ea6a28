//! Checkpoints of a work area: what its files were at a moment, made whole, and brought back exactly
//! (`CKPT-1` to `CKPT-5`).
//!
//! [`Store`] is what a caller has of one work area. Below it, the lowest first: where things are (`place`) and
//! what is said of them (`record`); which entries are compressed together (`groups`), what is known of them
//! (`index`), and the archive (`output`, `archive`); then what is done, a module each: `make`,
//! `restore`, `rewind`, `drill`, `prune`, `recover`, `adopt`.
//!
//! The joint checkpoints of a conversation (`CKPT-6`) are made in the same way, in its directory: they hold its
//! work directory, and with it the messages and the states of its extensions. [`Store::restore`] knows only
//! files; `rewind` says how the conversation comes with them.
//!
//! Those of a task that works on a copy of the project are in its work area as well, and hold that copy.
//!
//! # What is on disk
//!
//! ```text
//! .checkpoints/checkpoint_NNN/snapshot.tar.gz   the files, for any `tar`
//! .checkpoints/checkpoint_NNN/metadata.json     what is said of them; their manifest
//! .checkpoints/latest.json                      which is the newest that no restore made
//! .checkpoints/index                            what is known of the newest, to spare work; may be removed
//! .checkpoints/restoring/                       a restore that is under way
//! ```
//!
//! # Invariants
//!
//! * A checkpoint is there whole, under its name, or not at all; none that is there is ever written to. One of the plain
//!   format is replaced as a whole by one of ours (`adopt`).
//! * Nothing in `.checkpoints` is believed: the agent of a task can write there. What is restored is checked
//!   against digests, and no archive leads out of the work area.
//! * A restore changes all files or none, and what it takes away is in a checkpoint before.
//! * `.metadata` is held and never restored: a task's history is what happened, and does not unhappen.
//!   `.checkpoints`, `.cache`, `.logs` and what looks like a secret are neither held nor touched.
//! * No clock, no thread, no process: time comes from the caller. One caller at a time for each work area.

mod adopt;
mod archive;
mod drill;
mod error;
mod groups;
mod id;
mod index;
mod known;
pub mod limits;
mod make;
mod output;
mod place;
mod prune;
mod record;
mod recover;
mod restore;
mod rewind;
mod store;

pub use adopt::NotAdopted;
pub use drill::Drill;
pub use error::CheckpointError;
pub use id::{CheckpointId, IdError};
pub use prune::Retention;
pub use record::{
    About, AgentState, Consistency, Listed, Made, MakeCheckpoint, PRE_RESTORE, Restored, Which,
};
pub use rewind::Plan;
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
