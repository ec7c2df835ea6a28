//! Collects what is recorded of the turns of a trace.

use std::collections::BTreeMap;
use std::time::Duration;

use goondan_client::{Client, Trace};
use goondan_protocol::control::{InstanceHistory, WorkspaceInfo};
use goondan_protocol::ids::{AgentName, EventId, InstanceKey, StepId, TurnId};
use goondan_protocol::message::{Message, MessageSource};
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind as Kind};
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceId;

use super::limits::INCIDENT_BYTES_MAX;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;

/// Suffix of the id of a turn's first message.
const FIRST: &str = ":u";

/// Recorded turns, without the actions of the engine.
#[derive(Debug)]
pub(super) struct TraceRecording {
    pub(super) trace_id: TraceId,
    pub(super) conversations: Vec<(AgentName, InstanceKey, Vec<Message>)>,
    pub(super) turns: Vec<TracedTurn>,
    pub(super) notes: Vec<String>,
}

/// A turn in a trace.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TracedTurn {
    pub(super) turn_id: TurnId,
    pub(super) event_id: Option<EventId>,
    pub(super) agent_name: AgentName,
    pub(super) instance_key: InstanceKey,
    pub(super) started_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) outcome: &'static str,
    pub(super) error: Option<String>,
    /// Digests of the configurations that it ran with.
    pub(super) ran_with: Vec<String>,
    /// True if the agent had its own configuration.
    pub(super) has_bundle: bool,
    pub(super) failures: BTreeMap<u32, String>,
    /// Index of its conversation, of its first message there, and number of its messages.
    pub(super) place: (usize, usize, usize),
}

/// Number of times that an export looks for the end of a turn.
const LOOKS_MAX: u32 = 20;
/// Time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Outcome of a turn that has not ended.
const OPEN: &str = "open";

/// Reads the turns of a trace; with the id of a turn or an event, only its turns.
///
/// # Errors
///
/// Nothing is recorded, or the conversation is too long.
pub(super) async fn read(
    client: &mut Client,
    workspace: &WorkspaceInfo,
    of: Option<&str>,
) -> Result<TraceRecording, Failure> {
    let (trace, mut turns) = ended(client, workspace, of).await?;
    let mut notes = notes_of(&trace, &turns);
    turns.retain(|turn| turn.outcome != OPEN);
    if turns.is_empty() {
        return Err(Failure::new(
            Exit::TryAgain,
            format!("no turn of trace {} has ended", trace.trace_id),
            "wait for its end: `gdn workspace watch`",
        ));
    }
    let mut conversations: Vec<(AgentName, InstanceKey, Vec<Message>)> = Vec::new();
    let mut bytes = 0;
    for turn in &mut turns {
        let mut known = conversations.iter();
        let place = known.position(|(_, key, _)| *key == turn.instance_key);
        let place = match place {
            Some(place) => place,
            None => {
                let messages = history(client, workspace, &turn.instance_key, &mut bytes).await?;
                let names = (turn.agent_name.clone(), turn.instance_key.clone());
                conversations.push((names.0, names.1, messages));
                conversations.len() - 1
            }
        };
        let messages = conversations.get(place).map(|(_, _, messages)| messages);
        let found = messages.and_then(|messages| place_of(messages, &turn.turn_id));
        turn.place = match found {
            Some((first, count)) => (place, first, count),
            None => (place, 0, 0),
        };
    }
    let lost = turns.iter().filter(|turn| turn.place.2 == 0);
    notes.extend(lost.map(|turn| {
        let id = &turn.turn_id;
        format!("the conversation no longer has turn `{id}`: it was rewound, removed or summarized")
    }));
    turns.retain(|turn| turn.place.2 > 0);
    if turns.is_empty() {
        return Err(Failure::new(
            Exit::NotFound,
            format!(
                "no conversation has the messages of trace {}",
                trace.trace_id
            ),
            "export it before a rewind, a deletion or a summary removes them",
        ));
    }
    // Messages after the last turn of a conversation do not affect it.
    for (place, (_, _, messages)) in conversations.iter_mut().enumerate() {
        let here = turns.iter().filter(|turn| turn.place.0 == place);
        let end = here.map(|turn| turn.place.1 + turn.place.2).max();
        messages.truncate(end.unwrap_or_default());
    }
    Ok(TraceRecording {
        trace_id: trace.trace_id,
        conversations,
        turns,
        notes,
    })
}

/// The turns of a trace. A turn that has just replied is about to record its end, so this waits for
/// it briefly.
async fn ended(
    client: &mut Client,
    workspace: &WorkspaceInfo,
    of: Option<&str>,
) -> Result<(Trace, Vec<TracedTurn>), Failure> {
    let mut looks_left = LOOKS_MAX;
    loop {
        let id = workspace.workspace_id.clone();
        let trace = client.trace(id, of.map(str::to_owned)).await?;
        let mut turns = turns_of(&trace.events);
        if let Some(id) = of.filter(|id| *id != trace.trace_id.to_string()) {
            turns.retain(|turn| {
                let event = turn.event_id.as_ref().map(EventId::as_str);
                turn.turn_id.as_str() == id || event == Some(id)
            });
        }
        looks_left -= 1;
        if looks_left == 0 || turns.iter().all(|turn| turn.outcome != OPEN) {
            return Ok((trace, turns));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

fn notes_of(trace: &Trace, turns: &[TracedTurn]) -> Vec<String> {
    let mut notes = Vec::new();
    if trace.partial {
        notes.push("the trace may be incomplete: only the latest records are searched".to_owned());
    }
    for turn in turns {
        let id = &turn.turn_id;
        if turn.outcome == OPEN {
            notes.push(format!("turn `{id}` has not ended and was left out"));
        }
        if turn.has_bundle {
            notes.push(format!(
                "turn `{id}` ran with the agent's own configuration; the file has the project's"
            ));
        }
    }
    notes
}

/// All messages of a conversation.
async fn history(
    client: &mut Client,
    workspace: &WorkspaceInfo,
    key: &InstanceKey,
    bytes: &mut usize,
) -> Result<Vec<Message>, Failure> {
    let mut read = InstanceHistory {
        workspace_id: workspace.workspace_id.clone(),
        instance_key: key.clone(),
        offset: 0,
    };
    let mut messages = Vec::new();
    loop {
        let page = client.query(read.clone()).await?;
        for message in &page.messages {
            let size = serde_json::to_vec(message).map_or(0, |text| text.len());
            *bytes = bytes.saturating_add(size);
        }
        if *bytes > INCIDENT_BYTES_MAX {
            let most = text::bytes(u64::try_from(INCIDENT_BYTES_MAX).unwrap_or(u64::MAX));
            let key = text::one_line(key.as_str());
            return Err(Failure::new(
                Exit::Conflict,
                format!("the conversation {key} is too long for an incident: more than {most}"),
                "summarize it with the extension `message-compaction`, or export another turn",
            ));
        }
        messages.extend(page.messages);
        match page.next {
            Some(next) => read.offset = next,
            None => return Ok(messages),
        }
    }
}

/// Index of a turn's first message, and the number of its messages.
pub(super) fn place_of(messages: &[Message], turn_id: &TurnId) -> Option<(usize, usize)> {
    let begins = |message: &Message| {
        let is_input = matches!(message.source, MessageSource::User { .. });
        is_input && message.id.as_str().ends_with(FIRST)
    };
    let mut all = messages.iter();
    let first = all.position(|message| {
        begins(message) && message.id.as_str().strip_suffix(FIRST) == Some(turn_id.as_str())
    })?;
    let rest = messages.iter().skip(first + 1);
    let count = rest.take_while(|message| !begins(message)).count();
    Some((first, count + 1))
}

/// The turns of a trace, in the order of their beginnings.
pub(super) fn turns_of(events: &[RuntimeEvent]) -> Vec<TracedTurn> {
    let mut turns: Vec<TracedTurn> = Vec::new();
    for event in events {
        let known = turns.iter_mut().find(|turn| turn.turn_id == event.turn_id);
        match known {
            Some(turn) => turn.take(event),
            None => {
                let mut turn = TracedTurn::begun_by(event);
                turn.take(event);
                turns.push(turn);
            }
        }
    }
    turns
}

impl TracedTurn {
    fn begun_by(event: &RuntimeEvent) -> Self {
        Self {
            turn_id: event.turn_id.clone(),
            event_id: None,
            agent_name: event.agent_name.clone(),
            instance_key: event.instance_key.clone(),
            started_at: event.timestamp,
            ended_at: None,
            outcome: OPEN,
            error: None,
            ran_with: Vec::new(),
            has_bundle: false,
            failures: BTreeMap::new(),
            place: (0, 0, 0),
        }
    }

    fn take(&mut self, event: &RuntimeEvent) {
        if let Some(id) = &event.event_id {
            self.event_id = Some(id.clone());
        }
        if let Some(digest) = &event.config_digest
            && !self.ran_with.contains(digest)
        {
            self.ran_with.push(digest.clone());
        }
        self.has_bundle |= event.bundle_revision.is_some();
        let ended = match event.kind {
            Kind::TurnCompleted => Some("completed"),
            Kind::TurnFailed => Some("failed"),
            Kind::TurnParked => Some("parked"),
            // A parked turn is retried.
            Kind::TurnStarted | Kind::TurnResumed => {
                (self.outcome, self.ended_at, self.error) = (OPEN, None, None);
                None
            }
            Kind::StepFailed => {
                let step = event.step_id.as_ref();
                let step = step.and_then(|step| step_of(step, &self.turn_id));
                if let Some(step) = step {
                    let error = event.detail.clone().unwrap_or_default();
                    self.failures.insert(step, error);
                }
                None
            }
            Kind::StepStarted
            | Kind::StepCompleted
            | Kind::ToolCalled
            | Kind::ToolCompleted
            | Kind::ToolFailed
            | Kind::QuestionAsked
            | Kind::QuestionClosed
            | Kind::ApprovalAsked
            | Kind::ApprovalClosed
            | Kind::BudgetWarning
            | Kind::MessageWarning => None,
        };
        if let Some(outcome) = ended {
            self.outcome = outcome;
            self.ended_at = Some(event.timestamp);
            if outcome != "completed" {
                self.error.clone_from(&event.detail);
            }
        }
    }
}

/// Number of a step.
fn step_of(step: &StepId, turn: &TurnId) -> Option<u32> {
    let number = step.as_str().strip_prefix(turn.as_str())?;
    let number = number.strip_prefix('.')?.parse().ok()?;
    (StepId::of_turn(turn, number) == *step).then_some(number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, turn: &str, more: &serde_json::Value) -> RuntimeEvent {
        let mut event = json!({
            "type": kind,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
            "spanId": "00f067aa0ba902b7",
            "agentName": "boss",
            "instanceKey": "main",
            "turnId": turn,
        });
        let fields = more.as_object().unwrap().clone();
        event.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn turns_are_read_from_their_events() {
        let none = json!({});
        let events = [
            event(
                "turn.started",
                "t",
                &json!({"eventId": "e", "configDigest": "d1"}),
            ),
            event("turn.started", "u", &none),
            event(
                "step.failed",
                "t",
                &json!({"stepId": "t.2", "detail": "overloaded"}),
            ),
            event(
                "turn.resumed",
                "t",
                &json!({"eventId": "e", "configDigest": "d2"}),
            ),
            event(
                "turn.failed",
                "t",
                &json!({"detail": "E_MODEL: overloaded"}),
            ),
        ];
        let turns = turns_of(&events);
        assert_eq!(turns.len(), 2);
        assert_eq!(turns[0].event_id.as_ref().unwrap().as_str(), "e");
        assert_eq!(turns[0].ran_with, ["d1", "d2"]);
        assert_eq!(turns[0].outcome, "failed");
        assert_eq!(turns[0].error.as_deref(), Some("E_MODEL: overloaded"));
        assert_eq!(
            turns[0].failures,
            BTreeMap::from([(2, "overloaded".to_owned())])
        );
        assert_eq!(turns[1].outcome, OPEN);
    }

    #[test]
    fn a_turn_ends_before_the_next_one() {
        let at = Timestamp::from_unix_millis(0);
        let message = |id: &str| Message::user(id.parse().unwrap(), at, "x");
        let messages = ["t:u", "t:i0", "u:u", "v:u"].map(message);
        let place = |id: &str| place_of(&messages, &id.parse().unwrap());
        assert_eq!(place("t"), Some((0, 2)));
        assert_eq!(place("u"), Some((2, 1)));
        assert_eq!(place("v"), Some((3, 1)));
        assert_eq!(place("w"), None);
    }
}
