//! Playing one recorded turn with one side.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use goondan_protocol::JsonObject;
use goondan_protocol::approval::Approve;
use goondan_protocol::conversation::Conversation;
use goondan_protocol::definition::{CatalogEntry, ExtensionDefinition, ExtensionSource};
use goondan_protocol::event::{AgentEvent, EventSource, TurnOutcome};
use goondan_protocol::ids::{ConnectionName, EventId, ExtensionStates, ToolCallId};
use goondan_protocol::ipc::TurnStart;
use goondan_protocol::message::{Message, MessageEvent, MessageSource, ToolCall};
use goondan_protocol::time::Timestamp;

use super::recording::RecordedTurn;
use super::{Side, Tools};
use crate::extensions::Extensions;
use crate::model::{ModelError, ModelPlace};
use crate::tool_call::{CallKey, ToolOutcome};
use crate::turn::{Effect, Engine, Input, OpenTurn, TurnLimits};

/// The connection that a played event comes by: that of people who type.
const BY_HAND: &str = "cli";

/// What a side made of a turn.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The requests to the model, in order.
    pub(super) requests: Vec<Request>,
    /// What became of the recorded calls, by their ids.
    pub(super) calls: BTreeMap<ToolCallId, Call>,
    /// How it ended.
    pub(super) end: End,
}

/// A request to the model, so far as it differs from step to step.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) step: u32,
    pub(super) offered: Vec<CatalogEntry>,
    /// A digest of each message.
    pub(super) messages: Vec<u64>,
}

/// What became of a recorded call.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) step: u32,
    pub(super) tool_name: String,
    pub(super) fate: Fate,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// It would be carried out.
    Runs,
    /// A person would be asked.
    Asks,
    /// It would not be: what the model would be told.
    Refused(String),
}

/// How a played turn ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// With the reply of this step.
    Replied(u32),
    /// It failed.
    Failed { step: u32, why: String },
    /// The model would have been asked in this step, and the recording is over.
    GoesOn(u32),
    /// What was recorded is not all there.
    Lacks(String),
    /// The engine does not take what is recorded.
    #[default]
    Unplayable,
}

/// Plays a turn to its end, or to that of its recording.
pub(super) fn play<T: Tools>(side: &Side<'_, T>, turn: &RecordedTurn<'_>) -> Part {
    let mut part = Part::default();
    if let Some(mut engine) = engine_of(side, turn) {
        // What the engine does not take ends the playing, and is told as such.
        part.end = perform(side, turn, &mut engine, &mut part).unwrap_or_default();
    }
    part
}

fn engine_of<T: Tools>(side: &Side<'_, T>, turn: &RecordedTurn<'_>) -> Option<Engine<T>> {
    let is_built_in = |it: &&ExtensionDefinition| match it.source {
        ExtensionSource::Builtin { .. } => true,
        ExtensionSource::Module { .. } => false,
    };
    let built_in = side.agent.extensions.iter().filter(is_built_in);
    let built_in: Vec<ExtensionDefinition> = built_in.cloned().collect();
    let extensions = Extensions::new(
        side.agent.name.clone(),
        side.key.clone(),
        &built_in,
        ExtensionStates::new(),
    );
    let limits = TurnLimits {
        step_count_max: side.agent.max_steps_per_turn,
        loop_breaker: side.agent.loop_breaker,
        model: ModelPlace::Outside,
    };
    let mut open = OpenTurn::default();
    for message in std::iter::once(turn.first).chain(turn.answers(0)) {
        let message = message.clone();
        open.push(Some(turn.id.clone()), MessageEvent::Append { message });
    }
    let history = Conversation::from_base(turn.history.to_vec());
    let tools = side.tools.clone();
    Some(Engine::new(tools, limits, extensions.ok()?, history, open))
}

/// The time of what is played: it is in no request.
fn now() -> Timestamp {
    Timestamp::from_unix_millis(0)
}

/// An event that brings what a message says.
fn event_of(message: &Message) -> Option<AgentEvent> {
    let id = message.metadata.get("eventId").and_then(|id| id.as_str());
    Some(AgentEvent {
        id: EventId::new(id.unwrap_or(message.id.as_str())).ok()?,
        kind: "message".to_owned(),
        created_at: now(),
        trace_id: None,
        parent_span_id: None,
        input: Some(message.data.content.to_text()),
        instance_key: None,
        source: EventSource::Connector {
            name: ConnectionName::new(BY_HAND).ok()?,
        },
        auth: None,
        reply_to: None,
        chain: None,
        metadata: JsonObject::new(),
    })
}

/// None if the engine cannot go on.
fn perform<T: Tools>(
    side: &Side<'_, T>,
    turn: &RecordedTurn<'_>,
    engine: &mut Engine<T>,
    part: &mut Part,
) -> Option<End> {
    let start = TurnStart {
        turn_id: turn.id.clone(),
        attempt: 1,
        event: event_of(turn.first)?,
    };
    let mut effects = engine.start(&start, now()).ok()?;
    let mut inputs = VecDeque::new();
    let mut ran = BTreeSet::new();
    let mut step = 0;
    loop {
        for effect in effects {
            let end = match effect {
                Effect::AskModel { step: asked, .. } => {
                    step = asked;
                    part.requests.push(request_of(side, engine, step));
                    answer(turn, step, &mut inputs)
                }
                Effect::AskSummary { .. } => {
                    let error = ModelError::new("no model is asked in a rehearsal");
                    inputs.push_back(Input::Summarized { came: Err(error) });
                    None
                }
                Effect::RunTool { key, call, .. } => {
                    ran.insert(call.id.clone());
                    run_tool(side, turn, (key, &call), part, &mut inputs)
                }
                Effect::Append {
                    turn_id,
                    seq,
                    event,
                } => {
                    note_refusal(&event, &ran, step, part);
                    inputs.push_back(Input::Durable { turn_id, seq });
                    None
                }
                Effect::Complete { outcome, .. } => Some(match outcome {
                    TurnOutcome::Completed { .. } => End::Replied(step),
                    TurnOutcome::Failed { code, message } => End::Failed {
                        step,
                        why: format!("{code}: {message}"),
                    },
                }),
                // Modules of extensions were left out.
                Effect::Assemble | Effect::Enter(_) | Effect::Return { .. } => None,
                Effect::Observe(_) | Effect::Log { .. } => None,
            };
            if end.is_some() {
                return end;
            }
        }
        effects = engine.handle(inputs.pop_front()?, now()).ok()?;
    }
}

fn request_of<T: Tools>(side: &Side<'_, T>, engine: &Engine<T>, step: u32) -> Request {
    let known = side.tools.known();
    let offered = known.iter().filter(|it| engine.offers(it.name.as_str()));
    let messages = engine.conversation().messages();
    let digests = messages.map(|message| {
        let mut hasher = DefaultHasher::new();
        if let Ok(message) = message {
            message.data.role.hash(&mut hasher);
            let content = message.data.content.as_json().to_string();
            content.hash(&mut hasher);
        }
        hasher.finish()
    });
    Request {
        step,
        offered: offered.cloned().collect(),
        messages: digests.collect(),
    }
}

/// The recorded reply, behind the answers that were taken in before the next one.
fn answer(turn: &RecordedTurn<'_>, step: u32, inputs: &mut VecDeque<Input>) -> Option<End> {
    let Some(reply) = turn.reply(step) else {
        let is_over = step > 1 && turn.is_last(step - 1);
        return Some(if is_over {
            End::GoesOn(step)
        } else {
            End::Lacks(format!("no reply is recorded for step {step}"))
        });
    };
    for event in turn.answers(step).filter_map(event_of) {
        let event = Box::new(event);
        inputs.push_back(Input::Answer { event });
    }
    let message = Box::new(reply.clone());
    inputs.push_back(Input::ModelRecorded { step, message });
    None
}

/// The recorded result of a call that would be carried out.
fn run_tool<T: Tools>(
    side: &Side<'_, T>,
    turn: &RecordedTurn<'_>,
    (key, call): (CallKey, &ToolCall),
    part: &mut Part,
    inputs: &mut VecDeque<Input>,
) -> Option<End> {
    let fate = match side.tools.approval(call) {
        Approve::Always => Fate::Runs,
        Approve::Ask => Fate::Asks,
        Approve::Never => Fate::Refused("`approve: never` does not allow it".to_owned()),
    };
    let note = Call {
        step: key.step,
        tool_name: call.tool_name.clone(),
        fate,
    };
    part.calls.insert(call.id.clone(), note);
    let Some(result) = turn.result(&call.id) else {
        let name = &call.tool_name;
        return Some(End::Lacks(format!(
            "no result of `{name}` is recorded in step {}",
            key.step
        )));
    };
    let outcome = ToolOutcome {
        text: result.text,
        is_error: result.is_error,
        images: result.images,
        has_failed: false,
        is_unknown: false,
    };
    inputs.push_back(Input::ToolFinished { key, outcome });
    None
}

/// Takes note of a result that the engine made without running the call.
fn note_refusal(event: &MessageEvent, ran: &BTreeSet<ToolCallId>, step: u32, part: &mut Part) {
    let MessageEvent::Append { message } = event else {
        return;
    };
    let MessageSource::Tool {
        tool_call_id,
        tool_name,
        ..
    } = &message.source
    else {
        return;
    };
    if ran.contains(tool_call_id) {
        return;
    }
    let results = message.data.content.tool_results();
    let text = results.into_iter().next().map(|result| result.text);
    let refused = Call {
        step,
        tool_name: tool_name.clone(),
        fate: Fate::Refused(text.unwrap_or_default()),
    };
    part.calls.insert(tool_call_id.clone(), refused);
}
