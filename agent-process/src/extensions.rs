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

use goondan_protocol::conversation::Conversation;
use goondan_protocol::definition::{ExtensionDefinition, ExtensionSource};
use goondan_protocol::event::AgentEvent;
use goondan_protocol::extension_settings::{ExtensionSettings, InvalidSettings};
use goondan_protocol::ids::{AgentName, ExtensionName, ExtensionStates, InstanceKey, TurnId};
use goondan_protocol::message::{MessageEvent, ToolCall};
use goondan_protocol::time::Timestamp;

use crate::middleware::MiddlewareScope;
use crate::tool_call::ToolOutcome;
use context::{ExtensionContext, TurnFacts};
use extension::Extension;
use loaded::{LoadedExtension, Module};
use middleware_stack::{Layer, MiddlewareStack};

pub(crate) use extension::{Ending, ExtensionOutput, Summary, SummaryWanted};

mod context;
mod context_message;
mod extension;
mod inter_agent;
mod loaded;
mod logging;
mod message_compaction;
mod message_integrity;
mod message_window;
pub(crate) mod middleware_stack;
mod modules;
mod required_tools;
mod tool_search;

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
        let mut stack = MiddlewareStack::default();
        // Modules are put among the built-in ones once they are ready.
        stack.assemble(&loaded, &[]);
        Ok(Self {
            agent_name,
            instance_key,
            loaded,
            turn: None,
            stack,
        })
    }

    /// A turn begins; `recorded` is what a crash left of it.
    pub(crate) fn begin_turn(
        &mut self,
        turn_id: &TurnId,
        event: &AgentEvent,
        recorded: &[MessageEvent],
    ) {
        if self.loaded.is_empty() {
            return;
        }
        self.turn = Some(TurnFacts {
            agent_name: self.agent_name.clone(),
            instance_key: self.instance_key.clone(),
            turn_id: turn_id.clone(),
            event: event.clone(),
        });
        if self.has_modules() {
            self.stack.recall(recorded);
        }
    }

    /// A layer of a scope, the outermost being 0.
    pub(crate) fn layer(&self, scope: MiddlewareScope, at: usize) -> Option<Layer> {
        self.stack.layers(scope).get(at).copied()
    }

    /// How many layers a scope has.
    pub(crate) fn depth(&self, scope: MiddlewareScope) -> usize {
        self.stack.layers(scope).len()
    }

    /// The name of the extension at a place.
    pub(crate) fn name_at(&self, place: usize) -> Option<&ExtensionName> {
        self.loaded.get(place).map(|loaded| &loaded.name)
    }

    /// A built-in extension is asked where a turn or a step begins.
    pub(crate) fn enter_at(
        &mut self,
        place: usize,
        step: Option<u32>,
        conversation: &mut Conversation,
        now: Timestamp,
    ) -> Vec<ExtensionOutput> {
        let hook = step.map_or_else(|| "b".to_owned(), |step| format!("s{step}"));
        let mut ask = |extension: &mut dyn Extension, context: &mut ExtensionContext<'_>| match step
        {
            None => extension.begin_turn(context),
            Some(_) => extension.before_step(context),
        };
        self.ask_at(place, conversation, now, &hook, &mut ask)
    }

    /// A built-in extension is asked before a tool runs.
    pub(crate) fn before_call_at(
        &mut self,
        place: usize,
        call: &ToolCall,
        conversation: &mut Conversation,
        now: Timestamp,
    ) -> (Result<(), String>, Vec<ExtensionOutput>) {
        let mut verdict = Ok(());
        let mut ask = |extension: &mut dyn Extension, context: &mut ExtensionContext<'_>| {
            verdict = extension.before_call(context, call);
        };
        let outputs = self.ask_at(place, conversation, now, &format!("c{}", call.id), &mut ask);
        (verdict, outputs)
    }

    /// A built-in extension is asked after a tool has run.
    pub(crate) fn after_call_at(
        &mut self,
        place: usize,
        call: &ToolCall,
        outcome: &mut ToolOutcome,
        conversation: &mut Conversation,
        now: Timestamp,
    ) -> Vec<ExtensionOutput> {
        let mut ask = |extension: &mut dyn Extension, context: &mut ExtensionContext<'_>| {
            extension.after_call(context, call, outcome);
        };
        self.ask_at(place, conversation, now, &format!("r{}", call.id), &mut ask)
    }

    /// The turn is about to end. The first that does not accept is the last that is asked.
    pub(crate) fn end_turn(
        &mut self,
        step: u32,
        reply: &mut String,
        conversation: &mut Conversation,
        now: Timestamp,
    ) -> (Ending, Vec<ExtensionOutput>) {
        let hook = format!("e{step}");
        let mut ending = Ending::Accept;
        let mut outputs = Vec::new();
        for place in (0..self.loaded.len()).rev() {
            let mut ask = |extension: &mut dyn Extension, context: &mut ExtensionContext<'_>| {
                ending = extension.end_turn(context, reply);
            };
            outputs.extend(self.ask_at(place, conversation, now, &hook, &mut ask));
            if ending != Ending::Accept {
                break;
            }
        }
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
        ExtensionSettings::MessageIntegrity {} => Box::new(message_integrity::MessageIntegrity),
        ExtensionSettings::MessageWindow { max_messages } => {
            Box::new(message_window::MessageWindow::new(max_messages))
        }
        ExtensionSettings::RequiredToolsGuard {
            tools,
            max_reminders,
            any_of,
            message,
        } => Box::new(required_tools::RequiredTools::new(
            tools,
            max_reminders,
            any_of,
            message,
        )),
        ExtensionSettings::ToolSearch {
            always_offered,
            tool_name,
            persist_selection,
            ..
        } => Box::new(tool_search::ToolSearch::new(
            tool_name,
            always_offered,
            persist_selection,
        )),
    }
}

#[cfg(test)]
#[path = "extensions_tests.rs"]
mod tests;
