//! Arrivals in a conversation from outside the chat: from a webhook, a schedule, another client or another agent
//! (`STEER-4`).

use std::collections::{HashSet, VecDeque};

use goondan_protocol::control::WatchUpdate;
use goondan_protocol::ids::{EventId, InstanceKey, MessageId, TurnId};
use goondan_protocol::lifecycle::LifecycleEvent as Event;
use goondan_protocol::message::{Message, MessageRole};
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::{ReplyCost, UsageTotal};
use tokio::sync::mpsc;

use crate::commands::follow::{self, WorkspaceNotification};
use crate::commands::lifecycle_text;
use crate::commands::turns::UnansweredTurn;
use crate::context::Context;

/// Number of latest messages searched for new ones.
pub(super) const MESSAGES_MAX: usize = 200;

/// Something that happened in the conversation.
#[derive(Debug)]
pub(super) enum Arrival {
    Messages,
    /// The daemon is available, or available again: anything may have arrived.
    Anew,
    /// A turn ended without a reply.
    Failed {
        event_id: EventId,
        turn_id: TurnId,
        text: String,
    },
    /// Other change, with the event id if it belongs to a turn.
    Told {
        event_id: Option<EventId>,
        text: String,
    },
}

/// Watches a conversation across daemon restarts.
pub(super) async fn watch(
    context: &Context,
    key: &InstanceKey,
    arrivals: &mpsc::UnboundedSender<Arrival>,
) {
    let mut event_id = None;
    let take = |followed| {
        // A lost daemon is reported by the next request.
        if let WorkspaceNotification::Change(change) = followed {
            let arrival = arrival(change.told, key, &mut event_id);
            // A send fails only after the chat has ended, which also ends this task.
            drop(arrival.map(|arrival| arrivals.send(arrival)));
        }
    };
    follow::follow(context, take).await;
}

/// Converts an update to an arrival in the conversation. `event_id` is that of the turn in progress.
fn arrival(
    told: WatchUpdate,
    key: &InstanceKey,
    event_id: &mut Option<EventId>,
) -> Option<Arrival> {
    let event = match told {
        WatchUpdate::Snapshot(snapshot) if snapshot.more => return None,
        WatchUpdate::Snapshot(_) => return Some(Arrival::Anew),
        WatchUpdate::Event(event) if event.instance_key() == Some(key) => event,
        WatchUpdate::Event(_) => return None,
    };
    let text = || lifecycle_text::event_text(&event).1;
    let told = |event_id| Arrival::Told {
        event_id,
        text: text(),
    };
    match &event {
        Event::TurnStarted { event_id: own, .. } => {
            *event_id = Some(own.clone());
            None
        }
        Event::TurnCommitted { outcome, .. } if outcome == "completed" => Some(Arrival::Messages),
        Event::TurnCommitted {
            event_id: own,
            turn_id,
            ..
        } => Some(Arrival::Failed {
            event_id: own.clone(),
            turn_id: turn_id.clone(),
            text: text(),
        }),
        Event::EventParked { event_id: own, .. } => Some(told(Some(own.clone()))),
        Event::ApprovalAsked { .. } | Event::QuestionAsked { .. } => Some(told(event_id.clone())),
        Event::InstanceRewound { .. } | Event::InstanceDeleted { .. } => Some(told(None)),
        _ => None,
    }
}

/// Messages already shown, and events sent by this chat.
#[derive(Debug)]
pub(super) struct ChatProgress {
    since: Timestamp,
    last: Option<(MessageId, String)>,
    own: HashSet<EventId>,
    /// Events of this chat whose reply it no longer waits for.
    left: HashSet<EventId>,
    failed: HashSet<TurnId>,
}

impl ChatProgress {
    /// Empty state at the start of a chat.
    pub(super) fn nothing(since: Timestamp) -> Self {
        Self {
            since,
            last: None,
            own: HashSet::new(),
            left: HashSet::new(),
            failed: HashSet::new(),
        }
    }

    /// Marks the messages that exist when the chat begins as seen.
    pub(super) fn begin(&mut self, latest: &VecDeque<Message>) {
        self.last = latest.back().map(place_of);
    }

    /// Records an event of this chat, which shows the reply itself.
    pub(super) fn ask(&mut self, event_id: EventId) {
        self.own.insert(event_id);
    }

    /// Records that the chat no longer waits for the reply to its event: the reply is an arrival then.
    pub(super) fn leave(&mut self, event_id: &EventId) {
        if let Some(event_id) = self.own.take(event_id) {
            self.left.insert(event_id);
        }
    }

    pub(super) fn is_own(&self, event_id: &EventId) -> bool {
        self.own.contains(event_id)
    }

    /// True if a failed turn must be reported: once, and not if this chat sent its event, because the request reports
    /// it.
    pub(super) fn take_failed(&mut self, event_id: Option<&EventId>, turn_id: &TurnId) -> bool {
        let is_own = event_id.is_some_and(|event_id| self.is_own(event_id));
        !is_own && self.failed.insert(turn_id.clone())
    }

    /// Returns the failed turns that must be reported.
    pub(super) fn take_all_failed(&mut self, turns: Vec<UnansweredTurn>) -> Vec<UnansweredTurn> {
        let is_since = |turn: &UnansweredTurn| turn.ended_at >= self.since;
        let mut since: Vec<UnansweredTurn> = turns.into_iter().filter(is_since).collect();
        since.retain(|turn| self.take_failed(turn.event_id.as_ref(), &turn.turn_id));
        since
    }

    /// Returns the new messages that do not belong to events of this chat, and marks all as seen.
    pub(super) fn take_new(&mut self, latest: VecDeque<Message>) -> Vec<Message> {
        let new = self.begin_of_new(&latest);
        if let Some(last) = latest.back() {
            self.last = Some(place_of(last));
        }
        let mut is_own = false;
        let is_elsewhere = |message: &Message| {
            let Some(event_id) = event_of(message) else {
                return !is_own;
            };
            is_own = self.own.contains(&event_id);
            // The person's own text is on the screen.
            !is_own && !self.left.contains(&event_id)
        };
        let new = latest.into_iter().skip(new);
        new.filter(is_elsewhere).collect()
    }

    /// Index of the first new message.
    fn begin_of_new(&self, latest: &VecDeque<Message>) -> usize {
        let Some((id, created_at)) = &self.last else {
            return 0;
        };
        match latest.iter().rposition(|message| message.id == *id) {
            Some(place) => place + 1,
            // The last seen message was compacted or rolled back in the meantime.
            None => latest
                .iter()
                .position(|message| message.created_at > *created_at)
                .unwrap_or(latest.len()),
        }
    }
}

fn place_of(message: &Message) -> (MessageId, String) {
    (message.id.clone(), message.created_at.clone())
}

/// Usage of the replies to an event.
pub(super) fn spent_on(event_id: &EventId, messages: &VecDeque<Message>) -> UsageTotal {
    let mut spending = UsageTotal::default();
    let mut is_own = false;
    for message in messages {
        if let Some(of) = event_of(message) {
            is_own = of == *event_id;
        }
        if is_own && message.data.role == MessageRole::Assistant {
            spending.add_reply(&ReplyCost::of_metadata(&message.metadata));
        }
    }
    spending
}

/// Event that the message came from.
fn event_of(message: &Message) -> Option<EventId> {
    message.metadata.get("eventId")?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(id: &str, event: Option<&str>, second: u32) -> Message {
        let role = if event.is_some() { "user" } else { "assistant" };
        let source = match event {
            Some(_) => json!({"type": "user"}),
            None => json!({"type": "assistant", "stepId": "t.1"}),
        };
        let metadata = event.map_or(json!({}), |event| json!({"eventId": event}));
        serde_json::from_value(json!({
            "id": id, "data": {"role": role, "content": id}, "metadata": metadata,
            "createdAt": format!("2026-01-01T00:00:{second:02}.000Z"), "source": source,
        }))
        .unwrap()
    }

    fn ids(messages: &[Message]) -> Vec<&str> {
        messages.iter().map(|message| message.id.as_str()).collect()
    }

    #[test]
    fn steer_4_new_messages_of_others_are_shown_once() {
        let mut seen = ChatProgress::nothing(Timestamp::from_unix_millis(0));
        let mut all: VecDeque<Message> =
            [message("a", Some("e1"), 1), message("b", None, 2)].into();
        seen.begin(&all);
        assert_eq!(ids(&seen.take_new(all.clone())), [""; 0]);
        seen.ask("mine".parse().unwrap());
        all.extend([message("c", Some("mine"), 3), message("d", None, 4)]);
        all.extend([message("e", Some("e2"), 5), message("f", None, 6)]);
        assert_eq!(ids(&seen.take_new(all.clone())), ["e", "f"]);
        assert_eq!(ids(&seen.take_new(all.clone())), [""; 0]);
        // A summary in place of the earlier messages.
        let summed_up: VecDeque<Message> =
            [message("sum", None, 6), message("g", Some("e3"), 7)].into();
        assert_eq!(ids(&seen.take_new(summed_up)), ["g"]);
    }

    #[test]
    fn steer_4_reply_that_is_no_longer_waited_for_is_an_arrival() {
        let mut seen = ChatProgress::nothing(Timestamp::from_unix_millis(0));
        let mine = "mine".parse().unwrap();
        seen.begin(&VecDeque::new());
        seen.ask("mine".parse().unwrap());
        seen.leave(&mine);
        let all: VecDeque<Message> = [message("a", Some("mine"), 1), message("b", None, 2)].into();
        assert_eq!(ids(&seen.take_new(all)), ["b"]);
        assert!(seen.take_failed(Some(&mine), &"t1".parse().unwrap()));
        // One that it cancels is reported by the cancellation.
        seen.ask("mine".parse().unwrap());
        assert!(!seen.take_failed(Some(&mine), &"t2".parse().unwrap()));
    }

    #[test]
    fn steer_4_turn_failed_elsewhere_is_shown_exactly_once() {
        let mut seen = ChatProgress::nothing(Timestamp::from_unix_millis(0));
        seen.ask("mine".parse().unwrap());
        let (mine, other) = ("mine".parse().unwrap(), "e2".parse().unwrap());
        assert!(!seen.take_failed(Some(&mine), &"t1".parse().unwrap()));
        assert!(seen.take_failed(Some(&other), &"t2".parse().unwrap()));
        assert!(!seen.take_failed(Some(&other), &"t2".parse().unwrap()));
        assert!(seen.take_failed(None, &"t3".parse().unwrap()));
    }

    #[test]
    fn steer_4_usage_of_a_turn_counts_only_its_own_replies() {
        let mut mine = message("b", None, 2);
        let usage = json!({"inputTokens": 7, "outputTokens": 3});
        mine.metadata.insert("usage".to_owned(), usage);
        let other = mine.clone();
        let all = [
            message("a", Some("mine"), 1),
            mine,
            message("c", Some("e2"), 3),
            other,
        ];
        let spent = spent_on(&"mine".parse().unwrap(), &all.into());
        assert_eq!((spent.replies, spent.usage.total()), (1, 10));
    }

    #[test]
    fn steer_4_in_a_conversation_that_was_empty_all_is_new() {
        let mut seen = ChatProgress::nothing(Timestamp::from_unix_millis(0));
        seen.begin(&VecDeque::new());
        let all: VecDeque<Message> = [message("a", Some("e1"), 1), message("b", None, 2)].into();
        assert_eq!(ids(&seen.take_new(all)), ["a", "b"]);
    }
}
