//! Lists queued and parked events.

use std::collections::BTreeMap;

use goondan_protocol::control::{
    CancelEvent, ControlError, EventInfo, EventStanding, EventsPage, ListEvents, MoveEvent,
    PauseEvent, ResumeEvent,
};
use goondan_protocol::ids::{AgentName, EventId, InstanceKey, InstanceRef};
use goondan_store::StoreError;
use goondan_store::instance::{Metadata, ParkedEvent, QueueOp};
use goondan_store::writer::operation::ReadParked;

use crate::fleet::cancellation::CancelCause;
use crate::fleet::conversation::Conversation;
use crate::jobs::continuation;
use crate::{Core, CoreEffect, ListPurpose, RequestToken, control_error};

/// A page of a workspace's events, while some instances have not been read.
#[derive(Debug)]
pub(super) struct EventListing {
    request: ListEvents,
    outstanding: usize,
    found: Vec<EventInfo>,
    /// Start of the next page.
    next: Option<InstanceKey>,
    failure: Option<ControlError>,
}

continuation! {
    /// Reads the parked events of an instance whose events are listed for a client.
    ReadingParked { token: RequestToken, agent: AgentName } after ReadParked => &core.on_parked_read
}

/// An event that a user reorders, pauses or resumes, with the operation.
#[derive(Debug)]
pub(super) struct QueueChange {
    at: InstanceRef,
    event_id: EventId,
    arrangement: QueueOp,
}

impl From<PauseEvent> for QueueChange {
    fn from(pause: PauseEvent) -> Self {
        Self {
            at: InstanceRef {
                workspace_id: pause.workspace_id,
                instance_key: pause.instance_key,
            },
            event_id: pause.event_id,
            arrangement: QueueOp::Pause,
        }
    }
}

impl From<ResumeEvent> for QueueChange {
    fn from(resume: ResumeEvent) -> Self {
        Self {
            at: InstanceRef {
                workspace_id: resume.workspace_id,
                instance_key: resume.instance_key,
            },
            event_id: resume.event_id,
            arrangement: QueueOp::Resume,
        }
    }
}

impl From<MoveEvent> for QueueChange {
    fn from(moved: MoveEvent) -> Self {
        Self {
            at: InstanceRef {
                workspace_id: moved.workspace_id,
                instance_key: moved.instance_key,
            },
            event_id: moved.event_id,
            arrangement: QueueOp::Move(moved.place),
        }
    }
}

impl Core {
    /// Changes the queue position of an event at a user's request.
    pub(super) fn arrange_event(&mut self, token: RequestToken, arranged: impl Into<QueueChange>) {
        let QueueChange {
            at,
            event_id,
            arrangement,
        } = arranged.into();
        let id = at.workspace_id.clone();
        self.fleet.serve(token, &id, |workspace, cx| {
            workspace.arrange(cx, token, at, event_id, arrangement)
        });
    }

    /// Cancels a turn in progress or a queued event at a user's request.
    pub(super) fn cancel_event(&mut self, token: RequestToken, cancel: CancelEvent) {
        let at = InstanceRef {
            workspace_id: cancel.workspace_id,
            instance_key: cancel.instance_key,
        };
        self.fleet.serve(token, &at.workspace_id, |workspace, cx| {
            let cause = CancelCause::BY_PERSON;
            workspace.cancel_for(cx, Some(token), &at, cancel.event_id, cause);
            Ok(())
        });
    }

    /// Lists the queued and parked events of a workspace.
    pub(super) fn list_events(&mut self, token: RequestToken, request: ListEvents) {
        if let Err(error) = self.fleet.workspace(&request.workspace_id) {
            return self.fleet.respond_error(token, error);
        }
        let workspace_id = request.workspace_id.clone();
        let purpose = ListPurpose::Events { token, request };
        self.fleet.cx().emit(CoreEffect::ListMetadata {
            purpose,
            workspace_id,
        });
    }

    pub(super) fn on_events_listed(
        &mut self,
        token: RequestToken,
        request: ListEvents,
        found: Vec<Metadata>,
    ) {
        let id = &request.workspace_id;
        let mut agents = BTreeMap::new();
        let with_events = found.into_iter().filter_map(|metadata| {
            let instance_key = metadata.instance_key;
            agents.insert(instance_key.clone(), metadata.agent_name);
            let is_chosen = request.instance_key.as_ref();
            is_chosen
                .is_none_or(|key| *key == instance_key)
                .then_some(())?;
            let parked = usize::try_from(metadata.parked_events).unwrap_or(usize::MAX);
            let workspace_id = id.clone();
            let at = InstanceRef {
                workspace_id,
                instance_key,
            };
            let entry = self.fleet.conversation(&at);
            let pending = entry.map(Conversation::pending);
            let has_events = parked > 0 || pending.is_some();
            let pending = pending.filter(|_| !request.parked).unwrap_or_default();
            let count = parked.saturating_add(pending);
            has_events.then_some((at.instance_key, count))
        });
        let (asked, next) = request.page_of(with_events.collect());
        let workspace_id = request.workspace_id.clone();
        let mut found = Vec::new();
        let mut unread = Vec::new();
        for instance_key in asked {
            let instance = InstanceRef {
                workspace_id: workspace_id.clone(),
                instance_key,
            };
            let workspace = self.fleet.workspaces().get(&instance.workspace_id);
            match workspace.and_then(|it| it.parked.known(&instance.instance_key)) {
                Some(known) if request.parked => found.extend_from_slice(known),
                _ => unread.extend(
                    agents
                        .remove(&instance.instance_key)
                        .map(|agent| (instance, agent)),
                ),
            }
        }
        let listing = EventListing {
            request,
            outstanding: unread.len(),
            found,
            next,
            failure: None,
        };
        self.requests.event_listings.insert(token, listing);
        for (instance, agent) in unread {
            let read = ReadParked {
                instance: instance.clone(),
            };
            let then = ReadingParked {
                instance,
                token,
                agent,
            };
            self.fleet.cx().store(read, then);
        }
        self.finish_event_listing(token);
    }

    fn on_parked_read(
        &mut self,
        reading: &ReadingParked,
        result: Result<Vec<ParkedEvent>, StoreError>,
    ) {
        let token = reading.token;
        let (at, agent) = (&reading.instance, &reading.agent);
        let found = match result {
            Ok(parked) => {
                let now = self.fleet.now().wall;
                let workspace = self.fleet.workspace_mut(&at.workspace_id);
                Ok(workspace.map_or_else(Vec::new, |it| it.events_of(at, agent, parked, now)))
            }
            // The instance was deleted in the meantime.
            Err(StoreError::NoInstance { .. }) => Ok(Vec::new()),
            Err(error) => Err(control_error(&error)),
        };
        if let Some(listing) = self.requests.event_listings.get_mut(&token) {
            listing.outstanding = listing.outstanding.saturating_sub(1);
            match found {
                Ok(found) => listing.found.extend(found),
                Err(error) => listing.failure = Some(error),
            }
        }
        self.finish_event_listing(token);
    }

    fn finish_event_listing(&mut self, token: RequestToken) {
        use std::collections::btree_map::Entry;
        let Entry::Occupied(entry) = self.requests.event_listings.entry(token) else {
            return;
        };
        if entry.get().outstanding > 0 {
            return;
        }
        let mut listing = entry.remove();
        if let Some(error) = listing.failure {
            return self.fleet.respond_error(token, error);
        }
        if listing.request.parked {
            let is_parked = |event: &EventInfo| event.standing == EventStanding::Parked;
            listing.found.retain(is_parked);
        }
        // Per conversation, in turn order; parked events come last.
        let order = |event: &EventInfo| {
            let is_parked = event.standing == EventStanding::Parked;
            (event.instance_key.clone(), is_parked)
        };
        listing.found.sort_by_key(order);
        let page = EventsPage {
            events: listing.found,
            next: listing.next,
        };
        self.fleet.respond(token, &page);
    }
}
