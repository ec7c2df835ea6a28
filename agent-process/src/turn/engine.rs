//! The engine: one conversation, and the turn that runs in it.

use goondan_protocol::conversation::{Conversation, MissingTarget};
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{ExtensionStates, MessageId, TurnId};
use goondan_protocol::ipc::TurnStart;
use goondan_protocol::message::MessageEvent;
use goondan_protocol::observe::RuntimeEventKind as Kind;
use goondan_protocol::time::Timestamp;

use super::answers::{Answers, message_of};
use super::context::AdvanceContext;
use super::effect::{Scope, TurnEngineEffect, TurnEngineInput};
use super::fault::EngineFault;
use super::limits::{MAX_TURN_ID_BYTES, TurnLimits};
use super::machine::RunningTurn;
use super::node_tracker;
use super::recovered_turn::{OpenTurn, Progress};
use crate::extensions::Extensions;
use crate::tool_call::ToolRules;

/// One agent's conversation and the current turn.
#[derive(Debug)]
pub struct Engine<R> {
    rules: R,
    limits: TurnLimits,
    extensions: Extensions,
    conversation: Conversation,
    open: OpenTurn,
    warnings: Vec<MissingTarget>,
    turn: Option<RunningTurn>,
    /// Name of this node, if the workspace is shared by several.
    node: Option<String>,
}

impl<R: ToolRules> Engine<R> {
    /// Creates an idle engine from a loaded conversation: its confirmed messages and the events of
    /// the open turn.
    pub fn new(
        rules: R,
        limits: TurnLimits,
        extensions: Extensions,
        base: Conversation,
        open: OpenTurn,
    ) -> Self {
        let mut conversation = base;
        let warnings = open
            .events()
            .iter()
            .filter_map(|event| conversation.apply(event.clone()).err())
            .collect();
        Self {
            rules,
            limits,
            extensions,
            conversation,
            open,
            warnings,
            turn: None,
            node: None,
        }
    }

    /// Sets the node of a workspace that several nodes share. An agent whose conversation moved
    /// from another node is notified.
    #[must_use]
    pub fn on_node(mut self, node: Option<String>) -> Self {
        self.node = node;
        self
    }

    /// The current conversation, including the messages of the running turn.
    #[must_use]
    pub fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// Extension states that differ from the latest commit (`EXT-2`).
    #[must_use]
    pub fn changed_states(&self) -> ExtensionStates {
        self.extensions.changed()
    }

    /// True if the model is offered this tool of the catalog in the coming step.
    #[must_use]
    pub fn offers(&self, tool_name: &str) -> bool {
        let is_hidden = self.turn.as_ref().is_some_and(|turn| turn.hides(tool_name));
        !is_hidden && self.extensions.why_not_offered(tool_name).is_none()
    }

    /// The events of the running turn, if modules of extensions wrap it.
    #[must_use]
    pub fn turn_events(&self) -> &[MessageEvent] {
        self.turn.as_ref().map_or(&[], RunningTurn::events)
    }

    /// The event that the running turn answers, if modules of extensions wrap it.
    #[must_use]
    pub fn turn_event(&self) -> Option<&AgentEvent> {
        self.turn.as_ref().and_then(RunningTurn::event)
    }

    /// The states of the modules of extensions.
    #[must_use]
    pub fn states_of_modules(&self) -> ExtensionStates {
        self.extensions.states_of_modules()
    }

    /// True if the turn waits for people to approve exactly `count` of its calls, and for nothing
    /// else.
    #[must_use]
    pub(crate) fn only_waits_for_people(&self, count: usize) -> bool {
        let turn = self.turn.as_ref();
        turn.is_some_and(|turn| turn.only_waits_for_people(count))
    }

    #[must_use]
    pub fn turn_id(&self) -> Option<&TurnId> {
        self.turn.as_ref().map(RunningTurn::id)
    }

    /// Begins a turn, or resumes the one whose events were loaded.
    ///
    /// # Errors
    ///
    /// [`EngineFault`] if the turn cannot be started now.
    pub fn start(
        &mut self,
        start: &TurnStart,
        now: Timestamp,
    ) -> Result<Vec<TurnEngineEffect>, EngineFault> {
        let given = start.turn_id.clone();
        if let Some(turn) = &self.turn {
            return Err(EngineFault::Busy {
                given,
                running: turn.id().clone(),
            });
        }
        if given.as_str().len() > MAX_TURN_ID_BYTES {
            return Err(EngineFault::TurnIdTooLong {
                len: given.as_str().len(),
            });
        }
        let open = std::mem::take(&mut self.open);
        if let Some(recorded) = open.turn_id().filter(|recorded| **recorded != given) {
            return Err(EngineFault::ForeignEvents {
                given,
                recorded: recorded.clone(),
            });
        }
        let input = start.event.input.as_deref().unwrap_or("");
        let recorded_seq = u64::try_from(open.events().len()).unwrap_or(u64::MAX);
        let answers = Answers::after(open.taken_in(&given));
        let mut turn = RunningTurn::new(given, recorded_seq, self.limits, answers);
        let resumed = start.attempt > 1 || recorded_seq > 0;
        let kind = if resumed {
            Kind::TurnResumed
        } else {
            Kind::TurnStarted
        };
        turn.observe(kind, Scope::Turn, input);
        for warning in self.warnings.drain(..) {
            turn.observe(Kind::MessageWarning, Scope::Turn, &warning.to_string());
        }
        turn.remember(&open);
        if self.extensions.has_modules() {
            turn.keep_for_modules(&start.event, &open);
        }
        let user_id = MessageId::new(format!("{}:u", turn.id()))?;
        let node = self.node.as_deref();
        let before = node.and_then(|_| node_tracker::last_node(&self.conversation));
        match open.progress(turn.id(), user_id.as_str()) {
            Progress::Nothing => {
                let mut message = message_of(user_id, now, &start.event);
                if let Some(node) = node {
                    node_tracker::note(&mut message, node);
                }
                turn.append(&mut self.conversation, message);
            }
            Progress::Asked => {}
            Progress::Replied(replied) => turn.resume_after(&self.rules, replied),
        }
        if let (Some(node), Some(before)) = (node, before)
            && node != before
        {
            let id = MessageId::new(format!("{}:n{recorded_seq}", turn.id()))?;
            turn.tell(node_tracker::moved(id, now, &before, node));
        }
        turn.enter_extensions();
        self.extensions
            .begin_turn(turn.id(), &start.event, open.events());
        self.advance(turn, now)
    }

    /// Handles an input and returns the resulting effects.
    ///
    /// # Errors
    ///
    /// [`EngineFault`] if the input does not fit the turn's current state.
    pub fn handle(
        &mut self,
        input: TurnEngineInput,
        now: Timestamp,
    ) -> Result<Vec<TurnEngineEffect>, EngineFault> {
        let Some(mut turn) = self.turn.take() else {
            return Err(unexpected(&input, "no turn was running"));
        };
        let doing = turn.doing();
        match input {
            TurnEngineInput::Durable { turn_id, seq } if turn_id == *turn.id() => {
                turn.durable(seq)?;
            }
            TurnEngineInput::ModelReplied { step, reply } if turn.is_asking(step) => {
                turn.take_reply(&self.rules, &mut self.conversation, step, reply, now)?;
            }
            TurnEngineInput::ModelRecorded { step, message } if turn.is_asking(step) => {
                turn.take_recorded(&self.rules, &mut self.conversation, step, *message);
            }
            TurnEngineInput::ModelFailed { step, error } if turn.is_asking(step) => {
                turn.fail_step(step, error);
            }
            TurnEngineInput::Summarized { came } if turn.is_summarizing() => {
                let mut around = AdvanceContext {
                    extensions: &mut self.extensions,
                    conversation: &mut self.conversation,
                    now,
                };
                turn.summarize(&mut around, came)?;
            }
            TurnEngineInput::ToolFinished { key, outcome } if turn.is_running(key) => {
                turn.finish_call(key, outcome);
            }
            TurnEngineInput::Answer { event } => turn.give(*event),
            TurnEngineInput::Assembled { middlewares } if turn.is_assembling() => {
                turn.assembled(&mut self.extensions, &middlewares);
            }
            TurnEngineInput::MiddlewareActed { invocation, event } => {
                let mut around = AdvanceContext {
                    extensions: &mut self.extensions,
                    conversation: &mut self.conversation,
                    now,
                };
                turn.hear(&mut around, invocation, event);
            }
            TurnEngineInput::ExtensionsLost { fault } => turn.lose_modules(fault),
            TurnEngineInput::Committed { turn_id }
                if turn_id == *turn.id() && turn.is_completing() =>
            {
                self.extensions.committed();
                return Ok(Vec::new());
            }
            other => return Err(unexpected(&other, doing)),
        }
        self.advance(turn, now)
    }

    /// Advances the turn as far as it can go without another input.
    fn advance(
        &mut self,
        mut turn: RunningTurn,
        now: Timestamp,
    ) -> Result<Vec<TurnEngineEffect>, EngineFault> {
        let mut around = AdvanceContext {
            extensions: &mut self.extensions,
            conversation: &mut self.conversation,
            now,
        };
        while turn.step_forward(&self.rules, self.limits.step_count_max, &mut around)? {}
        let effects = turn.take_effects();
        self.turn = Some(turn);
        let has_failed = |effect: &TurnEngineEffect| {
            let TurnEngineEffect::Complete { outcome, .. } = effect else {
                return false;
            };
            matches!(outcome, TurnOutcome::Failed { .. })
        };
        if effects.iter().any(has_failed) {
            self.extensions.forget_turn();
        }
        Ok(effects)
    }
}

fn unexpected(input: &TurnEngineInput, doing: &'static str) -> EngineFault {
    let input = match input {
        TurnEngineInput::Durable { turn_id, seq } => {
            format!("`turn.appended` {seq} of turn `{turn_id}`")
        }
        TurnEngineInput::ModelReplied { step, .. } => format!("a reply for step {step}"),
        TurnEngineInput::ModelRecorded { step, .. } => format!("a recorded reply for step {step}"),
        TurnEngineInput::ModelFailed { step, .. } => format!("a model failure for step {step}"),
        TurnEngineInput::Summarized { .. } => "a summary".to_owned(),
        TurnEngineInput::ToolFinished { key, .. } => {
            format!("the result of call {} of step {}", key.index, key.step)
        }
        TurnEngineInput::Answer { event } => format!("answer `{}`", event.id),
        TurnEngineInput::Assembled { .. } => "report that extensions are ready".to_owned(),
        TurnEngineInput::MiddlewareActed { invocation, .. } => {
            format!("report of invocation {} of an extension", invocation.0)
        }
        TurnEngineInput::ExtensionsLost { .. } => "report that extensions are lost".to_owned(),
        TurnEngineInput::Committed { turn_id } => format!("`turn.committed` of turn `{turn_id}`"),
    };
    EngineFault::Unexpected { input, doing }
}
