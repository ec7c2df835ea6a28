//! Sandboxes and proposals: files that a worker is given a copy of, what it changed in them, and how that
//! gets into the project (`BOX-1` to `BOX-4`, `PROP-1` to `PROP-5`, `PROP-7`).
//!
//! [`Sandboxes`] is what a caller has of one workspace, on the files ([`Files`]) of the machine or of a test.
//! Below it, the lowest first: where things are (`place`), what is remembered of them (`record`), the log of a
//! run and what it says of how things stand (`run_log`), the commit that git's HEAD names ([`git_head()`]);
//! then what is done, a module each: `prepare`, `create`, `review`, `apply`, `merge`, `recover`; what other nodes get of
//! it: `handed_on`; and looking whether it is as it was written: `verify`.
//!
//! # What is on disk
//!
//! ```text
//! <sandboxes>/<run>/events.jsonl              what happened, sealed; the truth of how each proposal stands
//! <sandboxes>/<run>/<agent>/sandbox.json      what was given
//!                           input/            the baseline, without write bits
//!                           work/             the worker's home
//!                           proposal/         for people and workers to read; nothing here is believed
//!                           kept/<digest>/    the proposal as it was made: patch, record, frozen files,
//!                                             and the journals of its swaps
//!                   .handed-on/               proposals for other nodes that have the workspace
//! ```
//!
//! # Invariants
//!
//! * The Project Root is read, and changed by [`goondan_trees::swap`] alone: all of it or nothing, and nothing
//!   that a person wrote is lost.
//! * A worker may write in `work/` and `proposal/`. What is read from there is checked against what goondan
//!   keeps beside it.
//! * A proposal is there once its `proposal_created` is durable in the run's log, and not before.
//! * No clock, no thread, no process: the time and git's opinion come from the caller.
//! * One caller at a time for each workspace.

mod apply;
mod create;
mod entries;
mod error;
mod git_head;
mod guards;
mod handed_on;
mod ignored;
pub mod limits;
mod listing;
mod merge;
mod place;
mod prepare;
mod record;
mod recover;
mod repository;
mod review;
mod run_log;
mod sandboxes;
mod verify;
mod wording;

pub use create::{NoGit, PatchCheck, PatchVerifier};
pub use error::ProposalError;
pub use git_head::git_head;
pub use goondan_trees::{Files, RealFiles};
pub use repository::{BranchMaker, NewBranch, NewRepository, NoRepositories, RepositoryMaker};
pub use sandboxes::Sandboxes;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod handed_on_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod kinds_tests;
#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
