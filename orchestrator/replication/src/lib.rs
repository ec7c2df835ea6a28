//! A workspace that survives the loss of its node: decision logic without I/O (`REP-1`).
//!
//! Modules, from the lowest layer up: names and hashes ([`names`]); file changes and the resulting
//! files ([`operation`], [`tree`]); the record that contains them ([`record`]); the order of
//! records ([`chain`]); the log that stores them ([`log`]); the node that writes the log
//! ([`owner`]), and the nodes that replay it and take over ([`standby`]); the preferred node
//! ([`placement`]), and truncation of the log ([`retention`]). [`wire`] is the protocol between the
//! daemon and the program that holds the connection to the log; [`node`] combines all workspaces of
//! a node.
//!
//! ```text
//!             released, or owner silent for a while
//!  standby ──────────── seal(epoch + 1) ───────────▶ owner
//!     ▲                                                │ its position is taken: fenced
//!     └──────────────── a new life ◀───────────────────┘
//! ```
//!
//! # Invariants
//!
//! * State machines read no clock and do no I/O: time, records and answers are inputs, effects are
//!   outputs.
//! * Safety does not depend on clocks. Time decides when something is attempted, never if it
//!   succeeded.
//! * A batch is acknowledged only after its records are in the log and its files are synced.
//! * The record offered for a position never changes: a retry offers the same bytes. A lost answer
//!   therefore cannot duplicate a batch.
//! * Each life of a node takes over with its own seal, independent of earlier lives.
//! * No answer of a log causes a panic or an allocation beyond [`limits`].

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
