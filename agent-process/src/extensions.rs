//! Extensions: code that wraps an agent's turns (`EXT-1` … `EXT-4`).
//!
//! An extension is asked at fixed points of a turn: at its start, before each step, before and
//! after each tool call, and before its end. Extensions form a stack of layers: the first in the
//! agent's list is asked first on the way in and last on the way out. An extension changes the
//! conversation only through message events, and stores its own state through `state` and
//! `set_state`. State changes are written together with the turn's commit, so a crash leaves either
//! the old state, or the new state and the committed turn.
//!
//! # Extensions and crashes
//!
//! A turn interrupted by a crash continues in a new process, and its extensions are asked again
//! from the start of the turn, with the state from before the turn. The events they emitted are
//! recorded. A message is not appended twice, because its id is derived from the point at which it
//! was emitted.

use std::fmt::Debug;

use goondan_protocol::base_package::BaseContract;
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
use loaded_extension::{LoadedExtension, Module};
use middleware_stack::{Layer, MiddlewareStack};

pub(crate) use extension::{ExtensionOutput, Summary, SummaryRequest, TurnEndDecision};

mod context;
mod context_message;
mod extension;
mod inter_agent;
mod loaded_extension;
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

/// An extension's settings are unusable. Configuration is checked by the same rules.
#[derive(Debug, thiserror::Error)]
#[error("extension `{name}` cannot be used")]
pub struct ExtensionError {
    name: ExtensionName,
    #[source]
    source: InvalidSettings,
}

impl Extensions {
    /// Creates an agent's extensions with their stored states.
    ///
    /// # Errors
    ///
    /// [`ExtensionError`] if the settings of an extension are unusable.
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
        // Modules are inserted among the built-in extensions once they are ready.
        stack.assemble(&loaded, &[]);
        Ok(Self {
            agent_name,
            instance_key,
            loaded,
            turn: None,
            stack,
        })
    }

    /// Sets the contract of `@goondan/base` that the agent has; it is the current one otherwise.
    #[must_use]
    pub fn with_contract(mut self, contract: BaseContract) -> Self {
        for loaded in &mut self.loaded {
            loaded.extension.set_contract(contract);
        }
        self
    }

    /// Begins a turn; `recorded` holds its events that survived a crash.
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

    /// A layer of a scope; the outermost is 0.
    pub(crate) fn layer(&self, scope: MiddlewareScope, at: usize) -> Option<Layer> {
        self.stack.layers(scope).get(at).copied()
    }

    /// Number of layers of a scope.
    pub(crate) fn depth(&self, scope: MiddlewareScope) -> usize {
        self.stack.layers(scope).len()
    }

    /// Name of the extension at an index.
    pub(crate) fn name_at(&self, place: usize) -> Option<&ExtensionName> {
        self.loaded.get(place).map(|loaded| &loaded.name)
    }

    /// Asks a built-in extension at the start of a turn or a step.
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

    /// Asks a built-in extension before a tool runs.
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

    /// Asks a built-in extension after a tool has run.
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

    /// Asks the extensions whether the turn may end, and stops at the first that does not accept.
    pub(crate) fn end_turn(
        &mut self,
        step: u32,
        reply: &mut String,
        conversation: &mut Conversation,
        now: Timestamp,
    ) -> (TurnEndDecision, Vec<ExtensionOutput>) {
        let hook = format!("e{step}");
        let mut ending = TurnEndDecision::Accept;
        let mut outputs = Vec::new();
        for place in (0..self.loaded.len()).rev() {
            let mut ask = |extension: &mut dyn Extension, context: &mut ExtensionContext<'_>| {
                ending = extension.end_turn(context, reply);
            };
            outputs.extend(self.ask_at(place, conversation, now, &hook, &mut ask));
            if ending != TurnEndDecision::Accept {
                break;
            }
        }
        (ending, outputs)
    }

    /// Asks the first extension that requests summaries of old messages, if any.
    pub(crate) fn wants_summary(
        &mut self,
        conversation: &mut Conversation,
        now: Timestamp,
    ) -> (Option<SummaryRequest>, Vec<ExtensionOutput>) {
        let mut wanted = None;
        let outputs = self.ask_summarizer(conversation, now, &mut |extension, context| {
            wanted = extension.wants_summary(context);
        });
        (wanted, outputs)
    }

    /// Passes the summary or its failure to that extension.
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

    /// Explains why the model is not offered this tool in the coming step, from the first extension
    /// that hides it; `None` if it is offered.
    pub(crate) fn why_not_offered(&self, tool_name: &str) -> Option<String> {
        let mut loaded = self.loaded.iter();
        loaded.find_map(|loaded| loaded.extension.why_not_offered(tool_name))
    }

    /// States that differ from the latest commit (`EXT-3`).
    pub(crate) fn changed(&self) -> ExtensionStates {
        let changed = self
            .loaded
            .iter()
            .filter(|loaded| loaded.state != loaded.committed);
        changed
            .filter_map(|loaded| Some((loaded.name.clone(), loaded.state.clone()?)))
            .collect()
    }

    /// Marks the states as committed together with the turn.
    pub(crate) fn committed(&mut self) {
        for loaded in &mut self.loaded {
            loaded.committed.clone_from(&loaded.state);
        }
    }

    /// Asks one extension, by its index in the agent's list.
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
        ExtensionSettings::Logging { content } => Box::new(logging::TurnLogger::new(content)),
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
