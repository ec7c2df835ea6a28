//! The one rule of conversation state: `NextMessages = BaseMessages + SUM(Events)` (`MSG-4`).

use crate::ids::MessageId;
use crate::message::{Message, MessageEvent};

/// A `replace` or `remove` named a message that is not there. The event has no effect and the turn
/// goes on (`MSG-4`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {operation} names message `{target_id}`, which is not in the conversation")]
pub struct MissingTarget {
    /// `replace` or `remove`.
    pub operation: &'static str,
    /// The message it names.
    pub target_id: MessageId,
}

/// A list of messages and the events applied to it, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    messages: Vec<Message>,
}

impl Conversation {
    /// A conversation of confirmed messages.
    #[must_use]
    pub fn from_base(messages: Vec<Message>) -> Self {
        Self { messages }
    }

    /// Adds a confirmed message while a history is loaded.
    pub fn push_base(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Applies one event. Deterministic: the same base and the same events give the same messages.
    ///
    /// # Errors
    ///
    /// [`MissingTarget`] as a warning: the conversation is unchanged and further events may follow.
    pub fn apply(&mut self, event: MessageEvent) -> Result<(), MissingTarget> {
        match event {
            MessageEvent::Append { message } => self.messages.push(message),
            MessageEvent::Replace { target_id, message } => {
                match self.messages.iter_mut().find(|found| found.id == target_id) {
                    Some(found) => *found = message,
                    None => {
                        return Err(MissingTarget {
                            operation: "replace",
                            target_id,
                        });
                    }
                }
            }
            MessageEvent::Remove { target_id } => {
                match self.messages.iter().position(|found| found.id == target_id) {
                    Some(at) => drop(self.messages.remove(at)),
                    None => {
                        return Err(MissingTarget {
                            operation: "remove",
                            target_id,
                        });
                    }
                }
            }
            MessageEvent::Truncate => self.messages.clear(),
        }
        Ok(())
    }

    /// The messages as they stand.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
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

    fn ids(conversation: &Conversation) -> Vec<&str> {
        conversation
            .messages()
            .iter()
            .map(|m| m.id.as_str())
            .collect()
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
        assert!(talk.messages().is_empty());
    }

    #[test]
    fn a_missing_target_changes_nothing_and_is_said() {
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
}
