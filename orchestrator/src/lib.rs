//! The orchestrator: one daemon per System Root that supervises agent and connector processes, routes
//! events to them, collects their logs and is the only writer of durable state.
//!
//! # Map
//!
//! * [`goondan_core`]: every decision, as a state machine without I/O. Something happened, an `Input`, goes
//!   in; what is to be done about it, `Effect`s, comes out.
//! * `shell`: carries the effects out and tells the core what happened. It decides nothing. Its
//!   `supervisor` is the one loop; `child`, `control`, `loading`, `logs` and `strays` are its hands.
//! * `metrics`: what is counted, and the one snapshot of it. No I/O.
//! * `limits`: every bound and interval, with its name.
//!
//! The store, the configuration and their invariants have crates of their own: `goondan_store` and
//! `goondan_config`.
//!
//! # Invariants
//!
//! * The core reads no clock, no file and no randomness, so every run of it can be repeated.
//! * One task owns every child and every open request. Nothing is shared, nothing is polled.
//! * Nobody is told that an event is accepted, a record durable or a turn done before the store has
//!   said so.
//! * Every queue is bounded and says what happens when it is full. No child, client or reader of the
//!   log can make the others wait for it.
//! * When the daemon ends, however it ends, no process that it started goes on (`SUP-7`).
//!
//! `docs/architecture.md` tells the whole story.

mod args;
mod limits;
mod metrics;
mod shell;

pub use shell::main;
