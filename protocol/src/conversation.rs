//! The rule by which events change a conversation: `NextMessages = BaseMessages + SUM(Events)`
//! (`MSG-4`).

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;

use crate::ids::MessageId;
use crate::message::{Message, MessageEvent};

/// A `replace` or `remove` named a message that does not exist. The event has no effect and the
/// turn continues (`MSG-4`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {operation} refers to message `{target_id}`, which is not in the conversation")]
pub struct MissingTarget {
    /// `replace` or `remove`.
    pub operation: &'static str,
    /// The message it names.
    pub target_id: MessageId,
}

/// A stored record that is not a valid message.
#[derive(Debug, thiserror::Error)]
#[error("failed to read message {place} of the conversation")]
pub struct UnreadableMessage {
    /// Its position in the conversation, from 1.
    pub place: usize,
    /// The cause.
    #[source]
    pub source: serde_json::Error,
}

/// A message: parsed, or as stored and not parsed yet.
#[derive(Debug, Clone, PartialEq)]
enum MessageSlot {
    Read(Box<Message>),
    Stored(Bytes),
}

/// The fields of a stored message that are needed to find it.
#[derive(Deserialize)]
struct StoredMessageId {
    id: MessageId,
}

impl MessageSlot {
    fn has_id(&self, id: &MessageId) -> bool {
        match self {
            Self::Read(message) => message.id == *id,
            Self::Stored(text) => {
                serde_json::from_slice::<StoredMessageId>(text).is_ok_and(|found| found.id == *id)
            }
        }
    }
}

/// A list of messages, and the events applied to it in order.
///
/// Stored messages are kept in serialized form and parsed on access, so that a long history uses
/// little more memory than its bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    entries: Vec<MessageSlot>,
}

impl Conversation {
    /// Creates a conversation of confirmed messages.
    #[must_use]
    pub fn from_base(messages: Vec<Message>) -> Self {
        let mut conversation = Self::default();
        for message in messages {
            conversation.push(message);
        }
        conversation
    }

    /// Appends a message.
    pub fn push(&mut self, message: Message) {
        self.entries.push(MessageSlot::Read(Box::new(message)));
    }

    /// Appends the JSON text of a confirmed message while a history is loaded, without parsing it.
    pub fn push_stored(&mut self, text: Bytes) {
        self.entries.push(MessageSlot::Stored(text));
    }

    /// Applies an event. Deterministic: the same base and events always produce the same messages.
    ///
    /// # Errors
    ///
    /// [`MissingTarget`] as a warning: the conversation is unchanged and further events may follow.
    pub fn apply(&mut self, event: MessageEvent) -> Result<(), MissingTarget> {
        match event {
            MessageEvent::Append { message } => self.push(message),
            MessageEvent::Replace { target_id, message } => {
                let at = self.place_of(&target_id);
                let Some(found) = at.and_then(|at| self.entries.get_mut(at)) else {
                    let operation = "replace";
                    return Err(MissingTarget {
                        operation,
                        target_id,
                    });
                };
                *found = MessageSlot::Read(Box::new(message));
            }
            MessageEvent::Remove { target_id } => {
                let Some(at) = self.place_of(&target_id) else {
                    let operation = "remove";
                    return Err(MissingTarget {
                        operation,
                        target_id,
                    });
                };
                drop(self.entries.remove(at));
            }
            MessageEvent::Truncate => self.entries.clear(),
        }
        Ok(())
    }

    fn place_of(&self, id: &MessageId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.has_id(id))
    }

    /// True if a message with this id exists.
    #[must_use]
    pub fn has(&self, id: &MessageId) -> bool {
        self.place_of(id).is_some()
    }

    /// Number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The current messages, oldest first. Stored messages are parsed during iteration.
    pub fn messages(
        &self,
    ) -> impl DoubleEndedIterator<Item = Result<Cow<'_, Message>, UnreadableMessage>> + ExactSizeIterator
    {
        self.entries
            .iter()
            .enumerate()
            .map(|(at, entry)| match entry {
                MessageSlot::Read(message) => Ok(Cow::Borrowed(&**message)),
                MessageSlot::Stored(text) => {
                    let place = at + 1;
                    let read = serde_json::from_slice(text);
                    read.map(Cow::Owned)
                        .map_err(|source| UnreadableMessage { place, source })
                }
            })
    }

    /// All messages, parsed.
    ///
    /// # Errors
    ///
    /// [`UnreadableMessage`] for the first invalid message.
    pub fn to_messages(&self) -> Result<Vec<Message>, UnreadableMessage> {
        self.messages()
            .map(|message| message.map(Cow::into_owned))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn message(id: &str) -> Message {
        Message::user(
            MessageId::new(id).unwrap(),
            Timestamp::from_unix_millis(0),
            id,
        )
    }

    fn ids(conversation: &Conversation) -> Vec<String> {
        let messages = conversation.to_messages().unwrap();
        messages.iter().map(|m| m.id.to_string()).collect()
    }

    #[test]
    fn events_apply_in_order() {
        let mut talk = Conversation::from_base(vec![message("a"), message("b")]);
        let id = |id: &str| MessageId::new(id).unwrap();
        talk.apply(MessageEvent::Append {
            message: message("c"),
        })
        .unwrap();
        talk.apply(MessageEvent::Replace {
            target_id: id("a"),
            message: message("a2"),
        })
        .unwrap();
        talk.apply(MessageEvent::Remove { target_id: id("b") })
            .unwrap();
        assert_eq!(ids(&talk), ["a2", "c"]);
        talk.apply(MessageEvent::Truncate).unwrap();
        assert!(talk.is_empty());
    }

    #[test]
    fn missing_target_is_reported_and_changes_nothing() {
        let mut talk = Conversation::from_base(vec![message("a")]);
        let target_id = MessageId::new("zz").unwrap();
        let error = talk
            .apply(MessageEvent::Remove {
                target_id: target_id.clone(),
            })
            .unwrap_err();
        assert_eq!(
            error,
            MissingTarget {
                operation: "remove",
                target_id: target_id.clone()
            }
        );
        assert!(
            talk.apply(MessageEvent::Replace {
                target_id,
                message: message("b")
            })
            .is_err()
        );
        assert_eq!(ids(&talk), ["a"]);
    }

    #[test]
    fn stored_messages_are_found_read_and_replaced_like_others() {
        let mut talk = Conversation::default();
        for id in ["a", "b", "c"] {
            talk.push_stored(Bytes::from(serde_json::to_vec(&message(id)).unwrap()));
        }
        assert_eq!(ids(&talk), ["a", "b", "c"]);
        let id = |id: &str| MessageId::new(id).unwrap();
        talk.apply(MessageEvent::Replace {
            target_id: id("b"),
            message: message("b2"),
        })
        .unwrap();
        talk.apply(MessageEvent::Remove { target_id: id("a") })
            .unwrap();
        assert_eq!(ids(&talk), ["b2", "c"]);
        let newest_first: Vec<_> = talk
            .messages()
            .rev()
            .map(|m| m.unwrap().id.to_string())
            .collect();
        assert_eq!(newest_first, ["c", "b2"]);
    }

    #[test]
    fn invalid_stored_message_is_reported_by_its_position() {
        let mut talk = Conversation::from_base(vec![message("a")]);
        talk.push_stored(Bytes::from_static(br#"{"id":"b"}"#));
        assert_eq!(talk.len(), 2);
        let error = talk.to_messages().unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to read message 2 of the conversation"
        );
        let target_id = MessageId::new("b").unwrap();
        talk.apply(MessageEvent::Remove { target_id }).unwrap();
        assert_eq!(ids(&talk), ["a"]);
    }
}
