//! State that a turn keeps for the extensions around it.

use std::collections::BTreeSet;

use goondan_protocol::event::AgentEvent;
use goondan_protocol::message::MessageEvent;

use super::phase::{NextTurnAction, SuspendedMiddleware};
use crate::middleware::{ExtensionFault, MiddlewareScope};

/// State that a turn keeps for the extensions around it. Without modules, all fields but the step
/// are empty.
#[derive(Debug, Default)]
pub(super) struct TurnMiddlewares {
    /// Event that the turn answers, for modules; `None` without modules.
    pub(super) event: Option<Box<AgentEvent>>,
    /// Events of the turn in order, for modules.
    pub(super) events: Vec<MessageEvent>,
    /// Middlewares of the turn that wait for the result of `next()`, the outermost first.
    pub(super) open_turn: Vec<SuspendedMiddleware>,
    /// Middlewares of the step that wait for the result of `next()`, the outermost first.
    pub(super) open_step: Vec<SuspendedMiddleware>,
    /// The latest step that was begun.
    pub(super) step: u32,
    /// Tools that are not offered in that step.
    pub(super) hidden: BTreeSet<String>,
    /// The fault that fails the turn as soon as its calls have results.
    pub(super) fault: Option<ExtensionFault>,
    /// Events emitted while calls that a crash interrupted have no results yet.
    pub(super) held_back: Option<Vec<MessageEvent>>,
}

impl TurnMiddlewares {
    /// True if modules wrap the turn.
    pub(super) fn has_modules(&self) -> bool {
        self.event.is_some()
    }

    /// Keeps an event for modules.
    pub(super) fn note(&mut self, event: impl FnOnce() -> MessageEvent) {
        if self.has_modules() {
            self.events.push(event());
        }
    }

    /// Explains why a tool is not offered in the latest step, if a middleware removed it.
    pub(super) fn why_not_offered(&self, tool_name: &str) -> Option<String> {
        let is_hidden = self.hidden.contains(tool_name);
        is_hidden.then(|| format!("`{tool_name}` is not offered in this step"))
    }

    /// Returns whether the step and the turn are left before `next`.
    pub(super) fn leaves(&self, next: &NextTurnAction) -> (bool, bool) {
        match next {
            NextTurnAction::Ask { step } => (*step > self.step, false),
            NextTurnAction::End { .. } => (true, false),
            NextTurnAction::Complete(_) => (true, true),
            NextTurnAction::Call(_) | NextTurnAction::Assemble(_) | NextTurnAction::Enter(_) => {
                (false, false)
            }
        }
    }

    /// True if the turn must wait for durability before it asks extensions and continues with
    /// `next`. Built-in extensions alone are asked immediately.
    pub(super) fn waits_before(&self, next: &NextTurnAction) -> bool {
        let (leaves_step, leaves_turn) = self.leaves(next);
        (leaves_step && !self.open_step.is_empty())
            || (leaves_turn && !self.open_turn.is_empty())
            || (self.has_modules()
                && matches!(next, NextTurnAction::Assemble(_) | NextTurnAction::Enter(_)))
    }

    /// Returns the middleware that must leave before `next`.
    pub(super) fn leaver(
        &mut self,
        next: &NextTurnAction,
    ) -> Option<(MiddlewareScope, SuspendedMiddleware)> {
        let (leaves_step, leaves_turn) = self.leaves(next);
        let of_step = leaves_step.then(|| self.open_step.pop()).flatten();
        if let Some(open) = of_step {
            return Some((MiddlewareScope::Step, open));
        }
        let of_turn = leaves_turn.then(|| self.open_turn.pop()).flatten();
        of_turn.map(|open| (MiddlewareScope::Turn, open))
    }
}
