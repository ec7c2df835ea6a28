//! The turn engine: a turn as a pure state machine.
//!
//! [`Engine`] only decides what a turn does next. It does no I/O and reads neither the clock nor
//! randomness. Inputs go in ([`TurnEngineInput`]), effects come out ([`TurnEngineEffect`]), and the surrounding process
//! executes the effects. A test can therefore inject a crash at every single effect.
//!
//! # Invariants
//!
//! * Every message event of a turn has a number. Numbers start at 1 and have no gaps, even across
//!   resumptions.
//! * Nothing outside the process is touched (model asked, tool run) before everything appended so
//!   far is known to be durable. A model inside the process does not count as outside: its reply is
//!   recorded after the messages it answers.
//! * Message ids are derived from the turn's id and the message's place in it, and recorded
//!   messages are never created again, so a resumed turn never holds a message twice.
//! * A step whose reply is recorded is never asked again.
//! * Loop detection ends a turn based only on the turn's records.
//! * However the turn ends, each tool call has exactly one result.
//! * A module's middleware is entered at most once per turn, step or call that it wraps, leaves
//!   after every layer inside it has left, and inserts no message between a call and its result.

mod answers;
mod calls;
mod context;
mod effect;
mod engine;
mod fault;
mod limits;
mod loop_breaker;
mod machine;
mod node_tracker;
mod recovered_turn;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod summary_tests;

pub use effect::{Observation, Scope, TurnEngineEffect, TurnEngineInput};
pub use engine::Engine;
pub use fault::EngineFault;
pub use limits::{MAX_TURN_ID_BYTES, TurnLimits};
pub use recovered_turn::OpenTurn;
