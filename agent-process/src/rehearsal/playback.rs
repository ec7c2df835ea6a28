//! Plays one recorded turn with one of the two configurations.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use goondan_protocol::JsonObject;
use goondan_protocol::approval::Approve;
use goondan_protocol::conversation::Conversation;
use goondan_protocol::definition::{CatalogEntry, ExtensionDefinition, ExtensionSource};
use goondan_protocol::event::{AgentEvent, EventSource, TurnOutcome};
use goondan_protocol::event_header::{HEADER, text_below};
use goondan_protocol::ids::{ConnectionName, EventId, ExtensionStates, ToolCallId};
use goondan_protocol::ipc::TurnStart;
use goondan_protocol::message::{Message, MessageEvent, MessageSource, ToolCall};
use goondan_protocol::time::Timestamp;

use super::recorded_turns::RecordedTurn;
use super::{RehearsalSide, Tools};
use crate::extensions::Extensions;
use crate::model::{ModelError, ModelLocation};
use crate::tool_call::{CallKey, ToolOutcome};
use crate::turn::{Engine, OpenTurn, TurnEngineEffect, TurnEngineInput, TurnLimits};

/// The connection of a played event: the one for people who type.
const BY_HAND: &str = "cli";

/// The playback of a turn by one side.
#[derive(Debug, Default)]
pub(super) struct TurnPlayback {
    /// The requests to the model, in order.
    pub(super) requests: Vec<ReplayedRequest>,
    /// The recorded calls with their fates, by id.
    pub(super) calls: BTreeMap<ToolCallId, Call>,
    pub(super) end: PlaybackEnd,
}

/// A request to the model: the parts that differ between steps.
#[derive(Debug)]
pub(super) struct ReplayedRequest {
    pub(super) step: u32,
    pub(super) offered: Vec<CatalogEntry>,
    /// A digest of each message.
    pub(super) messages: Vec<u64>,
}

/// Fate of a recorded call.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) step: u32,
    pub(super) tool_name: String,
    pub(super) fate: CallDisposition,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallDisposition {
    Runs,
    /// It would wait for a person's approval.
    Asks,
    /// It would fail with this error result.
    Refused(String),
}

/// End of a played turn.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum PlaybackEnd {
    /// It ended with the reply of this step.
    Replied(u32),
    Failed {
        step: u32,
        why: String,
    },
    /// The model would be asked in this step, but the recording ends here.
    GoesOn(u32),
    /// Part of the recording is missing.
    Lacks(String),
    /// The engine rejects the recording.
    #[default]
    Unplayable,
}

/// Plays a turn until its end or the end of its recording.
pub(super) fn play<T: Tools>(side: &RehearsalSide<'_, T>, turn: &RecordedTurn<'_>) -> TurnPlayback {
    let mut part = TurnPlayback::default();
    if let Some(mut engine) = engine_of(side, turn) {
        // An engine fault ends the playback as unplayable.
        part.end = perform(side, turn, &mut engine, &mut part).unwrap_or_default();
    }
    part
}

/// The engine at the beginning of the turn; `None` if an extension cannot be used.
pub(crate) fn engine_of<T: Tools>(
    side: &RehearsalSide<'_, T>,
    turn: &RecordedTurn<'_>,
) -> Option<Engine<T>> {
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
        model: ModelLocation::Outside,
    };
    let mut open = OpenTurn::default();
    for message in std::iter::once(turn.first).chain(turn.answers(0)) {
        let message = message.clone();
        open.push(Some(turn.id.clone()), MessageEvent::Append { message });
    }
    let history = Conversation::from_base(turn.history.to_vec());
    let tools = side.tools.clone();
    Some(Engine::new(
        tools,
        limits,
        extensions.ok()?.with_contract(side.agent.contract),
        history,
        open,
    ))
}

/// Time of the playback, which no request contains.
fn now() -> Timestamp {
    Timestamp::from_unix_millis(0)
}

/// Creates an event from a recorded message.
pub(crate) fn event_of(message: &Message) -> Option<AgentEvent> {
    let note = |name: &str| message.metadata.get(name).and_then(|note| note.as_str());
    let (id, header) = (note("eventId"), note(HEADER));
    let text = message.data.content.to_text();
    Some(AgentEvent {
        id: EventId::new(id.unwrap_or(message.id.as_str())).ok()?,
        kind: "message".to_owned(),
        created_at: now(),
        trace_id: None,
        parent_span_id: None,
        input: Some(text_below(header, &text).to_owned()),
        header: header.map(str::to_owned),
        properties: JsonObject::new(),
        instance_key: None,
        source: EventSource::Connector {
            name: ConnectionName::new(BY_HAND).ok()?,
        },
        auth: None,
        reply_to: None,
        chain: None,
        join: None,
        metadata: JsonObject::new(),
    })
}

/// Plays the turn; `None` if the engine fails.
fn perform<T: Tools>(
    side: &RehearsalSide<'_, T>,
    turn: &RecordedTurn<'_>,
    engine: &mut Engine<T>,
    part: &mut TurnPlayback,
) -> Option<PlaybackEnd> {
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
                TurnEngineEffect::AskModel { step: asked, .. } => {
                    step = asked;
                    part.requests.push(request_of(side, engine, step));
                    answer(turn, step, &mut inputs)
                }
                TurnEngineEffect::AskSummary { .. } => {
                    let error = ModelError::new("no model is asked in a rehearsal");
                    inputs.push_back(TurnEngineInput::Summarized { came: Err(error) });
                    None
                }
                TurnEngineEffect::RunTool { key, call, .. } => {
                    ran.insert(call.id.clone());
                    run_tool(side, turn, (key, &call), part, &mut inputs)
                }
                TurnEngineEffect::Append {
                    turn_id,
                    seq,
                    event,
                } => {
                    note_refusal(&event, &ran, step, part);
                    inputs.push_back(TurnEngineInput::Durable { turn_id, seq });
                    None
                }
                TurnEngineEffect::Complete { outcome, .. } => Some(match outcome {
                    TurnOutcome::Completed { .. } => PlaybackEnd::Replied(step),
                    TurnOutcome::Failed { code, message } => PlaybackEnd::Failed {
                        step,
                        why: format!("{code}: {message}"),
                    },
                }),
                // Modules of extensions were left out.
                TurnEngineEffect::Assemble
                | TurnEngineEffect::Enter(_)
                | TurnEngineEffect::Return { .. } => None,
                TurnEngineEffect::Observe(_) | TurnEngineEffect::Log { .. } => None,
            };
            if end.is_some() {
                return end;
            }
        }
        effects = engine.handle(inputs.pop_front()?, now()).ok()?;
    }
}

fn request_of<T: Tools>(
    side: &RehearsalSide<'_, T>,
    engine: &Engine<T>,
    step: u32,
) -> ReplayedRequest {
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
    ReplayedRequest {
        step,
        offered: offered.cloned().collect(),
        messages: digests.collect(),
    }
}

/// Queues the recorded reply, after the answers that were taken in before the next one.
fn answer(
    turn: &RecordedTurn<'_>,
    step: u32,
    inputs: &mut VecDeque<TurnEngineInput>,
) -> Option<PlaybackEnd> {
    let Some(reply) = turn.reply(step) else {
        let is_over = step > 1 && turn.is_last(step - 1);
        return Some(if is_over {
            PlaybackEnd::GoesOn(step)
        } else {
            PlaybackEnd::Lacks(format!("no reply is recorded for step {step}"))
        });
    };
    for event in turn.answers(step).filter_map(event_of) {
        let event = Box::new(event);
        inputs.push_back(TurnEngineInput::Answer { event });
    }
    let message = Box::new(reply.clone());
    inputs.push_back(TurnEngineInput::ModelRecorded { step, message });
    None
}

/// Queues the recorded result of a call that would run.
fn run_tool<T: Tools>(
    side: &RehearsalSide<'_, T>,
    turn: &RecordedTurn<'_>,
    (key, call): (CallKey, &ToolCall),
    part: &mut TurnPlayback,
    inputs: &mut VecDeque<TurnEngineInput>,
) -> Option<PlaybackEnd> {
    let fate = match side.tools.approval(call) {
        Approve::Always => CallDisposition::Runs,
        Approve::Ask | Approve::AskTwo => CallDisposition::Asks,
        Approve::Never => CallDisposition::Refused("`approve: never` does not allow it".to_owned()),
    };
    let note = Call {
        step: key.step,
        tool_name: call.tool_name.clone(),
        fate,
    };
    part.calls.insert(call.id.clone(), note);
    let Some(result) = turn.result(&call.id) else {
        let name = &call.tool_name;
        return Some(PlaybackEnd::Lacks(format!(
            "no result of `{name}` is recorded in step {}",
            key.step
        )));
    };
    let outcome = ToolOutcome::recorded(result);
    inputs.push_back(TurnEngineInput::ToolFinished { key, outcome });
    None
}

/// Notes a result that the engine created without running the call.
fn note_refusal(
    event: &MessageEvent,
    ran: &BTreeSet<ToolCallId>,
    step: u32,
    part: &mut TurnPlayback,
) {
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
        fate: CallDisposition::Refused(text.unwrap_or_default()),
    };
    part.calls.insert(tool_call_id.clone(), refused);
}
