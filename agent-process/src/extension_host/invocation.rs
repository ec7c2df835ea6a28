//! Middlewares that were entered and are not done.

use std::time::Duration;

use goondan_clock::Instant;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::ExtensionName;

use crate::tool_call::ToolOutcome;

/// A middleware that was entered and is not done.
#[derive(Debug)]
pub(super) struct MiddlewareInvocation {
    pub(super) extension: ExtensionName,
    pub(super) timeout: Duration,
    /// When it must be heard of; none while it waits for what lies further in, or for other agents.
    pub(super) deadline: Option<Instant>,
    /// Questions that wait for an answer.
    pub(super) asking: usize,
    /// What distinguishes its questions from those of others.
    pub(super) asks_from: u32,
    pub(super) moment: MomentOf,
}

/// What it stands around, with what is known of that by now.
#[derive(Debug)]
pub(super) enum MomentOf {
    Turn {
        outcome: Option<TurnOutcome>,
    },
    Step {
        step: u32,
        offered: Vec<String>,
    },
    Call {
        call_id: String,
        result: Option<ToolOutcome>,
    },
}

/// Where the places of a middleware's questions begin: above those of tool calls, and each apart.
pub(super) fn asks_from(place: u32, number: u32) -> u32 {
    1_000_000_u32
        .saturating_add(place.saturating_mul(100_000))
        .saturating_add(number.saturating_mul(100))
}
