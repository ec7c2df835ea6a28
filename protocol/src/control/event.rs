//! `event.*`: what agents are given to do.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::call::CallPlace;
use crate::event::{EventSource, TurnOutcome};
use crate::ids::{AgentName, EventId, InstanceKey, TurnId, WorkspaceId};
use crate::images::Image;
use crate::limits::MAX_EVENTS_PAGE;
use crate::observe::RuntimeEvent;
use crate::time::Timestamp;
use crate::trace::TraceId;

/// `event.send`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SendEvent {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The agent; the swarm's entry agent when none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The conversation.
    pub conversation_key: InstanceKey,
    /// The text for the agent.
    pub input: String,
    /// Images for the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// The event's id; the same id twice is one turn. The daemon makes one when none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    /// A trace to go on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Whether to return only when the turn is committed, with `turn.progress` until then.
    pub wait: bool,
}

/// Result of `event.send`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sent {
    /// The event's id.
    pub event_id: EventId,
    /// The instance that got it.
    pub instance_key: InstanceKey,
    /// The agent that got it.
    pub agent: AgentName,
    /// The trace.
    pub trace_id: TraceId,
    /// Whether the event had been accepted before.
    pub duplicate: bool,
    /// How the turn ended, if the client waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<TurnOutcome>,
}

/// One runtime event of a turn. Who only passes it on has it as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnProgress<E = RuntimeEvent> {
    /// The `event.send` or `turn.follow` request it belongs to.
    pub request_id: u64,
    /// What happened.
    pub event: E,
}

/// `turn.piece`: a part of what comes of a call that is made in a turn the client waits for or follows, such as
/// a few words of the model's reply. Sent as it comes; never recorded.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnPiece {
    /// The `event.send` or `turn.follow` request it belongs to.
    pub request_id: u64,
    /// What in the turn the call is made for.
    pub place: CallPlace,
    /// The part; a model's are [`crate::call::ModelPiece`]s.
    pub piece: Box<RawValue>,
}

/// `event.list`: one page of the events that are not over, by their conversations (`OBS-1`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListEvents {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Only this conversation's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Only those that are parked.
    #[serde(default)]
    pub parked: bool,
    /// The conversation behind which the page begins: what the page before said in `next`; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<InstanceKey>,
    /// With how many events the page ends, as soon as their conversation has no more; at most and if it is not said
    /// [`MAX_EVENTS_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Result of `event.list`. Those of a conversation are all on one page: whatever is done to them, none is missed
/// or told twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventsPage {
    /// The events. There may be none though a page follows.
    pub events: Vec<EventInfo>,
    /// Where the next page begins; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<InstanceKey>,
}

impl ListEvents {
    /// The conversations whose events are on the page that is asked for, of these with so many events each; and where
    /// the next page begins.
    #[must_use]
    pub fn page_of(
        &self,
        mut all: Vec<(InstanceKey, usize)>,
    ) -> (Vec<InstanceKey>, Option<InstanceKey>) {
        all.retain(|(key, _)| self.after.as_ref() < Some(key));
        all.sort();
        let limit = self.limit.unwrap_or(MAX_EVENTS_PAGE);
        let limit = limit.clamp(1, MAX_EVENTS_PAGE);
        let count = all.len();
        let mut events = 0;
        let mut on_page = Vec::new();
        for (key, of_it) in all {
            if events >= limit {
                break;
            }
            // One without any has to be looked at, too.
            events += of_it.max(1);
            on_page.push(key);
        }
        let next = on_page.last().filter(|_| on_page.len() < count).cloned();
        (on_page, next)
    }
}

/// Where an event stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventStanding {
    /// Its turn is yet to come.
    Waiting,
    /// Its turn is in progress.
    Processing,
    /// A person has it wait until it is resumed.
    Paused,
    /// Its turn crashed too many processes; a person decides.
    Parked,
}

impl EventStanding {
    /// The standing as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Processing => "processing",
            Self::Paused => "paused",
            Self::Parked => "parked",
        }
    }
}

/// An event that is not over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventInfo {
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Its agent.
    pub agent_name: AgentName,
    /// The event.
    pub event_id: EventId,
    /// Where it stands.
    pub standing: EventStanding,
    /// How many processes crashed in its turn.
    pub crashes: u32,
    /// Why it is parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was parked; else when it came.
    pub since: Timestamp,
    /// Who sent it.
    pub source: EventSource,
    /// The head of its input, on one line.
    pub input: String,
}

/// `event.retry`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryEvent {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The event.
    pub event_id: EventId,
}

/// `event.cancel`: ends the turn of an event where it is (`STEER-1`), or an event that waits (`STEER-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelEvent {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The event; the one that is worked on if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
}

/// The result of `event.cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventCancelled {
    /// The event that is over.
    pub event_id: EventId,
    /// Its turn, if that was in progress. What it had recorded stays in the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
}

/// `event.pause`: the turn of an event that waits does not begin before it is resumed (`STEER-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PauseEvent {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The event.
    pub event_id: EventId,
}

/// `event.resume`: the turn of a paused event begins when it is due (`STEER-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResumeEvent {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The event.
    pub event_id: EventId,
}

/// `event.move`: an event that waits has its turn earlier or later (`STEER-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MoveEvent {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The event.
    pub event_id: EventId,
    /// Where it is to be.
    pub place: EventPlace,
}

/// A place among the events of a conversation that wait. None is before the event whose turn has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventPlace {
    /// The next.
    First,
    /// Behind all others.
    Last,
    /// Right before this one.
    Before(EventId),
}

/// `event.drop`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DropEvent {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// The event.
    pub event_id: EventId,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(limit: usize) -> ListEvents {
        ListEvents {
            workspace_id: "w".parse().unwrap(),
            instance_key: None,
            parked: false,
            after: None,
            limit: Some(limit),
        }
    }

    fn conversations(counts: &[(&str, usize)]) -> Vec<(InstanceKey, usize)> {
        let counts = counts.iter();
        counts
            .map(|(key, count)| (key.parse().unwrap(), *count))
            .collect()
    }

    #[test]
    fn obs_1_the_pages_of_events_miss_and_repeat_no_conversation() {
        for limit in [1, 2, 3, 4, 100, MAX_EVENTS_PAGE + 1] {
            let mut list = list(limit);
            // Between pages one is over, and one more begins before what was seen.
            let mut there = conversations(&[("c", 0), ("a", 3), ("b", 1), ("d", 2)]);
            let mut seen: Vec<String> = Vec::new();
            loop {
                let (keys, next) = list.page_of(there.clone());
                seen.extend(keys.iter().map(ToString::to_string));
                list.after = next;
                if list.after.is_none() {
                    break;
                }
                there.retain(|(key, _)| key.as_str() != "a");
                there.extend(conversations(&[("A", 1)]));
            }
            assert_eq!(seen, ["a", "b", "c", "d"], "{limit}");
        }
    }

    #[test]
    fn obs_1_a_page_of_events_ends_with_its_conversation() {
        let there = conversations(&[("a", 3), ("b", 0), ("c", 2), ("d", 1)]);
        let page = |limit| {
            let (keys, next) = list(limit).page_of(there.clone());
            (keys.len(), next.map(|key| key.to_string()))
        };
        assert_eq!(page(1), (1, Some("a".to_owned())));
        assert_eq!(page(3), (1, Some("a".to_owned())));
        assert_eq!(page(4), (2, Some("b".to_owned())));
        assert_eq!(page(5), (3, Some("c".to_owned())));
        assert_eq!(page(7), (4, None));
    }
}
