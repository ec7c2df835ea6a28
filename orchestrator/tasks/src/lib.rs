//! Tasks: pieces of work for command-line agents, each with its own directory.
//!
//! Bottom up: the events of a task, as records of its history ([`fact`]); the task's state, which is the
//! sum of its facts ([`state`]); the transitions ([`machine`]); and the work area on disk, which alone
//! restores the task ([`work_area`], `TASK-1`). [`plain_area`] reads the format that the layout of work
//! areas is based on.
//!
//! ```text
//! idle → running ⇄ waiting_dependency / waiting_question / waiting_review / paused
//!            └──→ completed / failed / cancelled
//! ```
//!
//! # Invariants
//!
//! * The machine does no I/O and reads no clock: inputs and times go in, facts and effects come out.
//! * A state is the sum of its facts and nothing else. The task can resume from every prefix of its facts:
//!   a crash between two facts loses no task.
//! * Facts are durable before their effects are executed. Effects that a crash prevented are derived from
//!   the state again.
//! * At most one run of a task's agent is in flight; the next starts when the last has ended.
//! * An answer, a dependency and a review are accepted once, by their id.
//! * No fact contains a secret: secrets are stored by reference.

pub mod decisions;
pub mod display;
pub mod fact;
pub mod limits;
pub mod machine;
pub mod plain_area;
pub mod preamble;
mod projection;
mod prompt;
pub mod state;
pub mod work_area;

#[cfg(test)]
mod simulation;
