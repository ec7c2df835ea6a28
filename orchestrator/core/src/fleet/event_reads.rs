//! Events of a conversation that its agent reads with the tool `event` (`CONN-1`).

use goondan_protocol::JsonObject;
use goondan_protocol::agents::AgentAnswer;
use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::{EventId, InstanceRef};
use goondan_protocol::observe::detail_of;
use goondan_store::StoreError;
use goondan_store::writer::operation::ReadEvents;

use super::Workspace;
use super::agent_replies::pending_replies::Requester;
use crate::bus::context::Cx;
use crate::jobs::continuation;
use crate::refusals::AgentRequestError;

continuation! {
    /// Reads stored events for an agent.
    ReadingEvents { requester: Requester, event_id: Option<EventId> } after ReadEvents => workspace.on_events_read
}

/// Reads an event of the requester's own conversation, or lists the latest.
pub(super) fn read_events(cx: &mut Cx, requester: Requester, event_id: Option<EventId>) {
    let read = ReadEvents {
        instance: requester.at.clone(),
        event_id: event_id.clone(),
    };
    let then = ReadingEvents {
        instance: requester.at.clone(),
        requester,
        event_id,
    };
    cx.store(read, then);
}

impl Workspace {
    fn on_events_read(
        &self,
        cx: &mut Cx,
        reading: ReadingEvents,
        result: Result<Vec<AgentEvent>, StoreError>,
    ) {
        let ReadingEvents {
            requester,
            event_id,
            ..
        } = reading;
        let answer = match (result, event_id) {
            (Ok(events), None) => AgentAnswer::Events {
                events: events.into_iter().map(listed).collect(),
            },
            (Ok(events), Some(id)) if events.is_empty() => {
                let message = format!(
                    "event `{id}` is not in this conversation, or too old; `event__list` names the \
                     latest"
                );
                AgentRequestError::new("E_NOT_FOUND", message).into()
            }
            (Ok(events), Some(_)) => AgentAnswer::Events { events },
            (Err(error), _) => {
                AgentRequestError::new("E_UNAVAILABLE", format!("failed to read events: {error}"))
                    .into()
            }
        };
        self.answer_agent(cx, &requester, answer);
    }
}

/// An event of a list: its beginning, without what the service sent.
fn listed(event: AgentEvent) -> AgentEvent {
    AgentEvent {
        input: event.input.as_deref().map(detail_of),
        properties: JsonObject::new(),
        auth: None,
        metadata: JsonObject::new(),
        ..event
    }
}
