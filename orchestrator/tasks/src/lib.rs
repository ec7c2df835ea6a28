//! Tasks: pieces of work for command-line agents, with a directory of their own.
//!
//! The lowest first: what can happen to a task, as the lines of its history ([`fact`]); what a task is, which
//! is what its facts add up to ([`state`]); what is done when something comes in ([`machine`]); and the
//! work area on disk, which alone restores the task ([`work_area`], `TASK-1`). [`plain_area`] reads the format that the layout of work
//! areas comes from.
//!
//! ```text
//! idle → running ⇄ waiting_dependency / waiting_question / waiting_review / paused
//!            └──→ completed / failed / cancelled
//! ```
//!
//! # Invariants
//!
//! * The machine does no I/O and reads no clock: inputs and times come in, facts and effects go out.
//! * A state is the sum of its facts and of nothing else. Every prefix of a task's facts is a state from which
//!   it goes on: a crash between two of them loses no task.
//! * Facts are durable before their effects are carried out. Effects that a crash took away follow from the
//!   state again.
//! * At most one run of a task's agent is under way; the next begins when the last has ended.
//! * An answer, a dependency and a review are taken once, by their id.
//! * No fact holds a secret: what is provided as one is named by a reference.

pub mod fact;
pub mod limits;
pub mod machine;
pub mod plain_area;
pub mod preamble;
mod prompt;
pub mod state;
mod told;
pub mod words;
pub mod work_area;

#[cfg(test)]
mod simulation;
