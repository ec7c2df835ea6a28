//! Judges the demo by the contents of the conversations. It gets the senders' acknowledgments and the files on disk,
//! and keeps no count of its own while processes are killed.

use std::collections::BTreeMap;

use goondan_protocol::ids::InstanceKey;
use goondan_protocol::message::{Message, MessageRole};
use serde::Serialize;

/// Prefix of the reply to an event.
const ANSWER: &str = "done: ";

#[derive(Debug, Clone)]
pub(super) struct DemoEvent {
    pub(super) conversation: InstanceKey,
    /// Input of the event, unique among all events.
    pub(super) input: String,
    /// True if the sender received an acknowledgment.
    pub(super) is_accepted: bool,
}

/// Message that counts for the verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DemoMessage {
    Question(String),
    Answer(String),
}

impl DemoMessage {
    /// Converts a message; tool calls and their results do not count.
    pub(super) fn of(message: &Message) -> Option<Self> {
        let text = message.data.content.to_text();
        match message.data.role {
            MessageRole::User => Some(Self::Question(text)),
            MessageRole::Assistant if !text.is_empty() => Some(Self::Answer(text)),
            MessageRole::Assistant | MessageRole::Tool | MessageRole::System => None,
        }
    }
}

/// Outcome of all events.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DemoVerdict {
    /// Events whose senders received an acknowledgment.
    pub(super) accepted: usize,
    /// Accepted events that appear once in their conversation, with one reply.
    pub(super) answered_once: usize,
    /// Inputs that were accepted or started and have no reply.
    pub(super) lost: Vec<String>,
    /// Inputs that appear or are answered more than once.
    pub(super) repeated: Vec<String>,
    /// Unexpected messages: replies to other events, and inputs that no sender sent.
    pub(super) astray: Vec<String>,
}

impl DemoVerdict {
    /// True if every accepted event was answered exactly once.
    pub(super) fn is_good(&self) -> bool {
        self.lost.is_empty() && self.repeated.is_empty() && self.astray.is_empty()
    }
}

/// Number of times an input appears in its conversation and is answered.
#[derive(Debug, Default)]
struct InputCounts {
    questions: usize,
    answers: usize,
}

/// Judges the events by the conversations on disk.
pub(super) fn judge(
    events: &[DemoEvent],
    conversations: &BTreeMap<InstanceKey, Vec<DemoMessage>>,
) -> DemoVerdict {
    let mut seen: BTreeMap<(&InstanceKey, &str), InputCounts> = events
        .iter()
        .map(|event| {
            (
                (&event.conversation, event.input.as_str()),
                InputCounts::default(),
            )
        })
        .collect();
    let mut verdict = DemoVerdict::default();
    for (key, said) in conversations {
        let mut asked: Option<&str> = None;
        for said in said {
            let (text, input) = match said {
                DemoMessage::Question(text) => (text, text.as_str()),
                DemoMessage::Answer(text) => (text, text.strip_prefix(ANSWER).unwrap_or_default()),
            };
            match (seen.get_mut(&(key, input)), said) {
                (Some(seen), DemoMessage::Question(_)) => {
                    seen.questions += 1;
                    asked = Some(input);
                }
                (Some(seen), DemoMessage::Answer(_)) if asked == Some(input) => seen.answers += 1,
                _ => verdict.astray.push(text.clone()),
            }
        }
    }
    for event in events {
        let Some(seen) = seen.get(&(&event.conversation, event.input.as_str())) else {
            continue;
        };
        let is_begun = event.is_accepted || seen.questions > 0;
        verdict.accepted += usize::from(event.is_accepted);
        if seen.questions > 1 || seen.answers > 1 {
            verdict.repeated.push(event.input.clone());
        } else if is_begun && seen.answers == 0 {
            verdict.lost.push(event.input.clone());
        } else if event.is_accepted {
            verdict.answered_once += 1;
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> InstanceKey {
        InstanceKey::new("c").unwrap()
    }

    fn events(accepted: &[(&str, bool)]) -> Vec<DemoEvent> {
        let event = |(input, is_accepted): &(&str, bool)| DemoEvent {
            conversation: key(),
            input: (*input).to_owned(),
            is_accepted: *is_accepted,
        };
        accepted.iter().map(event).collect()
    }

    /// Parses a history: `?a` is the input a, `!a` its reply.
    fn history(said: &str) -> BTreeMap<InstanceKey, Vec<DemoMessage>> {
        let said = said.split_whitespace().map(|word| match word.split_at(1) {
            ("?", input) => DemoMessage::Question(input.to_owned()),
            (_, input) => DemoMessage::Answer(format!("{ANSWER}{input}")),
        });
        BTreeMap::from([(key(), said.collect())])
    }

    #[test]
    fn rel_2_events_answered_exactly_once_pass() {
        let events = events(&[("a", true), ("b", true), ("never sent", false)]);
        let verdict = judge(&events, &history("?a !a ?b !b"));
        assert!(verdict.is_good(), "{verdict:?}");
        assert_eq!((verdict.accepted, verdict.answered_once), (2, 2));
    }

    #[test]
    fn rel_2_missing_duplicate_and_unknown_history_is_reported() {
        let all = events(&[("a", true), ("b", true), ("c", false)]);
        for (said, lost, repeated, astray) in [
            ("?a !a", "b", "", ""),
            ("?a ?b !b", "a", "", ""),
            ("", "a b", "", ""),
            // c was not acknowledged, but its turn began.
            ("?a !a ?b !b ?c", "c", "", ""),
            ("?a !a !a ?b !b", "", "a", ""),
            ("?a !a ?b !b ?b !b", "", "b", ""),
            ("?a ?a !a ?b !b", "", "a", ""),
            ("?a !b ?b !b", "a", "", "done: b"),
            ("?a !a ?b !b ?x", "", "", "x"),
            ("?a !a ?b !b !x", "", "", "done: x"),
        ] {
            let verdict = judge(&all, &history(said));
            assert!(!verdict.is_good(), "{said}");
            let told = [&verdict.lost, &verdict.repeated, &verdict.astray].map(|all| all.join(" "));
            assert_eq!(told, [lost, repeated, astray], "{said}");
        }
    }

    #[test]
    fn rel_2_event_in_another_conversation_counts_as_lost() {
        let mut other = history("?a !a");
        let said = other.remove(&key()).unwrap();
        other.insert(InstanceKey::new("d").unwrap(), said);
        let verdict = judge(&events(&[("a", true)]), &other);
        assert_eq!(verdict.lost, ["a"]);
        assert_eq!(verdict.astray, ["a", "done: a"]);
    }
}
