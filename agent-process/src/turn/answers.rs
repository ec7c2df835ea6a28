//! Events as messages: what a turn answers, and answers to questions of the agent that it takes in on
//! the way.

use std::collections::{BTreeSet, VecDeque};

use goondan_protocol::agents::{IN_REPLY_TO, REPLY_KIND, REQUEST_NOTE};
use goondan_protocol::event::{AgentEvent, EventSource};
use goondan_protocol::ids::{EventId, InvalidId, MessageId, TurnId};
use goondan_protocol::images;
use goondan_protocol::message::Message;
use goondan_protocol::time::Timestamp;
use serde_json::{Value, json};

/// The note of a message that names the event it came by.
const EVENT_ID: &str = "eventId";

/// Answers that came while the turn runs.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Those that are part of the turn.
    taken_in: BTreeSet<EventId>,
    /// Those that will be, at its next step.
    waiting: VecDeque<AgentEvent>,
}

impl Answers {
    /// The answers of a turn that took in some already.
    pub(crate) fn after(taken_in: BTreeSet<EventId>) -> Self {
        let waiting = VecDeque::new();
        Self { taken_in, waiting }
    }

    /// Takes note of an answer, once.
    pub(crate) fn give(&mut self, event: AgentEvent) {
        let is_here = self.waiting.iter().any(|other| other.id == event.id);
        if !is_here && !self.taken_in.contains(&event.id) {
            self.waiting.push_back(event);
        }
    }

    /// The message of the next answer to be taken in, if one waits.
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

    /// The events that are over with the turn.
    pub(crate) fn taken_in(&self) -> Vec<EventId> {
        self.taken_in.iter().cloned().collect()
    }
}

/// How the ids of messages begin by which a turn took answers in.
fn prefix(turn_id: &TurnId) -> String {
    format!("{turn_id}:i")
}

/// The answer that a recorded message of the turn took in, if it did.
pub(crate) fn taken_in_by(turn_id: &TurnId, message: &Message) -> Option<EventId> {
    message.id.as_str().strip_prefix(&prefix(turn_id))?;
    let event_id = message.metadata.get(EVENT_ID)?.as_str()?;
    event_id.parse().ok()
}

/// An event as a message for the model.
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
        _ => input.to_owned(),
    };
    // They were checked when the event came in.
    let images = images::of_metadata(&event.metadata).unwrap_or_default();
    let mut message = Message::user_with_images(id, now, &text, &images);
    let metadata = &mut message.metadata;
    metadata.insert(EVENT_ID.to_owned(), json!(event.id));
    if let Some((name, key)) = from {
        let from = json!({"agent": name, "instanceKey": key});
        metadata.insert("from".to_owned(), from);
    }
    if let Some(question) = question {
        metadata.insert(IN_REPLY_TO.to_owned(), json!(question));
    }
    if let Some(note) = event.metadata.get(REQUEST_NOTE) {
        metadata.insert(REQUEST_NOTE.to_owned(), note.clone());
    }
    message
}
