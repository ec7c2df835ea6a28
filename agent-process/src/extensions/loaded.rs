//! One extension of an agent, and how it is asked.

use goondan_protocol::conversation::Conversation;
use goondan_protocol::ids::ExtensionName;
use goondan_protocol::message::MessageEvent;
use goondan_protocol::time::Timestamp;
use serde_json::Value;

use super::context::{ExtensionContext, TurnFacts};
use super::extension::{Extension, ExtensionOutput};

/// An extension of the agent, with what it remembers.
#[derive(Debug)]
pub(super) struct LoadedExtension {
    pub(super) name: ExtensionName,
    pub(super) extension: Box<dyn Extension>,
    pub(super) state: Option<Value>,
    /// What it was when the latest turn was committed.
    pub(super) committed: Option<Value>,
    /// Whether it is a module of the project, which is asked outside.
    pub(super) is_module: bool,
}

impl LoadedExtension {
    /// Asks it; what it emits is applied to the conversation.
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

/// What stands in for a module where built-in extensions are asked.
#[derive(Debug)]
pub(super) struct Module;

impl Extension for Module {}
