//! The order in which extensions are asked: built-in ones, and middlewares of modules among them.
//!
//! Whoever has the lower priority lies further out; among equals, whoever comes first in the agent's
//! list. A built-in extension has the priority 0.

use std::collections::BTreeMap;

use goondan_protocol::message::MessageEvent;
use serde_json::Value;

use super::loaded::LoadedExtension;
use crate::middleware::{InvocationId, Middleware, MiddlewareScope};

/// The priority of built-in extensions, and of a middleware that names none.
const USUAL_PRIORITY: i64 = 0;

/// One layer of the stack. `place` is that of the extension in the agent's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    /// A built-in extension.
    Builtin { place: usize },
    /// A middleware of a module.
    Module { place: usize, number: u32 },
}

/// The layers around a turn, its steps and its calls, the outermost first.
#[derive(Debug, Default)]
pub(super) struct MiddlewareStack {
    turn: Vec<Layer>,
    step: Vec<Layer>,
    tool_call: Vec<Layer>,
    /// Events the turn had recorded before a crash, and how often.
    recorded: BTreeMap<String, usize>,
    last_invocation: u64,
}

impl MiddlewareStack {
    /// Takes note of the events that the turn had recorded before a crash.
    pub(super) fn recall(&mut self, recorded: &[MessageEvent]) {
        self.recorded.clear();
        for event in recorded {
            *self.recorded.entry(same(event)).or_default() += 1;
        }
    }

    /// Whether the turn has not recorded this event before a crash. Each recorded one counts once.
    pub(super) fn is_new(&mut self, event: &MessageEvent) -> bool {
        match self.recorded.get_mut(&same(event)) {
            Some(times) if *times > 0 => {
                *times -= 1;
                false
            }
            Some(_) | None => true,
        }
    }

    /// Puts all layers in order. What is registered by nobody is left out.
    pub(super) fn assemble(&mut self, loaded: &[LoadedExtension], middlewares: &[Middleware]) {
        for scope in [
            MiddlewareScope::Turn,
            MiddlewareScope::Step,
            MiddlewareScope::ToolCall,
        ] {
            let mut layers = Vec::new();
            for (place, loaded) in loaded.iter().enumerate() {
                if !loaded.is_module {
                    layers.push((USUAL_PRIORITY, place, 0, Layer::Builtin { place }));
                }
                let own = middlewares
                    .iter()
                    .filter(|middleware| middleware.scope == scope)
                    .filter(|middleware| loaded.is_module && middleware.extension == loaded.name);
                layers.extend(own.map(|middleware| {
                    let number = middleware.number;
                    let layer = Layer::Module { place, number };
                    (middleware.priority, place, number, layer)
                }));
            }
            layers.sort_by_key(|(priority, place, number, _)| (*priority, *place, *number));
            *self.layers_mut(scope) = layers.into_iter().map(|(_, _, _, layer)| layer).collect();
        }
    }

    /// The layers of a scope, the outermost first.
    pub(super) fn layers(&self, scope: MiddlewareScope) -> &[Layer] {
        match scope {
            MiddlewareScope::Turn => &self.turn,
            MiddlewareScope::Step => &self.step,
            MiddlewareScope::ToolCall => &self.tool_call,
        }
    }

    fn layers_mut(&mut self, scope: MiddlewareScope) -> &mut Vec<Layer> {
        match scope {
            MiddlewareScope::Turn => &mut self.turn,
            MiddlewareScope::Step => &mut self.step,
            MiddlewareScope::ToolCall => &mut self.tool_call,
        }
    }

    /// A number for the next invocation, never given twice.
    pub(super) fn next_invocation(&mut self) -> InvocationId {
        self.last_invocation += 1;
        InvocationId(self.last_invocation)
    }
}

/// What makes two events the same when a turn is resumed. Ids of messages follow from where they were
/// made, their times do not.
fn same(event: &MessageEvent) -> String {
    let key = match event {
        MessageEvent::Append { message } => ("append", message.id.as_str(), ""),
        MessageEvent::Replace { target_id, message } => {
            ("replace", target_id.as_str(), message.id.as_str())
        }
        MessageEvent::Remove { target_id } => ("remove", target_id.as_str(), ""),
        MessageEvent::Truncate => ("truncate", "", ""),
    };
    Value::from(vec![key.0, key.1, key.2]).to_string()
}
