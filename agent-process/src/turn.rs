//! The turn engine: a turn as a pure state machine.
//!
//! [`Engine`] decides what a turn does next and nothing else: it does no I/O, reads no clock and no
//! randomness. Inputs go in ([`Input`]), effects come out ([`Effect`]); the process around it carries
//! them out. So a crash at every single effect can be played in a test.
//!
//! # Invariants
//!
//! * Every message event of a turn has a number, from 1, without gaps, also across resumptions.
//! * Nothing outside is touched (a model asked, a tool run) before everything appended so far is
//!   known to be durable. A model inside the process is nothing outside: its reply is recorded behind
//!   what it was asked.
//! * Message ids follow from the turn's id and the message's place in it, and what is recorded is
//!   never made again: a resumed turn never holds a message twice.
//! * A step whose reply is recorded is never asked again.
//! * A turn that goes in circles ends, by what is recorded of it and nothing else.
//! * In every ending each tool call has exactly one result.
//! * A middleware of a module is entered at most once for what it stands around, leaves after everything
//!   further in has, and brings no message between a call and its result.

mod answers;
mod around;
mod calls;
mod effect;
mod engine;
mod fault;
mod limits;
mod loop_breaker;
mod placed;
mod recorded;
mod running;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod summary_tests;

pub use effect::{Effect, Input, Observation, Scope};
pub use engine::Engine;
pub use fault::EngineFault;
pub use limits::{MAX_TURN_ID_BYTES, TurnLimits};
pub use recorded::OpenTurn;
