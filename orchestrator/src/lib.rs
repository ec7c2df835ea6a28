//! The orchestrator: one daemon per System Root that supervises agent and connector processes, routes
//! events to them, collects their logs and is the only writer of durable state.
//!
//! * `core`: every decision, as a state machine without I/O.
//! * `shell`: carries the decisions out: processes, sockets, logs, signals. It decides nothing.
//!
//! The store, the configuration and their invariants have crates of their own.

mod args;
mod core;
mod limits;
mod shell;

pub use shell::main;
