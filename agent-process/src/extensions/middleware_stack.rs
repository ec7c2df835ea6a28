//! The order in which extensions run: built-in extensions and middlewares of modules in one stack.
//!
//! A lower priority is further out; equal priorities keep the order of the agent's list. A built-in
//! extension has priority 0.

use std::collections::BTreeMap;

use goondan_protocol::message::MessageEvent;
use serde_json::Value;

use super::loaded_extension::LoadedExtension;
use crate::middleware::{InvocationId, Middleware, MiddlewareScope};

/// Priority of built-in extensions, and of a middleware without one.
const USUAL_PRIORITY: i64 = 0;

/// One layer of the stack. `place` is the extension's index in the agent's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    Builtin { place: usize },
    Module { place: usize, number: u32 },
}

/// The layers around a turn, its steps and its calls, the outermost first.
#[derive(Debug, Default)]
pub(super) struct MiddlewareStack {
    turn: Vec<Layer>,
    step: Vec<Layer>,
    tool_call: Vec<Layer>,
    /// Events that the turn recorded before a crash, with their counts.
    recorded: BTreeMap<String, usize>,
    last_invocation: u64,
}

impl MiddlewareStack {
    /// Loads the events that the turn recorded before a crash.
    pub(super) fn recall(&mut self, recorded: &[MessageEvent]) {
        self.recorded.clear();
        for event in recorded {
            *self.recorded.entry(same(event)).or_default() += 1;
        }
    }

    /// True if the turn did not record this event before a crash. Each recorded event counts once.
    pub(super) fn is_new(&mut self, event: &MessageEvent) -> bool {
        match self.recorded.get_mut(&same(event)) {
            Some(times) if *times > 0 => {
                *times -= 1;
                false
            }
            Some(_) | None => true,
        }
    }

    /// Sorts all layers. Modules without a registered middleware have no layer.
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

    /// A unique number for the next invocation.
    pub(super) fn next_invocation(&mut self) -> InvocationId {
        self.last_invocation += 1;
        InvocationId(self.last_invocation)
    }
}

/// Identity of an event across the resumption of a turn. Message ids are derived from the point of
/// creation; their times are not.
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
