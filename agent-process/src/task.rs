//! One run of the program that works for a task (`TASK-8`).
//!
//! The program is started under a tool supervisor, confined as tools are. What it writes is read as events, which the
//! orchestrator judges; here nothing is decided about the task.
//!
//! # Map
//!
//! * [`launch`] decides what is started, with which variables.
//! * [`dialogue`] decides what the program is to read next.
//! * [`telling`] makes messages of what it writes, and [`liveness`] of what it does in silence.
//! * [`places`] decides where the program works, and what it may touch.
//! * [`program`] is the program behind its supervisor.
//! * [`freezer`] is the control group in which it is paused, where there is one.
//! * [`running`] carries out: one loop over the link and the program.
//!
//! # Invariants
//!
//! * What the orchestrator has no room for stays in the program's pipes: nothing is read while something waits to be
//!   sent. Pings are answered all the same.
//! * `task.exited` is the last message, and comes when nothing of the program is left.
//! * Secrets are variables of the program alone: they are in no argument, no log line and no variable of this process
//!   or of the supervisor.

mod dialogue;
mod freezer;
mod launch;
mod liveness;
mod places;
mod program;
mod running;
mod telling;

pub(crate) use running::run;
