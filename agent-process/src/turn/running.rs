//! One running turn: user message → (model → tools)* → answer.

mod middlewares;
mod summary;

use std::collections::BTreeSet;

use goondan_protocol::conversation::Conversation;
use goondan_protocol::event::{AgentEvent, TurnOutcome};
use goondan_protocol::ids::{InvalidId, MessageId, StepId, TurnId};
use goondan_protocol::message::{Content, Message, MessageEvent};
use goondan_protocol::observe::{ModelResponse, RuntimeEventKind as Kind, detail_of};
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::{Spending, Spent};

use super::answers::Answers;
use super::around::Around;
use super::calls::Calls;
use super::effect::{Effect, Observation, Scope};
use super::fault::EngineFault;
use super::limits::TurnLimits;
use super::loop_breaker::Watch;
use super::recorded::{OpenTurn, Replied};
use crate::extensions::{Ending, ExtensionOutput};
use crate::model::ModelPlace;
use crate::model::{ModelError, ModelReply};
use crate::tool_call::{CallKey, MAX_CALLS_PER_STEP, ToolOutcome, ToolRules};
use middlewares::{ChainCursor, Invoking, TurnMiddlewares};
use summary::Compaction;

/// The turn at hand and the effects it has gathered since it was last asked for them.
#[derive(Debug)]
pub(crate) struct Turn {
    id: TurnId,
    sent_seq: u64,
    durable_seq: u64,
    model: ModelPlace,
    phase: Phase,
    watch: Watch,
    answers: Answers,
    /// What the latest reply took, and all replies of the turn, as far as their records say.
    latest: Spent,
    spending: Spending,
    /// What the provider says of the latest reply.
    response: Option<ModelResponse>,
    /// The last step that extensions were asked about.
    prepared_step: u32,
    /// What modules of extensions are told and have begun; nothing without them.
    middlewares: Option<Box<TurnMiddlewares>>,
    compaction: Compaction,
    effects: Vec<Effect>,
}

/// What the turn waits for.
#[derive(Debug)]
enum Phase {
    /// That all it has appended is durable; then `Next`.
    Settling(Next),
    /// The model's reply.
    Asking { step: u32 },
    /// The model's summary of so many messages, before a step.
    Summarizing { step: u32, count: usize },
    /// Its tools.
    Calling(Calls),
    /// That the modules of extensions are ready; then `Next`.
    Assembling(Next),
    /// A middleware of a module.
    Invoking(Invoking),
    /// The commit.
    Completing,
}

/// What is done once everything is durable.
#[derive(Debug)]
enum Next {
    Ask {
        step: u32,
    },
    Call(Calls),
    /// Extensions are asked whether the turn may end with this reply.
    End {
        step: u32,
        reply: String,
    },
    Complete(TurnOutcome),
    /// The modules of extensions are made ready.
    Assemble(Box<Next>),
    /// A layer of extensions is entered.
    Enter(ChainCursor),
}

impl Turn {
    /// A turn of which `recorded_seq` events are durable already.
    pub(crate) fn new(id: TurnId, recorded_seq: u64, limits: TurnLimits, answers: Answers) -> Self {
        Self {
            id,
            sent_seq: recorded_seq,
            durable_seq: recorded_seq,
            phase: Phase::Settling(Next::Ask { step: 1 }),
            watch: Watch::new(limits.loop_breaker),
            model: limits.model,
            answers,
            latest: Spent::default(),
            response: None,
            spending: Spending::default(),
            prepared_step: 0,
            middlewares: None,
            compaction: Compaction::default(),
            effects: Vec::new(),
        }
    }

    pub(crate) fn id(&self) -> &TurnId {
        &self.id
    }

    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// What the turn does, in words.
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

    pub(crate) fn is_completing(&self) -> bool {
        matches!(self.phase, Phase::Completing)
    }

    pub(crate) fn observe(&mut self, kind: Kind, scope: Scope, detail: &str) {
        let spent = match kind {
            Kind::StepCompleted => self.latest,
            Kind::TurnCompleted | Kind::TurnFailed => self.spending.as_spent(),
            _ => Spent::default(),
        };
        let is_step = kind == Kind::StepCompleted;
        self.effects.push(Effect::Observe(Observation {
            kind,
            scope,
            spent,
            response: self.response.clone().filter(|_| is_step),
            detail: (!detail.is_empty()).then(|| detail_of(detail)),
        }));
    }

    /// Adds a message to the conversation, under the turn's next number.
    pub(crate) fn append(&mut self, conversation: &mut Conversation, message: Message) {
        self.watch.take(&message);
        self.append_unwatched(conversation, message);
    }

    /// The same for a message that says nothing of how the turn gets on.
    fn append_unwatched(&mut self, conversation: &mut Conversation, message: Message) {
        conversation.push(message.clone());
        self.record(Box::new(MessageEvent::Append { message }));
    }

    /// Records an event that is part of the conversation already, under the turn's next number.
    fn record(&mut self, event: Box<MessageEvent>) {
        self.sent_seq += 1;
        if let Some(middlewares) = &mut self.middlewares {
            middlewares.note(&event);
        }
        self.effects.push(Effect::Append {
            turn_id: self.id.clone(),
            seq: self.sent_seq,
            event,
        });
    }

    /// Takes note of what was recorded of the turn before.
    pub(crate) fn remember(&mut self, open: &OpenTurn) {
        self.remember_summary(open);
        let is_summary = |message: &&Message| message.step_id().is_some_and(StepId::is_summary);
        for message in open.messages().filter(|message| !is_summary(message)) {
            self.watch.take(message);
        }
        let replies = open.replies(&self.id);
        let spent: Vec<Spent> = replies.map(|r| Spent::of_metadata(&r.metadata)).collect();
        for spent in spent {
            self.count(spent);
        }
    }

    /// Takes note of what a reply took.
    fn count(&mut self, spent: Spent) {
        self.latest = spent;
        self.spending.add_reply(&spent);
    }

    /// Goes on behind the last recorded reply.
    pub(crate) fn resume_after<R: ToolRules>(&mut self, rules: &R, replied: Replied) {
        self.end_compaction();
        self.phase = Phase::Settling(if replied.calls.is_empty() {
            Next::End {
                step: replied.step,
                reply: replied.text,
            }
        } else {
            let step_id = StepId::of_turn(&self.id, replied.step);
            Next::Call(Calls::resumed(rules, step_id, replied, &mut self.effects))
        });
    }

    /// Takes note of an answer to a question of the agent, for its next step. If none follows, the
    /// answer is left to a turn of its own.
    pub(crate) fn give(&mut self, event: AgentEvent) {
        self.answers.give(event);
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

    /// Records the model's reply; what follows from it waits until it is durable.
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
            Content::assistant(&reply.text, &reply.calls),
        );
        self.count(Spent::of_metadata(&message.metadata));
        self.append(conversation, message);
        self.follow(rules, step, reply);
        Ok(())
    }

    /// Takes over a reply that is recorded and durable already.
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
        self.count(Spent::of_metadata(&message.metadata));
        self.take_recorded_message(conversation, message);
        self.follow(rules, step, reply);
    }

    fn take_recorded_message(&mut self, conversation: &mut Conversation, message: Message) {
        if let Some(middlewares) = &mut self.middlewares {
            middlewares.note(&MessageEvent::Append {
                message: message.clone(),
            });
        }
        conversation.push(message);
        // The model is asked only when everything is durable, and nothing is appended meanwhile.
        self.sent_seq += 1;
        self.durable_seq = self.sent_seq;
    }

    /// What a recorded reply leads to, once it is durable.
    fn follow<R: ToolRules>(&mut self, rules: &R, step: u32, reply: ModelReply) {
        let step_id = StepId::of_turn(&self.id, step);
        self.phase = Phase::Settling(if reply.calls.is_empty() {
            self.observe(Kind::StepCompleted, Scope::Step(step_id), &reply.text);
            let reply = reply.text;
            Next::End { step, reply }
        } else {
            let effects = &mut self.effects;
            Next::Call(Calls::new(rules, step, step_id, reply.calls, effects))
        });
    }

    pub(crate) fn fail_step(&mut self, step: u32, error: ModelError) {
        let scope = Scope::Step(StepId::of_turn(&self.id, step));
        let ModelError { code, message } = error;
        self.observe(Kind::StepFailed, scope, &message);
        self.phase = Phase::Settling(Next::Complete(TurnOutcome::Failed {
            code: code.to_owned(),
            message,
        }));
    }

    /// Takes what came of asking extensions: what they made is recorded like everything else.
    pub(crate) fn take_outputs(&mut self, outputs: Vec<ExtensionOutput>) {
        for output in outputs {
            match output {
                ExtensionOutput::Event(event) => self.record(event),
                ExtensionOutput::Missing(missing) => {
                    self.observe(Kind::MessageWarning, Scope::Turn, &missing.to_string());
                }
                ExtensionOutput::Line(extension, line) => {
                    self.effects.push(Effect::Log { extension, line });
                }
            }
        }
    }

    /// A tool has ended; extensions may say something else of it than it does.
    pub(crate) fn finish_call(
        &mut self,
        around: &mut Around<'_>,
        key: CallKey,
        mut outcome: ToolOutcome,
    ) {
        let Phase::Calling(calls) = &mut self.phase else {
            return;
        };
        if self.middlewares.is_some() {
            calls.begin_way_out(key, outcome);
            return;
        }
        let call = calls.call(key).cloned();
        let outputs = call.map(|call| {
            let Around {
                extensions,
                conversation,
                now,
            } = around;
            extensions.after_call(&call, &mut outcome, conversation, *now)
        });
        calls.finish(key, outcome);
        self.take_outputs(outputs.unwrap_or_default());
    }

    /// Does the next thing that needs no input. False if there is none.
    pub(crate) fn step_forward<R: ToolRules>(
        &mut self,
        rules: &R,
        step_count_max: u32,
        around: &mut Around<'_>,
    ) -> Result<bool, EngineFault> {
        if let Some(has_moved) = self.go_around(around) {
            return Ok(has_moved);
        }
        let now = around.now;
        let is_settled = self.durable_seq == self.sent_seq;
        let may_ask = is_settled || self.model == ModelPlace::Inside;
        // `Completing` stands in only while the phase is looked at.
        self.phase = match std::mem::replace(&mut self.phase, Phase::Completing) {
            Phase::Settling(Next::Ask { step }) if may_ask && self.is_compaction_open() => {
                self.compact(step, around)?
            }
            Phase::Settling(Next::Ask { step }) if may_ask => {
                match self.answers.next_message(&self.id, now)? {
                    Some(message) => {
                        self.append(around.conversation, message);
                        Phase::Settling(Next::Ask { step })
                    }
                    None if self.prepared_step < step => {
                        self.prepared_step = step;
                        if self.middlewares.is_some() {
                            self.phase = self.begin_step(step, Next::Ask { step });
                            return Ok(true);
                        }
                        let outputs = around
                            .extensions
                            .before_step(step, around.conversation, now);
                        self.take_outputs(outputs);
                        Phase::Settling(Next::Ask { step })
                    }
                    None => self.act(Next::Ask { step }, step_count_max)?,
                }
            }
            Phase::Settling(Next::Call(calls)) if is_settled => {
                let calls = self.ask_before_calls(calls, around);
                self.act(Next::Call(calls), step_count_max)?
            }
            Phase::Settling(Next::End { step, reply }) => self.ask_before_end(step, reply, around),
            // A commit makes durable what was appended before it, with one sync for all.
            Phase::Settling(next @ Next::Complete(_)) => self.act(next, step_count_max)?,
            Phase::Settling(next) if is_settled => self.act(next, step_count_max)?,
            Phase::Calling(mut calls) => {
                calls.tell_ends(rules, &mut self.effects);
                while let Some(message) = calls.next_result(now)? {
                    self.append(around.conversation, message);
                }
                if !calls.all_recorded() {
                    let has_moved =
                        self.middlewares.is_some() && self.advance_calls(&mut calls, rules, around);
                    self.phase = Phase::Calling(calls);
                    return Ok(has_moved);
                }
                self.release(around.conversation);
                self.observe(
                    Kind::StepCompleted,
                    Scope::Step(calls.step_id().clone()),
                    "",
                );
                let step = calls.step().saturating_add(1);
                Phase::Settling(Next::Ask { step })
            }
            waiting @ (Phase::Settling(_)
            | Phase::Asking { .. }
            | Phase::Assembling(_)
            | Phase::Invoking(_)
            | Phase::Summarizing { .. }
            | Phase::Completing) => {
                self.phase = waiting;
                return Ok(false);
            }
        };
        Ok(true)
    }

    /// Asks extensions about the calls that are to be made.
    fn ask_before_calls(&mut self, mut calls: Calls, around: &mut Around<'_>) -> Calls {
        let extensions = &around.extensions;
        calls.keep_to_catalog(
            |tool_name| extensions.why_not_offered(tool_name),
            &mut self.effects,
        );
        for (index, call) in calls.to_run() {
            let Around {
                extensions,
                conversation,
                now,
            } = around;
            let (verdict, outputs) = extensions.before_call(&call, conversation, *now);
            self.take_outputs(outputs);
            if let Err(reason) = verdict {
                calls.refuse(index, reason, &mut self.effects);
            }
        }
        calls
    }

    /// Asks extensions whether the turn may end.
    fn ask_before_end(&mut self, step: u32, mut reply: String, around: &mut Around<'_>) -> Phase {
        let Around {
            extensions,
            conversation,
            now,
        } = around;
        let (ending, outputs) = extensions.end_turn(step, &mut reply, conversation, *now);
        self.take_outputs(outputs);
        Phase::Settling(match ending {
            Ending::Accept => Next::Complete(TurnOutcome::Completed { reply }),
            Ending::GoOn => Next::Ask {
                step: step.saturating_add(1),
            },
            Ending::Refuse { code, message } => Next::Complete(TurnOutcome::Failed {
                code: code.to_owned(),
                message,
            }),
        })
    }

    /// Everything appended is durable, or becomes so with the commit: touches the outside.
    fn act(&mut self, next: Next, step_count_max: u32) -> Result<Phase, EngineFault> {
        let circle = self.watch.verdict();
        Ok(match (next, circle) {
            (Next::Ask { .. }, Some(message)) => {
                Phase::Settling(Next::Complete(TurnOutcome::Failed {
                    code: "E_LOOP".to_owned(),
                    message,
                }))
            }
            (Next::Ask { step }, None) if step > step_count_max => {
                let message = format!(
                    "the turn needs more than {step_count_max} steps; raise `maxStepsPerTurn` in \
                     the swarm's policy, or ask for less at a time"
                );
                Phase::Settling(Next::Complete(TurnOutcome::Failed {
                    code: "E_MAX_STEPS".to_owned(),
                    message,
                }))
            }
            (Next::Ask { step }, None) => {
                let step_id = StepId::of_turn(&self.id, step);
                let message_id = reply_id(&step_id)?;
                self.observe(Kind::StepStarted, Scope::Step(step_id), "");
                self.effects.push(Effect::AskModel {
                    step,
                    seq: self.sent_seq + 1,
                    message_id,
                });
                Phase::Asking { step }
            }
            (Next::Call(mut calls), _) => {
                calls.run(&mut self.effects);
                Phase::Calling(calls)
            }
            (next @ (Next::End { .. } | Next::Assemble(_) | Next::Enter(_)), _) => {
                Phase::Settling(next)
            }
            (Next::Complete(outcome), _) => {
                let (kind, detail) = match &outcome {
                    TurnOutcome::Completed { reply } => (Kind::TurnCompleted, reply.clone()),
                    TurnOutcome::Failed { code, message } => {
                        (Kind::TurnFailed, format!("{code}: {message}"))
                    }
                };
                self.observe(kind, Scope::Turn, &detail);
                self.effects.push(Effect::Complete {
                    turn_id: self.id.clone(),
                    last_seq: self.sent_seq,
                    outcome,
                    answered: self.answers.taken_in(),
                });
                Phase::Completing
            }
        })
    }
}

/// The id of the message that answers a step.
fn reply_id(step_id: &StepId) -> Result<MessageId, InvalidId> {
    MessageId::new(format!("{step_id}:a"))
}

/// What is wrong with a reply as a whole. Results are paired with calls by id, so ids must differ.
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
