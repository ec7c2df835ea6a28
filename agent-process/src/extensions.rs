//! Extensions: what stands around an agent's turns (`EXT-1` … `EXT-4`).
//!
//! An extension is asked at fixed places of a turn: when it begins, before each step, before and after
//! each tool call, and before it ends. They form a stack of layers: whoever comes first in the agent's list is
//! asked first on the way in and last on the way out. An extension changes the conversation by message
//! events alone, and remembers what it likes by `state` and `set_state`: what changed is written
//! together with the turn's commit, so that a crash leaves the state of before, or the state and the
//! turn.
//!
//! # What a crash means to an extension
//!
//! A turn that a crash cut short goes on in a new process, and its extensions are asked again from the
//! turn's beginning on, with the state of before the turn. Events they had emitted are recorded; a
//! message is not appended a second time, since its id follows from the place it was emitted at.

use std::fmt::Debug;

use goondan_protocol::conversation::{Conversation, MissingTarget};
use goondan_protocol::definition::{ExtensionDefinition, ExtensionSource};
use goondan_protocol::event::AgentEvent;
use goondan_protocol::extension_settings::{ExtensionSettings, InvalidSettings};
use goondan_protocol::ids::{
    AgentName, ExtensionName, ExtensionStates, InstanceKey, MessageId, TurnId,
};
use goondan_protocol::limits::MAX_EXTENSION_STATE_BYTES;
use goondan_protocol::message::{Message, MessageEvent, Role, ToolCall};
use goondan_protocol::time::Timestamp;
use serde_json::Value;

use crate::tool_call::ToolOutcome;
use middleware_stack::{MiddlewareStack, Module};

mod context_message;
mod inter_agent;
mod logging;
mod message_compaction;
mod message_integrity;
mod message_window;
pub(crate) mod middleware_stack;
mod required_tools;
mod tool_search;

/// The note of a message that its extension wants to stay where it is.
const KEPT: &str = "kept";

/// What an extension can do. Everything is optional.
pub(crate) trait Extension: Debug + Send {
    /// The turn begins, or begins again after a crash. Its input is part of the conversation.
    fn begin_turn(&mut self, _scene: &mut ExtensionContext<'_>) {}

    /// The model is about to be asked.
    fn before_step(&mut self, _scene: &mut ExtensionContext<'_>) {}

    /// A tool is about to run.
    ///
    /// # Errors
    ///
    /// What the model is told instead: the tool does not run.
    fn before_call(
        &mut self,
        _scene: &mut ExtensionContext<'_>,
        _call: &ToolCall,
    ) -> Result<(), String> {
        Ok(())
    }

    /// A tool has run; its outcome is not recorded yet.
    fn after_call(
        &mut self,
        _scene: &mut ExtensionContext<'_>,
        _call: &ToolCall,
        _outcome: &mut ToolOutcome,
    ) {
    }

    /// Whether it has what is long past summarized.
    fn is_summarizer(&self) -> bool {
        false
    }

    /// What is to be summarized before the turn's first step, if anything is.
    fn wants_summary(&mut self, _scene: &mut ExtensionContext<'_>) -> Option<SummaryWanted> {
        None
    }

    /// The summary came, now or before a crash, or it could not be had.
    fn take_summary(&mut self, _scene: &mut ExtensionContext<'_>, _summary: &Summary<'_>) {}

    /// Why the model is not offered this tool in the coming step; none if it is.
    fn why_not_offered(&self, _tool_name: &str) -> Option<String> {
        None
    }

    /// The model has answered, and the turn is about to end with this reply.
    fn end_turn(&mut self, _scene: &mut ExtensionContext<'_>, _reply: &mut String) -> Ending {
        Ending::Accept
    }
}

/// A summary that an extension wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SummaryWanted {
    /// Of how many messages: the oldest that may be summarized.
    pub(crate) count: usize,
    /// What the model is told to do.
    pub(crate) system: String,
    /// What it is to summarize.
    pub(crate) text: String,
}

/// A summary that came, or why none did.
#[derive(Debug)]
pub(crate) struct Summary<'a> {
    /// Of how many messages.
    pub(crate) count: usize,
    /// The model's reply, which is part of the conversation until it is taken out.
    pub(crate) reply_id: &'a MessageId,
    /// The id of the message that takes the place of what is summarized.
    pub(crate) message_id: &'a MessageId,
    /// What the model wrote.
    pub(crate) text: Result<&'a str, &'a str>,
}

/// What is to become of a turn that is about to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It ends.
    Accept,
    /// The model is asked once more.
    GoOn,
    /// It fails.
    Refuse {
        /// A stable code.
        code: &'static str,
        /// Why, for people to read.
        message: String,
    },
}

/// What came of asking extensions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ExtensionOutput {
    /// An event, applied to the conversation already; it is to be recorded.
    Event(Box<MessageEvent>),
    /// An event whose target is not there (`MSG-4`).
    Missing(MissingTarget),
    /// A line for the log, from this extension.
    Line(ExtensionName, String),
}

/// The turn that extensions stand around.
#[derive(Debug, Clone)]
pub(crate) struct TurnFacts {
    pub(crate) agent_name: AgentName,
    pub(crate) instance_key: InstanceKey,
    pub(crate) turn_id: TurnId,
    pub(crate) event: AgentEvent,
}

/// What an extension sees, and the means it has.
pub(crate) struct ExtensionContext<'a> {
    /// The turn.
    pub(crate) turn: &'a TurnFacts,
    /// The time.
    pub(crate) now: Timestamp,
    /// The messages as they stand, the running turn's included.
    pub(crate) conversation: &'a Conversation,
    name: &'a ExtensionName,
    state: &'a mut Option<Value>,
    place: &'a str,
    appended: usize,
    events: Vec<MessageEvent>,
    lines: Vec<String>,
}

impl ExtensionContext<'_> {
    /// What the extension remembers (`EXT-2`).
    pub(crate) fn state(&self) -> Option<&Value> {
        self.state.as_ref()
    }

    /// Remembers a value from the end of the turn on. One that is too large is not taken, and the log
    /// says so.
    pub(crate) fn set_state(&mut self, value: Value) {
        let bytes = value.to_string().len();
        if bytes < MAX_EXTENSION_STATE_BYTES {
            *self.state = Some(value);
        } else {
            self.log(format!(
                "a state of {bytes} bytes is not remembered; at most {MAX_EXTENSION_STATE_BYTES} are \
                 allowed"
            ));
        }
    }

    /// Changes the conversation, after this extension is done.
    pub(crate) fn emit(&mut self, event: MessageEvent) {
        self.events.push(event);
    }

    /// The id of the next message that is appended here; the same again after a crash.
    pub(crate) fn next_id(&mut self) -> Option<MessageId> {
        self.appended += 1;
        MessageId::new(format!(
            "{}:{}.{}",
            self.turn.turn_id, self.place, self.appended
        ))
        .ok()
    }

    /// Appends a message of the extension's own.
    pub(crate) fn append(&mut self, role: Role, text: &str) -> Option<MessageId> {
        let id = self.next_id()?;
        let message = Message::extension(id.clone(), self.now, self.name.clone(), role, text);
        self.emit(MessageEvent::Append { message });
        Some(id)
    }

    /// Whether a message with this id is there.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.messages().any(|message| message.id.as_str() == id)
    }

    /// The messages that can be read, oldest first.
    pub(crate) fn messages(&self) -> impl Iterator<Item = std::borrow::Cow<'_, Message>> {
        self.conversation.messages().filter_map(Result::ok)
    }

    /// The messages that may be summarized, oldest first.
    pub(crate) fn old_messages(&self) -> Vec<Message> {
        let old = self.messages();
        old.filter(|message| message_compaction::is_old(self, message))
            .map(std::borrow::Cow::into_owned)
            .collect()
    }

    /// Whether a message was made in the running turn.
    pub(crate) fn is_of_turn(&self, message: &Message) -> bool {
        let rest = message.id.as_str().strip_prefix(self.turn.turn_id.as_str());
        rest.is_some_and(|rest| rest.starts_with([':', '.']))
    }

    /// Writes a line to the agent's log.
    pub(crate) fn log(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }
}

#[derive(Debug)]
struct LoadedExtension {
    name: ExtensionName,
    extension: Box<dyn Extension>,
    state: Option<Value>,
    /// What it was when the latest turn was committed.
    committed: Option<Value>,
    /// Whether it is a module of the project, which is asked outside.
    is_module: bool,
}

/// The extensions of an agent, the outermost first.
#[derive(Debug)]
pub struct Extensions {
    agent_name: AgentName,
    instance_key: InstanceKey,
    loaded: Vec<LoadedExtension>,
    turn: Option<TurnFacts>,
    stack: MiddlewareStack,
}

/// The settings of an extension that cannot be used. Configuration is checked by the same rules.
#[derive(Debug, thiserror::Error)]
#[error("extension `{name}` cannot be used")]
pub struct ExtensionError {
    name: ExtensionName,
    #[source]
    source: InvalidSettings,
}

impl Extensions {
    /// Makes an agent's extensions, with what each remembers.
    ///
    /// # Errors
    ///
    /// [`ExtensionError`] if one's settings cannot be used.
    pub fn new(
        agent_name: AgentName,
        instance_key: InstanceKey,
        definitions: &[ExtensionDefinition],
        mut states: ExtensionStates,
    ) -> Result<Self, ExtensionError> {
        let mut loaded = Vec::with_capacity(definitions.len());
        for definition in definitions {
            let name = definition.name.clone();
            let extension = match &definition.source {
                ExtensionSource::Builtin { name: builtin, .. } => {
                    let settings = ExtensionSettings::read(builtin.as_str(), &definition.config);
                    of_settings(settings.map_err(|source| ExtensionError {
                        name: name.clone(),
                        source,
                    })?)
                }
                ExtensionSource::Module { .. } => Box::new(Module),
            };
            let state = states.remove(&name);
            loaded.push(LoadedExtension {
                name,
                extension,
                committed: state.clone(),
                state,
                is_module: matches!(definition.source, ExtensionSource::Module { .. }),
            });
        }
        Ok(Self {
            agent_name,
            instance_key,
            loaded,
            turn: None,
            stack: MiddlewareStack::default(),
        })
    }

    /// A turn begins.
    pub(crate) fn begin_turn(
        &mut self,
        turn_id: &TurnId,
        event: &AgentEvent,
        conversation: &mut Conversation,
        now: Timestamp,
    ) -> Vec<ExtensionOutput> {
        if self.loaded.is_empty() {
            return Vec::new();
        }
        self.stand_around(turn_id, event);
        let ask = |extension: &mut dyn Extension, context: &mut ExtensionContext<'_>| {
            extension.begin_turn(context);
        };
        self.ask_inwards(conversation, now, "b", ask)
    }

    /// The model is about to be asked for a step.
    pub(crate) fn before_step(
        &mut self,
        step: u32,
        conversation: &mut Conversation,
        now: Timestamp,
    ) -> Vec<ExtensionOutput> {
        let ask = |extension: &mut dyn Extension, context: &mut ExtensionContext<'_>| {
            extension.before_step(context);
        };
        self.ask_inwards(conversation, now, &format!("s{step}"), ask)
    }

    /// A tool is about to run: the first refusal counts.
    pub(crate) fn before_call(
        &mut self,
        call: &ToolCall,
        conversation: &mut Conversation,
        now: Timestamp,
    ) -> (Result<(), String>, Vec<ExtensionOutput>) {
        let mut verdict = Ok(());
        let outputs = self.ask_inwards(
            conversation,
            now,
            &format!("c{}", call.id),
            |extension, context| {
                if verdict.is_ok() {
                    verdict = extension.before_call(context, call);
                }
            },
        );
        (verdict, outputs)
    }

    /// A tool has run.
    pub(crate) fn after_call(
        &mut self,
        call: &ToolCall,
        outcome: &mut ToolOutcome,
        conversation: &mut Conversation,
        now: Timestamp,
    ) -> Vec<ExtensionOutput> {
        self.ask_outwards(
            conversation,
            now,
            &format!("r{}", call.id),
            |extension, context| {
                extension.after_call(context, call, outcome);
            },
        )
    }

    /// The turn is about to end. The first that does not accept is the last that is asked.
    pub(crate) fn end_turn(
        &mut self,
        step: u32,
        reply: &mut String,
        conversation: &mut Conversation,
        now: Timestamp,
    ) -> (Ending, Vec<ExtensionOutput>) {
        let mut ending = Ending::Accept;
        let outputs = self.ask_outwards(
            conversation,
            now,
            &format!("e{step}"),
            |extension, context| {
                if ending == Ending::Accept {
                    ending = extension.end_turn(context, reply);
                }
            },
        );
        (ending, outputs)
    }

    /// Asks the extension that has what is long past summarized, if there is one; of several, the first.
    pub(crate) fn wants_summary(
        &mut self,
        conversation: &mut Conversation,
        now: Timestamp,
    ) -> (Option<SummaryWanted>, Vec<ExtensionOutput>) {
        let mut wanted = None;
        let outputs = self.ask_summarizer(conversation, now, &mut |extension, context| {
            wanted = extension.wants_summary(context);
        });
        (wanted, outputs)
    }

    /// Tells it what came of that.
    pub(crate) fn take_summary(
        &mut self,
        summary: &Summary<'_>,
        conversation: &mut Conversation,
        now: Timestamp,
    ) -> Vec<ExtensionOutput> {
        self.ask_summarizer(conversation, now, &mut |extension, context| {
            extension.take_summary(context, summary);
        })
    }

    fn ask_summarizer(
        &mut self,
        conversation: &mut Conversation,
        now: Timestamp,
        ask: &mut impl FnMut(&mut dyn Extension, &mut ExtensionContext<'_>),
    ) -> Vec<ExtensionOutput> {
        let mut all = self.loaded.iter_mut().enumerate();
        let found = all.find(|(_, loaded)| loaded.extension.is_summarizer());
        match (&self.turn, found) {
            (Some(turn), Some((place, loaded))) => {
                loaded.ask(turn, conversation, now, &format!("x{place}s"), ask)
            }
            (None, _) | (_, None) => Vec::new(),
        }
    }

    /// Why the model is not offered this tool in the coming step, as the first extension says that keeps
    /// it back; none if it is offered.
    pub(crate) fn why_not_offered(&self, tool_name: &str) -> Option<String> {
        let mut loaded = self.loaded.iter();
        loaded.find_map(|loaded| loaded.extension.why_not_offered(tool_name))
    }

    /// What is remembered otherwise than at the latest commit (`EXT-3`).
    pub(crate) fn changed(&self) -> ExtensionStates {
        let changed = self
            .loaded
            .iter()
            .filter(|loaded| loaded.state != loaded.committed);
        changed
            .filter_map(|loaded| Some((loaded.name.clone(), loaded.state.clone()?)))
            .collect()
    }

    /// The turn is committed, and with it what is remembered.
    pub(crate) fn committed(&mut self) {
        for loaded in &mut self.loaded {
            loaded.committed.clone_from(&loaded.state);
        }
    }

    /// Takes note of the turn that is asked about from now on.
    fn stand_around(&mut self, turn_id: &TurnId, event: &AgentEvent) {
        self.turn = Some(TurnFacts {
            agent_name: self.agent_name.clone(),
            instance_key: self.instance_key.clone(),
            turn_id: turn_id.clone(),
            event: event.clone(),
        });
    }

    fn ask_inwards(
        &mut self,
        conversation: &mut Conversation,
        now: Timestamp,
        hook: &str,
        mut ask: impl FnMut(&mut dyn Extension, &mut ExtensionContext<'_>),
    ) -> Vec<ExtensionOutput> {
        let mut outputs = Vec::new();
        for place in 0..self.loaded.len() {
            outputs.extend(self.ask_at(place, conversation, now, hook, &mut ask));
        }
        outputs
    }

    fn ask_outwards(
        &mut self,
        conversation: &mut Conversation,
        now: Timestamp,
        hook: &str,
        mut ask: impl FnMut(&mut dyn Extension, &mut ExtensionContext<'_>),
    ) -> Vec<ExtensionOutput> {
        let mut outputs = Vec::new();
        for place in (0..self.loaded.len()).rev() {
            outputs.extend(self.ask_at(place, conversation, now, hook, &mut ask));
        }
        outputs
    }

    /// Asks one extension, by its place in the agent's list.
    fn ask_at(
        &mut self,
        place: usize,
        conversation: &mut Conversation,
        now: Timestamp,
        hook: &str,
        ask: &mut impl FnMut(&mut dyn Extension, &mut ExtensionContext<'_>),
    ) -> Vec<ExtensionOutput> {
        let (Some(turn), Some(loaded)) = (&self.turn, self.loaded.get_mut(place)) else {
            return Vec::new();
        };
        loaded.ask(turn, conversation, now, &format!("x{place}{hook}"), ask)
    }
}

impl LoadedExtension {
    fn ask(
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

fn of_settings(settings: ExtensionSettings) -> Box<dyn Extension> {
    match settings {
        ExtensionSettings::ContextMessage { text } => {
            Box::new(context_message::ContextMessage::new(text))
        }
        ExtensionSettings::InterAgentResponseFormat { instructions } => {
            Box::new(inter_agent::InterAgentResponseFormat::new(instructions))
        }
        ExtensionSettings::Logging { content } => Box::new(logging::Logging::new(content)),
        ExtensionSettings::MessageCompaction(settings) => {
            Box::new(message_compaction::MessageCompaction::new(settings))
        }
        ExtensionSettings::MessageIntegrity => Box::new(message_integrity::MessageIntegrity),
        ExtensionSettings::MessageWindow { max_messages } => {
            Box::new(message_window::MessageWindow::new(max_messages))
        }
        ExtensionSettings::RequiredToolsGuard {
            tools,
            max_reminders,
        } => Box::new(required_tools::RequiredTools::new(tools, max_reminders)),
        ExtensionSettings::ToolSearch {
            max_results: _,
            always_offered,
        } => Box::new(tool_search::ToolSearch::new(always_offered)),
    }
}

#[cfg(test)]
#[path = "extensions_tests.rs"]
mod tests;
