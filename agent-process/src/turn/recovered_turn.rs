//! The events of an open turn that survived a crash, and its progress.

use std::collections::BTreeSet;

use goondan_protocol::ids::{EventId, StepId, ToolCallId, TurnId};
use goondan_protocol::message::{Message, MessageEvent, MessageSource, ToolCall};
use goondan_protocol::time::Timestamp;
use serde::Deserialize;

use super::answers::taken_in_by;

/// Events of the open turn in the order they were loaded. Empty if no turn is open.
#[derive(Debug, Clone, Default)]
pub struct OpenTurn {
    turn_id: Option<TurnId>,
    events: Vec<MessageEvent>,
}

/// Fields of a record that are not part of the event itself.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordHead {
    #[serde(default)]
    turn_id: Option<TurnId>,
}

impl OpenTurn {
    /// Adds one record of the conversation's last page: a message event, with or without its number
    /// and turn id (`MSG-3`).
    ///
    /// # Errors
    ///
    /// If the record is not a message event.
    pub fn push_record(&mut self, record: &str) -> serde_json::Result<()> {
        let head: RecordHead = serde_json::from_str(record)?;
        self.push(head.turn_id, serde_json::from_str(record)?);
        Ok(())
    }

    /// Adds one event of the turn.
    pub fn push(&mut self, turn_id: Option<TurnId>, event: MessageEvent) {
        self.turn_id = turn_id.or_else(|| self.turn_id.take());
        self.events.push(event);
    }

    /// The turn that the events belong to, if they name one.
    pub(crate) fn turn_id(&self) -> Option<&TurnId> {
        self.turn_id.as_ref()
    }

    pub(crate) fn events(&self) -> &[MessageEvent] {
        &self.events
    }

    /// Answers that `turn_id` has received.
    pub(crate) fn taken_in(&self, turn_id: &TurnId) -> BTreeSet<EventId> {
        let messages = self.messages();
        messages
            .filter_map(|message| taken_in_by(turn_id, message))
            .collect()
    }

    /// The messages of the events, in order.
    pub(crate) fn messages(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.events.iter().filter_map(|event| match event {
            MessageEvent::Append { message } | MessageEvent::Replace { message, .. } => {
                Some(message)
            }
            MessageEvent::Remove { .. } | MessageEvent::Truncate => None,
        })
    }

    /// The model's replies to `turn_id` in order, even if their messages were replaced or removed
    /// later.
    pub(crate) fn replies(&self, turn_id: &TurnId) -> impl Iterator<Item = &Message> {
        self.events.iter().filter_map(move |event| match event {
            MessageEvent::Append { message } => {
                step_number(turn_id, message.step_id()?)?;
                Some(message)
            }
            MessageEvent::Replace { .. } | MessageEvent::Remove { .. } | MessageEvent::Truncate => {
                None
            }
        })
    }

    /// The summary that the model wrote for `turn_id`.
    pub(crate) fn summary(&self, turn_id: &TurnId) -> Option<&Message> {
        self.events.iter().find_map(|event| match event {
            MessageEvent::Append { message } => {
                message.step_id()?.summarized(turn_id)?;
                Some(message)
            }
            MessageEvent::Replace { .. } | MessageEvent::Remove { .. } | MessageEvent::Truncate => {
                None
            }
        })
    }

    /// Progress of `turn_id`. It is derived from the records, not from the conversation, because a
    /// message that was removed later was still recorded.
    pub(crate) fn progress(&self, turn_id: &TurnId, user_message_id: &str) -> Progress {
        // A reply that an extension replaced later keeps its position.
        let last_step = self.replies(turn_id).last();
        let last_step = last_step.and_then(|message| {
            let number = step_number(turn_id, message.step_id()?)?;
            Some((number, message))
        });
        if let Some((step, message)) = last_step {
            return Progress::Replied(RecordedReply {
                step,
                text: message.data.content.to_text(),
                calls: message.data.content.tool_calls(),
                answered: self.answered(),
                at: message.created_at.parse().ok(),
            });
        }
        if self.messages().any(|m| m.id.as_str() == user_message_id) {
            Progress::Asked
        } else {
            Progress::Nothing
        }
    }

    fn answered(&self) -> BTreeSet<ToolCallId> {
        self.messages()
            .filter_map(|message| match &message.source {
                MessageSource::Tool { tool_call_id, .. } => Some(tool_call_id.clone()),
                MessageSource::User { .. }
                | MessageSource::Assistant { .. }
                | MessageSource::System { .. }
                | MessageSource::Extension { .. } => None,
            })
            .collect()
    }
}

/// Parses the step number of `turn_id` from a step id.
fn step_number(turn_id: &TurnId, step_id: &StepId) -> Option<u32> {
    let number = step_id
        .as_str()
        .strip_prefix(turn_id.as_str())?
        .strip_prefix('.')?
        .parse()
        .ok()?;
    (StepId::of_turn(turn_id, number) == *step_id).then_some(number)
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Progress {
    /// No event of the turn is recorded.
    Nothing,
    /// The user's message is recorded.
    Asked,
    /// The model's reply of a step is recorded, and perhaps some results of its calls.
    Replied(RecordedReply),
}

/// The last recorded reply of the model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RecordedReply {
    pub(crate) step: u32,
    pub(crate) text: String,
    pub(crate) calls: Vec<ToolCall>,
    /// The calls whose results are recorded.
    pub(crate) answered: BTreeSet<ToolCallId>,
    /// Its time; `None` if the record has none.
    pub(crate) at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &str = r#"{"type":"append","turnId":"t","seq":1,"message":{"id":"t:u","data":{"role":"user","content":"hi"},"createdAt":"x","source":{"type":"user"}}}"#;
    const STEP: &str = r#"{"type":"append","message":{"id":"t.2:a","data":{"role":"assistant","content":[{"type":"tool-call","toolCallId":"c","toolName":"x","input":{}}]},"createdAt":"x","source":{"type":"assistant","stepId":"t.2"}}}"#;
    const RESULT: &str = r#"{"type":"append","message":{"id":"t.2:r0","data":{"role":"tool","content":[]},"createdAt":"x","source":{"type":"tool","toolCallId":"c","toolName":"x"}}}"#;

    fn progress(records: &[&str]) -> Progress {
        let mut open = OpenTurn::default();
        for record in records {
            open.push_record(record).unwrap();
        }
        open.progress(&TurnId::new("t").unwrap(), "t:u")
    }

    #[test]
    fn progress_is_read_from_the_records() {
        assert_eq!(progress(&[]), Progress::Nothing);
        assert_eq!(progress(&[USER]), Progress::Asked);
        let Progress::Replied(replied) = progress(&[USER, STEP, RESULT]) else {
            panic!("no reply was found");
        };
        assert_eq!(replied.step, 2);
        assert_eq!((replied.calls.len(), replied.answered.len()), (1, 1));
    }

    #[test]
    fn a_reply_that_was_replaced_later_is_not_the_last_one() {
        let replaced = STEP.replace("append", "replace").replace(
            r#""message":{"id":"t.2:a""#,
            r#""targetId":"t.1:a","message":{"id":"t.1:b""#,
        );
        let replaced = replaced.replace(r#""stepId":"t.2""#, r#""stepId":"t.1""#);
        let Progress::Replied(replied) = progress(&[USER, STEP, RESULT, &replaced]) else {
            panic!("no reply was found");
        };
        assert_eq!(replied.step, 2);
    }

    #[test]
    fn removed_message_still_counts_as_progress_of_the_turn() {
        let removed = r#"{"type":"remove","targetId":"t:u"}"#;
        assert_eq!(progress(&[USER, removed]), Progress::Asked);
    }

    #[test]
    fn only_steps_of_this_turn_count() {
        let t = TurnId::new("t").unwrap();
        let number = |id: &str| step_number(&t, &StepId::new(id).unwrap());
        assert_eq!(number("t.12"), Some(12));
        for other in ["t2.1", "t.01", "t.+1", "t.", "t", "u.1"] {
            assert_eq!(number(other), None, "{other}");
        }
    }
}
