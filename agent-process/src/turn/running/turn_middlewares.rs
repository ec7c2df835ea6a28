//! What a turn remembers for the extensions around it.

use std::collections::BTreeSet;

use goondan_protocol::event::AgentEvent;
use goondan_protocol::message::MessageEvent;

use super::phase::{Next, Open};
use crate::middleware::{ExtensionFault, MiddlewareScope};

/// What a turn remembers for the extensions around it. But for the step, it is empty without modules.
#[derive(Debug, Default)]
pub(super) struct TurnMiddlewares {
    /// The event that the turn answers, which modules are told; none without modules.
    pub(super) event: Option<Box<AgentEvent>>,
    /// The events of the turn, in order, which modules are told.
    pub(super) events: Vec<MessageEvent>,
    /// Middlewares of the turn that wait for what comes of `next()`, the outermost first.
    pub(super) open_turn: Vec<Open>,
    /// The same of the step.
    pub(super) open_step: Vec<Open>,
    /// The step that was begun last.
    pub(super) step: u32,
    /// Tools that are not offered in it.
    pub(super) hidden: BTreeSet<String>,
    /// Why the turn fails as soon as its calls have their results.
    pub(super) fault: Option<ExtensionFault>,
    /// What is emitted while calls that a crash cut short have no results yet.
    pub(super) held_back: Option<Vec<MessageEvent>>,
}

impl TurnMiddlewares {
    /// Whether modules stand around the turn.
    pub(super) fn has_modules(&self) -> bool {
        self.event.is_some()
    }

    /// Takes note of an event, for modules.
    pub(super) fn note(&mut self, event: impl FnOnce() -> MessageEvent) {
        if self.has_modules() {
            self.events.push(event());
        }
    }

    /// Why a tool is not offered in the step that was begun last, if a middleware took it out.
    pub(super) fn why_not_offered(&self, tool_name: &str) -> Option<String> {
        let is_hidden = self.hidden.contains(tool_name);
        is_hidden.then(|| format!("`{tool_name}` is not offered in this step"))
    }

    /// Whether the step and the turn are left before the turn goes on like this.
    pub(super) fn leaves(&self, next: &Next) -> (bool, bool) {
        match next {
            Next::Ask { step } => (*step > self.step, false),
            Next::End { .. } => (true, false),
            Next::Complete(_) => (true, true),
            Next::Call(_) | Next::Assemble(_) | Next::Enter(_) => (false, false),
        }
    }

    /// Whether the turn waits for durability before extensions are asked and it goes on like this:
    /// built-in extensions alone are asked at once.
    pub(super) fn waits_before(&self, next: &Next) -> bool {
        let (leaves_step, leaves_turn) = self.leaves(next);
        (leaves_step && !self.open_step.is_empty())
            || (leaves_turn && !self.open_turn.is_empty())
            || (self.has_modules() && matches!(next, Next::Assemble(_) | Next::Enter(_)))
    }

    /// The middleware that is to leave before the turn goes on like this.
    pub(super) fn leaver(&mut self, next: &Next) -> Option<(MiddlewareScope, Open)> {
        let (leaves_step, leaves_turn) = self.leaves(next);
        let of_step = leaves_step.then(|| self.open_step.pop()).flatten();
        if let Some(open) = of_step {
            return Some((MiddlewareScope::Step, open));
        }
        let of_turn = leaves_turn.then(|| self.open_turn.pop()).flatten();
        of_turn.map(|open| (MiddlewareScope::Turn, open))
    }
}
