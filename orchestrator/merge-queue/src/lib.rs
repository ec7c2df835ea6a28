//! Merge queue: approved proposals of many tasks land in order (`QUEUE-1`).
//!
//! [`MergeQueue`] makes all decisions for one workspace. A target is its project's directory, a
//! branch of a repository, or a pull request into a branch. Events and the current time go in; records and actions come out. It uses no clock, file, process or randomness.
//!
//! ```text
//! waiting → rebasing → proving → landing → landed
//!    ▲         │          │         │
//!    │         │          │         └── the target moved: again, from its new state
//!    │         └──────────┴── conflict or failed proof: handed back to its task
//!    └── a batch failed: its first half is tried alone
//! ```
//!
//! * `record`: durable records; the state is their sum.
//! * `entry`: proposals in the queue.
//! * `exchange`: events and actions.
//! * `queue`: the state machine. `edit`: its changes by people. `attempt`: its steps. `progress`: the
//!   step of the attempt.
//!
//! # Invariants
//!
//! * The records of an event are durable before its actions are carried out.
//! * The state is the sum of the records, and [`MergeQueue::resume`] returns the actions that a crash
//!   prevented. Every prefix of the records is a state from which the queue can resume.
//! * A proposal lands only if the proof of exactly this result on exactly this base has passed, and
//!   the target still is that base.
//! * A landing is recorded as an intent before it is carried out. After a crash, the target shows
//!   whether it happened.
//! * A pull request is proved with the changes of the queue's earlier ones that are still open.
//! * At most one attempt is in progress. Proposals are tried in the order of the queue, except those
//!   that a person holds.
//! * A proposal stays in the queue until its task has acknowledged the outcome.

mod attempt;
mod edit;
mod entry;
mod exchange;
pub mod limits;
mod progress;
mod queue;
mod record;

pub use entry::{Entry, OpenPullRequest, Outcome, Place, Proposal, Revision, Stage, Target};
pub use exchange::{Action, Event, Landing, LandingResult, Output, Proof, Rebase, Refusal};
pub use queue::MergeQueue;
pub use record::Record;

#[cfg(test)]
mod pull_request_simulation;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
