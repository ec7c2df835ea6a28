//! Middlewares that were entered and have not left.

use std::time::Duration;

use goondan_clock::Instant;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::ExtensionName;

use crate::tool_call::ToolOutcome;

/// A middleware that was entered and has not left.
#[derive(Debug)]
pub(super) struct MiddlewareInvocation {
    pub(super) extension: ExtensionName,
    pub(super) timeout: Duration,
    /// Deadline for its next report; `None` while it waits for `next()` or for other agents.
    pub(super) deadline: Option<Instant>,
    /// Questions that wait for an answer.
    pub(super) asking: usize,
    /// Base number that keeps its questions distinct from those of other invocations.
    pub(super) asks_from: u32,
    pub(super) moment: InvocationScope,
}

/// The turn, step or call that it wraps, with its known results.
#[derive(Debug)]
pub(super) enum InvocationScope {
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

/// Base number of a middleware's questions: above those of tool calls, and distinct per invocation.
pub(super) fn asks_from(place: u32, number: u32) -> u32 {
    1_000_000_u32
        .saturating_add(place.saturating_mul(100_000))
        .saturating_add(number.saturating_mul(100))
}
