//! One extension of an agent, with its state.

use goondan_protocol::conversation::Conversation;
use goondan_protocol::ids::ExtensionName;
use goondan_protocol::message::MessageEvent;
use goondan_protocol::time::Timestamp;
use serde_json::Value;

use super::context::{ExtensionContext, TurnFacts};
use super::extension::{Extension, ExtensionOutput};

/// An extension of the agent, with its state.
#[derive(Debug)]
pub(super) struct LoadedExtension {
    pub(super) name: ExtensionName,
    pub(super) extension: Box<dyn Extension>,
    pub(super) state: Option<Value>,
    /// State at the latest commit.
    pub(super) committed: Option<Value>,
    /// True if it is a module of the project, which runs in the extension host.
    pub(super) is_module: bool,
}

impl LoadedExtension {
    /// Asks the extension and applies its events to the conversation.
    pub(super) fn ask(
        &mut self,
        turn: &TurnFacts,
        conversation: &mut Conversation,
        now: Timestamp,
        place: &str,
        ask: &mut impl FnMut(&mut dyn Extension, &mut ExtensionContext<'_>),
    ) -> Vec<ExtensionOutput> {
        let mut context = ExtensionContext {
            turn,
            now,
            conversation,
            name: &self.name,
            state: &mut self.state,
            place,
            appended: 0,
            events: Vec::new(),
            lines: Vec::new(),
        };
        ask(self.extension.as_mut(), &mut context);
        let (events, lines) = (context.events, context.lines);
        let mut outputs: Vec<ExtensionOutput> = Vec::with_capacity(events.len() + lines.len());
        for line in lines {
            outputs.push(ExtensionOutput::Line(self.name.clone(), line));
        }
        for event in events {
            if let MessageEvent::Append { message } = &event
                && conversation.has(&message.id)
            {
                continue;
            }
            if let Err(missing) = conversation.apply(event.clone()) {
                outputs.push(ExtensionOutput::Missing(missing));
            }
            outputs.push(ExtensionOutput::Event(Box::new(event)));
        }
        outputs
    }
}

/// Placeholder for a module in the list of built-in extensions.
#[derive(Debug)]
pub(super) struct Module;

impl Extension for Module {}
