//! A workspace that survives the loss of its node: decisions alone, no I/O (`REP-1`).
//!
//! The lowest first: names and hashes ([`names`]); changes of files, and the files they make ([`operation`],
//! [`tree`]); the record that holds them ([`record`]); which records follow each other ([`chain`]); the log they
//! stand in ([`log`]); who writes it ([`owner`]), who replays it and takes over ([`standby`]); who is to try
//! ([`placement`]), and what the log may forget ([`retention`]). How the daemon speaks with the program that holds the
//! log's connection is [`wire`]; what a node makes of all its workspaces at once is [`node`].
//!
//! ```text
//!             released, or nobody heard for a while
//!  standby ──────────── seal(epoch + 1) ───────────▶ owner
//!     ▲                                                │ its position is taken: fenced
//!     └──────────────── a new life ◀───────────────────┘
//! ```
//!
//! # Invariants
//!
//! * No machine reads a clock or does I/O: time, records and answers come in, effects go out.
//! * No clock is part of safety. Time decides when something is tried, never whether it has succeeded.
//! * A batch is acknowledged after its records stand in the log and its files are synced, and never before.
//! * What was once offered for a position is never changed: offered again, it is the same bytes. So a lost answer
//!   cannot make one batch two.
//! * A life of a node takes over by a seal of its own, whatever its earlier lives did.
//! * Nothing that a log answers makes anything panic or allocate past [`limits`].

pub mod chain;
pub mod limits;
pub mod log;
pub mod names;
pub mod node;
pub mod operation;
pub mod owner;
pub mod placement;
pub mod record;
pub mod retention;
pub mod standby;
pub mod tree;
pub mod wire;

#[cfg(test)]
mod simulation;
