//! The orchestrator: one daemon per System Root that supervises agent and connector processes,
//! routes events to them, collects their logs and is the only writer of durable state.
//!
//! # Map
//!
//! * [`goondan_core`]: every decision, as a state machine without I/O. It maps an `Input` to a list
//!   of `Effect`s.
//! * `shell`: executes the effects and reports events to the core. It makes no decisions.
//!   `supervisor` is the event loop; `child`, `control`, `loading`, `logs` and `strays` are the
//!   parts it drives.
//! * `metrics`: counters and their snapshot. No I/O.
//! * `limits`: every limit and interval, as a named constant.
//!
//! The store and the configuration, with their invariants, are in the crates `goondan_store` and
//! `goondan_config`.
//!
//! # Invariants
//!
//! * The core reads no clock, file or random number, so every run can be replayed.
//! * One task owns every child and every open request, without shared state or polling.
//! * An event is accepted, a record durable and a turn done only after the store has confirmed it.
//! * Every queue is bounded and documents its behavior when full. No child, client or log reader
//!   can block the others.
//! * When the daemon ends for any reason, all processes that it started end (`SUP-7`).
//!
//! See `docs/architecture.md`.

mod args;
mod limits;
mod metrics;
mod shell;

pub use shell::main;
