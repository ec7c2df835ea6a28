//! One running turn: user message → (model → tools)* → answer.

mod advance;
mod middlewares;
mod phase;
mod summary;
mod turn_middlewares;

use std::collections::BTreeSet;

use goondan_protocol::conversation::Conversation;
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{InvalidId, MessageId, StepId, TurnId};
use goondan_protocol::message::{Message, MessageContent, MessageEvent};
use goondan_protocol::observe::{ModelResponse, RuntimeEventKind as Kind, detail_of};
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::{ReplyCost, UsageTotal};

use super::answers::Answers;
use super::calls::Calls;
use super::effect::{Observation, Scope, TurnEngineEffect};
use super::fault::EngineFault;
use super::limits::TurnLimits;
use super::loop_breaker::LoopDetector;
use crate::extensions::ExtensionOutput;
use crate::model::ModelLocation;
use crate::model::{ModelError, ModelReply};
use crate::tool_call::{CallKey, MAX_CALLS_PER_STEP, ToolRules};
use phase::{Compaction, NextTurnAction, Phase};
use turn_middlewares::TurnMiddlewares;

/// The current turn and the effects gathered since they were last taken.
#[derive(Debug)]
pub(crate) struct RunningTurn {
    id: TurnId,
    sent_seq: u64,
    durable_seq: u64,
    model: ModelLocation,
    phase: Phase,
    watch: LoopDetector,
    answers: Answers,
    /// Notice to the agent before its next step.
    told: Option<Message>,
    /// Spending of the latest reply and of all replies of the turn, as recorded.
    latest: ReplyCost,
    spending: UsageTotal,
    /// Metadata that the provider returned with the latest reply.
    response: Option<ModelResponse>,
    /// Last step for which extensions were asked.
    prepared_step: u32,
    /// State of the middlewares of modules.
    middlewares: TurnMiddlewares,
    compaction: Compaction,
    effects: Vec<TurnEngineEffect>,
}

impl RunningTurn {
    /// Creates a turn whose first `recorded_seq` events are already durable.
    pub(crate) fn new(id: TurnId, recorded_seq: u64, limits: TurnLimits, answers: Answers) -> Self {
        Self {
            id,
            sent_seq: recorded_seq,
            durable_seq: recorded_seq,
            phase: Phase::Settling(NextTurnAction::Ask { step: 1 }),
            watch: LoopDetector::new(limits.loop_breaker),
            model: limits.model,
            answers,
            told: None,
            latest: ReplyCost::default(),
            response: None,
            spending: UsageTotal::default(),
            prepared_step: 0,
            middlewares: TurnMiddlewares::default(),
            compaction: Compaction::default(),
            effects: Vec::new(),
        }
    }

    pub(crate) fn id(&self) -> &TurnId {
        &self.id
    }

    pub(crate) fn take_effects(&mut self) -> Vec<TurnEngineEffect> {
        std::mem::take(&mut self.effects)
    }

    /// The turn's current activity, for errors.
    pub(crate) fn doing(&self) -> &'static str {
        match self.phase {
            Phase::Settling(_) => "the turn waited for durability",
            Phase::Asking { .. } => "the model was asked",
            Phase::Summarizing { .. } => "the model was asked for a summary",
            Phase::Calling(_) => "tools ran",
            Phase::Assembling(_) => "the modules of extensions were made ready",
            Phase::Invoking(_) => "a middleware of an extension worked",
            Phase::Completing => "the turn waited for its commit",
        }
    }

    pub(crate) fn is_asking(&self, step: u32) -> bool {
        matches!(self.phase, Phase::Asking { step: asked } if asked == step)
    }

    pub(crate) fn is_running(&self, key: CallKey) -> bool {
        matches!(&self.phase, Phase::Calling(calls) if calls.is_running(key))
    }

    /// True if the turn waits for people to approve exactly `count` calls, and for nothing else.
    pub(crate) fn only_waits_for_people(&self, count: usize) -> bool {
        let is_settled = self.durable_seq == self.sent_seq;
        is_settled && matches!(&self.phase, Phase::Calling(it) if it.only_wait_for_people(count))
    }

    pub(crate) fn is_completing(&self) -> bool {
        matches!(self.phase, Phase::Completing)
    }

    pub(crate) fn observe(&mut self, kind: Kind, scope: Scope, detail: &str) {
        let spent = match kind {
            Kind::StepCompleted => self.latest,
            Kind::TurnCompleted | Kind::TurnFailed => self.spending.as_spent(),
            _ => ReplyCost::default(),
        };
        let is_step = kind == Kind::StepCompleted;
        self.effects.push(TurnEngineEffect::Observe(Observation {
            kind,
            scope,
            spent,
            response: self.response.clone().filter(|_| is_step),
            outcome_unknown: false,
            refusal: None,
            detail: (!detail.is_empty()).then(|| detail_of(detail)),
        }));
    }

    /// Adds a message to the conversation, under the turn's next number.
    pub(crate) fn append(&mut self, conversation: &mut Conversation, message: Message) {
        self.watch.take(&message);
        self.append_unwatched(conversation, message);
    }

    /// Adds a message that loop detection ignores.
    fn append_unwatched(&mut self, conversation: &mut Conversation, message: Message) {
        conversation.push(message.clone());
        self.record(Box::new(MessageEvent::Append { message }));
    }

    /// Records an event that the conversation already contains, under the turn's next number.
    fn record(&mut self, event: Box<MessageEvent>) {
        self.sent_seq += 1;
        self.middlewares.note(|| (*event).clone());
        self.effects.push(TurnEngineEffect::Append {
            turn_id: self.id.clone(),
            seq: self.sent_seq,
            event,
        });
    }

    /// Adds the spending of a reply.
    fn count(&mut self, spent: ReplyCost) {
        self.latest = spent;
        self.spending.add_reply(&spent);
    }

    /// Queues a reply to a question of the agent for the next step. If no step follows, the reply
    /// starts a turn of its own.
    pub(crate) fn give(&mut self, event: AgentEvent) {
        self.answers.give(event);
    }

    /// Sets the notice that the agent receives before its next step.
    pub(crate) fn tell(&mut self, message: Message) {
        self.told = Some(message);
    }

    pub(crate) fn durable(&mut self, seq: u64) -> Result<(), EngineFault> {
        if seq > self.sent_seq {
            return Err(EngineFault::DurableBeforeSent {
                seq,
                sent: self.sent_seq,
            });
        }
        self.durable_seq = self.durable_seq.max(seq);
        Ok(())
    }

    /// Records the model's reply; its consequences wait until it is durable.
    pub(crate) fn take_reply<R: ToolRules>(
        &mut self,
        rules: &R,
        conversation: &mut Conversation,
        step: u32,
        reply: ModelReply,
        now: Timestamp,
    ) -> Result<(), EngineFault> {
        if let Some(fault) = fault_of(&reply) {
            self.fail_step(step, ModelError::new(fault));
            return Ok(());
        }
        let step_id = StepId::of_turn(&self.id, step);
        let message = Message::assistant(
            reply_id(&step_id)?,
            now,
            step_id,
            MessageContent::assistant(&reply.text, &reply.calls),
        );
        self.count(ReplyCost::of_metadata(&message.metadata));
        self.append(conversation, message);
        self.follow(rules, step, reply);
        Ok(())
    }

    /// Takes over a reply that is already recorded and durable.
    pub(crate) fn take_recorded<R: ToolRules>(
        &mut self,
        rules: &R,
        conversation: &mut Conversation,
        step: u32,
        message: Message,
    ) {
        let reply = ModelReply {
            text: message.data.content.to_text(),
            calls: message.data.content.tool_calls(),
        };
        self.watch.take(&message);
        self.response = ModelResponse::of_metadata(&message.metadata);
        self.count(ReplyCost::of_metadata(&message.metadata));
        self.take_recorded_message(conversation, message);
        self.follow(rules, step, reply);
    }

    fn take_recorded_message(&mut self, conversation: &mut Conversation, message: Message) {
        self.middlewares.note(|| MessageEvent::Append {
            message: message.clone(),
        });
        conversation.push(message);
        // The model is asked only when everything is durable, and nothing is appended in the
        // meantime.
        self.sent_seq += 1;
        self.durable_seq = self.sent_seq;
    }

    /// Sets the phase that follows a recorded reply once it is durable.
    fn follow<R: ToolRules>(&mut self, rules: &R, step: u32, reply: ModelReply) {
        let step_id = StepId::of_turn(&self.id, step);
        self.phase = Phase::Settling(if reply.calls.is_empty() {
            self.observe(Kind::StepCompleted, Scope::Step(step_id), &reply.text);
            let reply = reply.text;
            NextTurnAction::End { step, reply }
        } else {
            let effects = &mut self.effects;
            NextTurnAction::Call(Calls::new(rules, step, step_id, reply.calls, effects))
        });
    }

    pub(crate) fn fail_step(&mut self, step: u32, error: ModelError) {
        let scope = Scope::Step(StepId::of_turn(&self.id, step));
        let ModelError { code, message } = error;
        self.observe(Kind::StepFailed, scope, &message);
        self.phase = Phase::Settling(NextTurnAction::Complete(TurnOutcome::Failed {
            code: code.to_owned(),
            message,
        }));
    }

    /// Handles the outputs of extensions; their events are recorded like all others.
    pub(crate) fn take_outputs(&mut self, outputs: Vec<ExtensionOutput>) {
        for output in outputs {
            match output {
                ExtensionOutput::Event(event) => self.record(event),
                ExtensionOutput::Missing(missing) => {
                    self.observe(Kind::MessageWarning, Scope::Turn, &missing.to_string());
                }
                ExtensionOutput::Line(extension, line) => {
                    self.effects.push(TurnEngineEffect::Log { extension, line });
                }
            }
        }
    }
}

/// Id of the message that answers a step.
fn reply_id(step_id: &StepId) -> Result<MessageId, InvalidId> {
    MessageId::new(format!("{step_id}:a"))
}

/// Checks a reply as a whole and returns its fault, if any. Results are paired with calls by id, so
/// ids must differ.
fn fault_of(reply: &ModelReply) -> Option<String> {
    let call_count = reply.calls.len();
    if call_count > MAX_CALLS_PER_STEP {
        return Some(format!(
            "the model called {call_count} tools in one step; at most {MAX_CALLS_PER_STEP} are \
             allowed"
        ));
    }
    let ids: BTreeSet<_> = reply.calls.iter().map(|call| &call.id).collect();
    (ids.len() < call_count).then(|| "the model gave two tool calls the same id".to_owned())
}
