//! Sandboxes and proposals: copies of files for a worker, the worker's changes, and their
//! application to the project (`BOX-1` to `BOX-4`, `PROP-1` to `PROP-5`, `PROP-7`).
//!
//! [`Sandboxes`] is the interface for one workspace, on the files ([`FileAccess`]) of the machine or of
//! a test. The modules, from the lowest up: paths (`place`), records (`record`), the log of a run
//! and the states derived from it (`run_log`), the commit that git's HEAD names ([`git_head()`]);
//! then one module for each operation: `prepare`, `create`, `review`, `comments`, `apply`, `agent_reviewer`,
//! `merge`, `recover`;
//! proposals for other nodes: `handed_on`; the merge queue: `merge_queue`,
//! `queue_requests`, `queue_stack`, `queue_branch`, `hand_back`; and integrity checks: `verify`.
//!
//! # On disk
//!
//! ```text
//! <sandboxes>/<run>/events.jsonl              sealed log; the source of truth for the state of each proposal
//! <sandboxes>/<run>/<agent>/sandbox.json      the files that the worker was given
//!                           input/            the baseline, without write bits
//!                           work/             the worker's home
//!                           proposal/         for people and workers to read; never trusted
//!                           kept/<digest>/    the original proposal: patch, record, frozen files,
//!                                             and the journals of its swaps
//!                   queue.jsonl               records of the merge queue, in its own run
//!                   .handed-on/               proposals for other nodes that have the workspace
//! ```
//!
//! # Invariants
//!
//! * The Project Root is read, and changed only by [`goondan_trees::swap`]: atomically, and without
//!   losing any file that a user wrote.
//! * A worker can write in `work/` and `proposal/`. Content read from there is checked against
//!   goondan's own copies beside it.
//! * A proposal exists exactly when its `proposal_created` is durable in the run's log.
//! * No clock, thread or process: callers provide the time and git's verdict.
//! * One caller at a time for each workspace.

mod agent_reviewer;
mod apply;
mod comments;
mod create;
mod entries;
mod error;
mod git_head;
mod gitignore;
mod guards;
mod hand_back;
mod handed_on;
pub mod limits;
mod list;
mod merge;
mod merge_queue;
mod place;
mod prepare;
mod queue_branch;
mod queue_requests;
mod queue_stack;
mod record;
mod recover;
mod repository;
mod review;
mod run_log;
mod sandboxes;
mod texts;
mod tree_copy;
mod verify;

pub use agent_reviewer::AgentReviewer;
pub use create::{NoGit, PatchCheck, PatchVerifier};
pub use error::ProposalError;
pub use git_head::git_head;
pub use goondan_trees::{FileAccess, RealFiles};
pub use queue_requests::{EarlierProposal, QueueGit, QueuePlace, QueuedChanges, QueuedProposal};
pub use repository::{
    BranchMaker, BranchPlace, BranchPush, FetchedRepository, NewBranch, NewRepository,
    NoRepositories, RepositoryClone, RepositoryMaker,
};
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
mod merge_queue_tests;
#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
