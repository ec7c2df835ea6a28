//! Plays one turn and records the actions of the engine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use goondan_protocol::approval::Approve;
use goondan_protocol::event::{AgentEvent, EventSource, TurnOutcome};
use goondan_protocol::ids::{MessageId, StepId, ToolCallId, ToolName};
use goondan_protocol::ipc::TurnStart;
use goondan_protocol::message::{Message, MessageEvent, MessageSource, ToolCall};
use goondan_protocol::observe::detail_of;
use goondan_protocol::replay::{
    CallFate, PlayedCall, PlayedEnd, PlayedReply, PlayedStep, PlayedTurn, ShortDigest,
};
use goondan_protocol::time::Timestamp;

use super::prints::{
    PathNames, played_message, print_of_failure, print_of_message, print_of_model, print_of_reply,
};
use crate::model::scripted::{ScriptedModel, ScriptedReply};
use crate::model::{ModelError, ModelOutcome, ModelRequest};
use crate::rehearsal::playback::{engine_of, event_of};
use crate::rehearsal::recorded_turns::RecordedTurn;
use crate::rehearsal::{RehearsalSide, Tools, notes_of};
use crate::tool_call::{CallKey, ToolOutcome};
use crate::turn::{Engine, TurnEngineEffect, TurnEngineInput};

/// Maximum number of messages that are reported as unlike the recording.
const UNLIKE_MAX: usize = 16;

/// Metadata key of a message from another agent.
const FROM: &str = "from";

/// An agent of the replay, with the state that all its turns share.
pub(super) struct ReplaySide<'a, T> {
    side: RehearsalSide<'a, T>,
    scripted: Option<ScriptedModel>,
    prompt: ShortDigest,
    model: ShortDigest,
    tools: BTreeMap<ToolName, ShortDigest>,
}

impl<'a, T: Tools> ReplaySide<'a, T> {
    pub(super) fn new(
        side: RehearsalSide<'a, T>,
        scripted: Option<ScriptedModel>,
        places: &PathNames,
    ) -> Self {
        let tools = places.prints_of_tools(&side.tools.known());
        Self {
            prompt: places.print_of_prompt(side.agent),
            model: print_of_model(side.agent),
            tools,
            side,
            scripted,
        }
    }

    pub(super) fn unplayable(&self, why: &str) -> PlayedTurn {
        PlayedTurn {
            prompt: self.prompt.clone(),
            model: self.model.clone(),
            steps: Vec::new(),
            end: PlayedEnd::Unplayable {
                why: why.to_owned(),
            },
            unlike: Vec::new(),
            notes: notes_of(&self.side),
        }
    }
}

/// The playback of a turn.
pub(super) struct Player<'a, T> {
    side: &'a ReplaySide<'a, T>,
    turn: &'a RecordedTurn<'a>,
    failures: &'a BTreeMap<u32, String>,
    /// Inputs of the engine that wait, each with its recorded time.
    inputs: VecDeque<(Timestamp, TurnEngineInput)>,
    /// The latest recorded time.
    clock: Timestamp,
    steps: Vec<PlayedStep>,
    offered: Option<BTreeMap<ToolName, ShortDigest>>,
    /// The messages of the latest request, at first those before the turn.
    sent: Vec<MessageId>,
    /// Messages that were replaced since the latest request.
    replaced: BTreeSet<MessageId>,
    is_rewritten: bool,
    calls: BTreeMap<ToolCallId, PlayedCall>,
    appended: BTreeSet<MessageId>,
    unlike: Vec<String>,
}

impl<'a, T: Tools> Player<'a, T> {
    pub(super) fn new(
        side: &'a ReplaySide<'a, T>,
        turn: &'a RecordedTurn<'a>,
        failures: &'a BTreeMap<u32, String>,
    ) -> Self {
        let began = time_of(turn.first).unwrap_or_else(|| Timestamp::from_unix_millis(0));
        Self {
            side,
            turn,
            failures,
            inputs: VecDeque::new(),
            clock: began,
            steps: Vec::new(),
            offered: None,
            sent: turn.history.iter().map(|it| it.id.clone()).collect(),
            replaced: BTreeSet::new(),
            is_rewritten: false,
            calls: BTreeMap::new(),
            appended: BTreeSet::new(),
            unlike: Vec::new(),
        }
    }

    pub(super) fn play(mut self) -> PlayedTurn {
        let Some(mut engine) = engine_of(&self.side.side, self.turn) else {
            return self.side.unplayable("an extension cannot be used");
        };
        let end = self.perform(&mut engine);
        let end = end.unwrap_or_else(|| PlayedEnd::Unplayable {
            why: "the turn engine rejects the recording".to_owned(),
        });
        if matches!(end, PlayedEnd::Replied | PlayedEnd::Failed { .. }) {
            self.look_for_missing_messages();
        }
        self.unlike.truncate(UNLIKE_MAX);
        for step in &mut self.steps {
            let reply = self.turn.reply(step.step);
            let called = reply.map(|reply| reply.data.content.tool_calls());
            let called = called.into_iter().flatten();
            step.calls = called
                .filter_map(|call| self.calls.remove(&call.id))
                .collect();
        }
        PlayedTurn {
            prompt: self.side.prompt.clone(),
            model: self.side.model.clone(),
            steps: self.steps,
            end,
            unlike: self.unlike,
            notes: notes_of(&self.side.side),
        }
    }

    /// Plays until the end; `None` if the engine fails.
    fn perform(&mut self, engine: &mut Engine<T>) -> Option<PlayedEnd> {
        let start = TurnStart {
            turn_id: self.turn.id.clone(),
            attempt: 1,
            event: self.event()?,
        };
        let mut effects = engine.start(&start, self.clock).ok()?;
        loop {
            for effect in effects {
                let end = self.take(engine, effect);
                if end.is_some() {
                    return end;
                }
            }
            let (at, input) = self.inputs.pop_front()?;
            self.clock = at;
            effects = engine.handle(input, at).ok()?;
        }
    }

    /// The event of the turn, with the source that its message names.
    fn event(&self) -> Option<AgentEvent> {
        let event = event_of(self.turn.first)?;
        let from = self.turn.first.metadata.get(FROM);
        let from = from.and_then(|from| {
            let text = |name: &str| from.get(name)?.as_str();
            Some(EventSource::Agent {
                name: text("agent")?.parse().ok()?,
                instance_key: text("instanceKey")?.parse().ok()?,
            })
        });
        Some(AgentEvent {
            created_at: self.clock,
            source: from.unwrap_or(event.source),
            ..event
        })
    }

    fn take(&mut self, engine: &Engine<T>, effect: TurnEngineEffect) -> Option<PlayedEnd> {
        match effect {
            TurnEngineEffect::AskModel {
                step,
                seq,
                message_id,
            } => self.ask(engine, step, seq, &message_id),
            TurnEngineEffect::AskSummary { .. } => {
                self.summarize();
                None
            }
            TurnEngineEffect::RunTool { key, call, .. } => self.run_tool(key, &call),
            TurnEngineEffect::Append {
                turn_id,
                seq,
                event,
            } => {
                self.note(&event);
                let durable = TurnEngineInput::Durable { turn_id, seq };
                self.inputs.push_back((self.clock, durable));
                None
            }
            TurnEngineEffect::Complete { outcome, .. } => Some(match outcome {
                TurnOutcome::Completed { .. } => PlayedEnd::Replied,
                TurnOutcome::Failed { code, message } => PlayedEnd::Failed {
                    why: detail_of(&format!("{code}: {message}")),
                },
            }),
            // Modules of extensions were left out.
            TurnEngineEffect::Assemble
            | TurnEngineEffect::Enter(_)
            | TurnEngineEffect::Return { .. } => None,
            TurnEngineEffect::Observe(_) | TurnEngineEffect::Log { .. } => None,
        }
    }

    /// Notes the request and queues the recorded answer.
    fn ask(
        &mut self,
        engine: &Engine<T>,
        step: u32,
        seq: u64,
        message_id: &MessageId,
    ) -> Option<PlayedEnd> {
        let said = self.said_by_script(engine, step, seq, message_id);
        let recorded = self.recorded_reply(step);
        if let (Some(said), Some(recorded)) = (&said, &recorded)
            && said.fingerprint != recorded.fingerprint
        {
            let what = format!(
                "step {step}: the model's script says `{}`, recorded is `{}`",
                said.detail, recorded.detail
            );
            self.unlike.push(what);
        }
        let reply = said.or(recorded);
        self.note_request(engine, step, reply);
        if let Some(reply) = self.turn.reply(step) {
            let at = time_of(reply).unwrap_or(self.clock);
            for answer in self.turn.answers(step) {
                let at = time_of(answer).unwrap_or(at);
                if let Some(event) = event_of(answer) {
                    let event = Box::new(event);
                    self.inputs
                        .push_back((at, TurnEngineInput::Answer { event }));
                }
            }
            let message = Box::new(reply.clone());
            let replied = TurnEngineInput::ModelRecorded { step, message };
            self.inputs.push_back((at, replied));
            return None;
        }
        if let Some(failure) = self.failures.get(&step) {
            let error = ModelError::new(failure.clone());
            let failed = TurnEngineInput::ModelFailed { step, error };
            self.inputs.push_back((self.clock, failed));
            return None;
        }
        let is_over = step > 1 && self.turn.is_last(step - 1);
        Some(if is_over {
            PlayedEnd::GoesOn
        } else {
            PlayedEnd::Incomplete {
                why: format!("no reply is recorded for step {step}"),
            }
        })
    }

    fn recorded_reply(&self, step: u32) -> Option<PlayedReply> {
        if let Some(reply) = self.turn.reply(step) {
            let content = &reply.data.content;
            return Some(print_of_reply(&content.to_text(), &content.tool_calls()));
        }
        let failure = self.failures.get(&step)?;
        Some(print_of_failure(failure))
    }

    /// The reply of a scripted model; `None` for other models.
    fn said_by_script(
        &self,
        engine: &Engine<T>,
        step: u32,
        seq: u64,
        message_id: &MessageId,
    ) -> Option<PlayedReply> {
        let model = self.side.scripted.as_ref()?;
        let step_id = StepId::of_turn(&self.turn.id, step);
        let played = model.play(ModelRequest {
            system: self.side.side.agent.system_prompt.as_deref(),
            messages: engine.conversation(),
            catalog: &[],
            turn_id: &self.turn.id,
            step_id: &step_id,
            seq,
            message_id,
            trace: None,
            step,
        });
        Some(match played.and_then(|ScriptedReply { reply, .. }| reply) {
            Ok(reply) => print_of_reply(&reply.text, &reply.calls),
            Err(error) => print_of_failure(&error.message),
        })
    }

    fn note_request(&mut self, engine: &Engine<T>, step: u32, reply: Option<PlayedReply>) {
        let tools = self.side.tools.iter();
        let offered = tools.filter(|(name, _)| engine.offers(name.as_str()));
        let offered: BTreeMap<_, _> = offered
            .map(|(name, print)| (name.clone(), print.clone()))
            .collect();
        let tools = (self.offered.as_ref() != Some(&offered)).then(|| offered.clone());
        self.offered = Some(offered);
        let messages = || engine.conversation().messages().flatten();
        let kept = if self.is_rewritten {
            let pairs = messages().zip(&self.sent);
            let kept = pairs
                .take_while(|(message, id)| message.id == **id && !self.replaced.contains(*id));
            kept.count()
        } else {
            self.sent.len()
        };
        let new: Vec<_> = messages()
            .skip(kept)
            .map(|message| played_message(&message))
            .collect();
        self.sent.truncate(kept);
        self.sent
            .extend(new.iter().map(|message| message.id.clone()));
        self.is_rewritten = false;
        self.replaced.clear();
        self.steps.push(PlayedStep {
            step,
            tools,
            kept,
            messages: new,
            reply,
            calls: Vec::new(),
        });
    }

    /// Queues the recorded summary.
    fn summarize(&mut self) {
        let came = match self.turn.summary() {
            Some(summary) => Ok(ModelOutcome::Recorded(Box::new(summary.clone()))),
            None => Err(ModelError::new("no summary is recorded")),
        };
        let input = TurnEngineInput::Summarized { came };
        self.inputs.push_back((self.clock, input));
    }

    /// Queues the recorded result of a call.
    fn run_tool(&mut self, key: CallKey, call: &ToolCall) -> Option<PlayedEnd> {
        let fate = match self.side.side.tools.approval(call) {
            Approve::Always => CallFate::Runs,
            Approve::Ask | Approve::AskTwo => CallFate::Asks,
            Approve::Never => CallFate::Refused {
                why: "`approve: never` does not allow it".to_owned(),
            },
        };
        self.note_call(call, fate);
        let Some(result) = self.turn.result(&call.id) else {
            let name = &call.tool_name;
            return Some(PlayedEnd::Incomplete {
                why: format!("no result of `{name}` is recorded in step {}", key.step),
            });
        };
        let at = self.time_of_result(&call.id).unwrap_or(self.clock);
        let outcome = ToolOutcome::recorded(result);
        let finished = TurnEngineInput::ToolFinished { key, outcome };
        self.inputs.push_back((at, finished));
        None
    }

    fn time_of_result(&self, call: &ToolCallId) -> Option<Timestamp> {
        let mut rest = self.turn.rest().iter();
        time_of(rest.find(|message| called_by(message) == Some(call))?)
    }

    fn note_call(&mut self, call: &ToolCall, fate: CallFate) {
        let arguments = call.input.to_string();
        let noted = PlayedCall {
            tool_call_id: call.id.clone(),
            tool_name: call.tool_name.clone(),
            arguments: ShortDigest::of(&[&arguments]),
            detail: detail_of(&arguments),
            fate,
        };
        self.calls.insert(call.id.clone(), noted);
    }

    /// Notes an event that the engine records.
    fn note(&mut self, event: &MessageEvent) {
        let message = match event {
            MessageEvent::Append { message } => message,
            MessageEvent::Replace { target_id, message } => {
                self.is_rewritten = true;
                self.replaced.insert(target_id.clone());
                self.replaced.insert(message.id.clone());
                message
            }
            MessageEvent::Remove { .. } | MessageEvent::Truncate => {
                self.is_rewritten = true;
                return;
            }
        };
        self.note_refusal(message);
        let mut recorded = self.turn.rest().iter();
        match recorded.find(|recorded| recorded.id == message.id) {
            Some(recorded) if print_of_message(recorded) == print_of_message(message) => {}
            Some(_) => {
                let what = format!("message `{}` differs from the recorded one", message.id);
                self.unlike.push(what);
            }
            None => {
                let what = format!("message `{}` is not recorded", message.id);
                self.unlike.push(what);
            }
        }
        self.appended.insert(message.id.clone());
    }

    /// Notes a call whose result the engine created without running it.
    fn note_refusal(&mut self, message: &Message) {
        let Some(call_id) = called_by(message) else {
            return;
        };
        if self.calls.contains_key(call_id) {
            return;
        }
        let replies = self.turn.rest().iter();
        let mut calls = replies.flat_map(|reply| reply.data.content.tool_calls());
        let Some(call) = calls.find(|call| call.id == *call_id) else {
            return;
        };
        let results = message.data.content.tool_results();
        let why = results.into_iter().next().map(|result| result.text);
        let why = detail_of(&why.unwrap_or_default());
        self.note_call(&call, CallFate::Refused { why });
    }

    /// Notes recorded messages that are neither the model's nor an answer, and that the engine did
    /// not create.
    fn look_for_missing_messages(&mut self) {
        for message in self.turn.rest() {
            let is_made = match message.source {
                MessageSource::Tool { .. }
                | MessageSource::System { .. }
                | MessageSource::Extension { .. } => true,
                MessageSource::User { .. } | MessageSource::Assistant { .. } => false,
            };
            if is_made && !self.appended.contains(&message.id) {
                let what = format!("the recorded message `{}` was not created", message.id);
                self.unlike.push(what);
            }
        }
    }
}

/// The call whose result a message is.
fn called_by(message: &Message) -> Option<&ToolCallId> {
    match &message.source {
        MessageSource::Tool { tool_call_id, .. } => Some(tool_call_id),
        MessageSource::User { .. }
        | MessageSource::Assistant { .. }
        | MessageSource::System { .. }
        | MessageSource::Extension { .. } => None,
    }
}

fn time_of(message: &Message) -> Option<Timestamp> {
    message.created_at.parse().ok()
}
