//! Events as messages: the event that a turn answers, and replies to the agent's own questions that
//! arrive during the turn.

use std::collections::{BTreeSet, VecDeque};

use goondan_protocol::agents::{IN_REPLY_TO, REPLY_KIND, REQUEST_NOTE};
use goondan_protocol::event::{AgentEvent, EventSource};
use goondan_protocol::event_header;
use goondan_protocol::ids::{EventId, InvalidId, MessageId, TurnId};
use goondan_protocol::images;
use goondan_protocol::message::Message;
use goondan_protocol::schedule::SCHEDULE;
use goondan_protocol::time::Timestamp;
use serde_json::{Value, json};

/// Metadata key of a message: id of the event that brought it.
const EVENT_ID: &str = "eventId";

/// Answers that arrived while the turn runs.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Answers that are part of the turn.
    taken_in: BTreeSet<EventId>,
    /// Answers that the next step takes in.
    waiting: VecDeque<AgentEvent>,
}

impl Answers {
    /// Answers of a resumed turn that has already received some.
    pub(crate) fn after(taken_in: BTreeSet<EventId>) -> Self {
        let waiting = VecDeque::new();
        Self { taken_in, waiting }
    }

    /// Queues an answer unless it is already queued or taken in.
    pub(crate) fn give(&mut self, event: AgentEvent) {
        let is_here = self.waiting.iter().any(|other| other.id == event.id);
        if !is_here && !self.taken_in.contains(&event.id) {
            self.waiting.push_back(event);
        }
    }

    /// Returns the message of the next queued answer, if any.
    pub(crate) fn next_message(
        &mut self,
        turn_id: &TurnId,
        now: Timestamp,
    ) -> Result<Option<Message>, InvalidId> {
        let Some(event) = self.waiting.pop_front() else {
            return Ok(None);
        };
        let id = MessageId::new(format!("{}{}", prefix(turn_id), self.taken_in.len()))?;
        self.taken_in.insert(event.id.clone());
        Ok(Some(message_of(id, now, &event)))
    }

    /// Events that are completed together with the turn.
    pub(crate) fn taken_in(&self) -> Vec<EventId> {
        self.taken_in.iter().cloned().collect()
    }
}

/// Prefix of the ids of messages that bring answers into a turn.
fn prefix(turn_id: &TurnId) -> String {
    format!("{turn_id}:i")
}

/// Returns the id of the answer that a recorded message of the turn brought in, if any.
pub(crate) fn taken_in_by(turn_id: &TurnId, message: &Message) -> Option<EventId> {
    message.id.as_str().strip_prefix(&prefix(turn_id))?;
    let event_id = message.metadata.get(EVENT_ID)?.as_str()?;
    event_id.parse().ok()
}

/// Converts an event to a message for the model.
pub(crate) fn message_of(id: MessageId, now: Timestamp, event: &AgentEvent) -> Message {
    let input = event.input.as_deref().unwrap_or("");
    let note = |name: &str| event.metadata.get(name).and_then(Value::as_str);
    let from = match &event.source {
        EventSource::Agent { name, instance_key } => Some((name, instance_key)),
        EventSource::Connector { .. } => None,
    };
    let question = note(IN_REPLY_TO).filter(|_| event.kind == REPLY_KIND);
    let text = match (question, from) {
        (Some(question), Some((name, key))) => {
            let did = if note("status") == Some("failed") {
                "could not answer"
            } else {
                "answers"
            };
            format!("[agent `{name}` (`{key}`) {did} request `{question}`]\n{input}")
        }
        _ => match &event.header {
            Some(header) => event_header::below(header, input),
            None => input.to_owned(),
        },
    };
    // The images were validated when the event was accepted.
    let images = images::of_metadata(&event.metadata).unwrap_or_default();
    let mut message = Message::user_with_images(id, now, &text, &images);
    let metadata = &mut message.metadata;
    metadata.insert(EVENT_ID.to_owned(), json!(event.id));
    if let Some(header) = event.header.as_ref().filter(|_| question.is_none()) {
        metadata.insert(event_header::HEADER.to_owned(), json!(header));
    }
    if let Some((name, key)) = from {
        let from = json!({"agent": name, "instanceKey": key});
        metadata.insert("from".to_owned(), from);
    }
    if let Some(question) = question {
        metadata.insert(IN_REPLY_TO.to_owned(), json!(question));
    }
    if let Some(origin) = event.metadata.get(SCHEDULE).filter(|_| from.is_some()) {
        metadata.insert(SCHEDULE.to_owned(), origin.clone());
    }
    if let Some(note) = event.metadata.get(REQUEST_NOTE) {
        metadata.insert(REQUEST_NOTE.to_owned(), note.clone());
    }
    message
}
