//! Replies to connections' events (`MSG-13`).
//!
//! This state does not have to be durable: the outcome of an event is in its conversation's inbox,
//! and a repeated request returns the same reply. A connection receives replies to its own events
//! only, whatever conversation it names.

use std::collections::BTreeMap;

use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{ConnectionName, EventId, InstanceRef, WorkspaceId};
use goondan_protocol::ipc::ToConnector;
use goondan_protocol::namespace::event_id_within;
use goondan_protocol::reply::{Reply, ReplyAwait, ReplyForget};
use goondan_store::StoreError;
use goondan_store::instance::EventState;
use goondan_store::writer::operation::LookUpEvent;

use super::Fleet;
use super::agent_replies::pending_replies::QuestionStatus;
use super::reply_waiter::ReplyWaiter;
use super::waiters::TurnWaiter;
use crate::ProcessId;
use crate::jobs::continuation;
use crate::limits::REPLIES_AWAITED_MAX;

/// Replies that a connection's process waits for, by request id.
#[derive(Debug, Default)]
pub(super) struct AwaitedReplies(BTreeMap<u64, (InstanceRef, EventId)>);

continuation! {
    /// Looks up the outcome of an event whose reply a connection requests.
    LookingUpReply { event_id: EventId, waiter: ReplyWaiter } after LookUpEvent => &core.fleet.on_reply_looked_up
}

fn open(message: impl Into<String>) -> Reply {
    Reply::Open {
        message: message.into(),
    }
}

impl Fleet {
    /// Handles a connection's request for the reply to one of its events.
    pub(crate) fn on_reply_await(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        process: ProcessId,
        request_id: Option<u64>,
        asked: ReplyAwait,
    ) {
        // A request without an id cannot be answered.
        let Some(request_id) = request_id else {
            return;
        };
        let waiter = ReplyWaiter {
            connection: name.clone(),
            process,
            request_id,
        };
        let at = InstanceRef {
            workspace_id: id.clone(),
            instance_key: asked.instance_key,
        };
        // The id is namespaced, so it always refers to an event of this connection.
        let Ok(event_id) = event_id_within(name, &asked.event_id) else {
            return self.tell_reply(id, &waiter, Reply::Unknown {});
        };
        let Some(connector) = self.connector_mut(id, name) else {
            return;
        };
        let awaited = &mut connector.replies.0;
        if awaited.len() >= REPLIES_AWAITED_MAX {
            let message = format!("{REPLIES_AWAITED_MAX} clients already wait for replies");
            return self.tell_reply(id, &waiter, open(message));
        }
        awaited.insert(request_id, (at.clone(), event_id.clone()));
        self.look_up_reply(at, event_id, waiter);
    }

    fn look_up_reply(&mut self, instance: InstanceRef, event_id: EventId, waiter: ReplyWaiter) {
        let look_up = LookUpEvent {
            instance: instance.clone(),
            event_id: event_id.clone(),
        };
        let looking_up = LookingUpReply {
            instance,
            event_id,
            waiter,
        };
        self.cx.store(look_up, looking_up);
    }

    fn on_reply_looked_up(
        &mut self,
        sought: &LookingUpReply,
        result: Result<EventState, StoreError>,
    ) {
        let (at, waiter) = (&sought.instance, &sought.waiter);
        let id = &at.workspace_id;
        if !self.is_reply_awaited(id, waiter) {
            return self.forget_if_done(at);
        }
        let reply = match result {
            Ok(EventState::Done(outcome)) => Some(Reply::Over { outcome }),
            Ok(EventState::Waiting) => self.wait_for_reply(sought),
            Ok(EventState::Parked(_)) => {
                Some(open("the event is parked and needs a person's decision"))
            }
            Ok(EventState::Unknown) | Err(StoreError::NoInstance { .. }) => Some(Reply::Unknown {}),
            Err(_) => Some(open("failed to look up the event")),
        };
        if let Some(reply) = reply {
            self.tell_reply(id, waiter, reply);
        }
        self.forget_if_done(at);
    }

    /// Makes a connection wait for a future turn; returns a reply if it cannot wait now.
    fn wait_for_reply(&mut self, sought: &LookingUpReply) -> Option<Reply> {
        let (at, event_id) = (&sought.instance, &sought.event_id);
        let is_its_turn = self
            .turn_of(at)
            .is_some_and(|turn| turn.context.event_id == *event_id);
        if let Some(error) = self.why_nothing_begins(at).filter(|_| !is_its_turn) {
            return Some(open(error.message));
        }
        // A conversation with queued events has an entry as soon as its workspace is loaded.
        let Some(entry) = self.conversation_mut(at) else {
            return Some(open("the conversation is being opened"));
        };
        let waiter = TurnWaiter::Connection(sought.waiter.clone());
        entry.waiters_mut().add(event_id.clone(), waiter);
        None
    }

    fn is_reply_awaited(&mut self, id: &WorkspaceId, waiter: &ReplyWaiter) -> bool {
        self.owners.contains_key(&waiter.process)
            && self
                .connector_mut(id, &waiter.connection)
                .is_some_and(|connector| connector.replies.0.contains_key(&waiter.request_id))
    }

    fn tell_reply(&mut self, id: &WorkspaceId, waiter: &ReplyWaiter, reply: Reply) {
        if let Some(connector) = self.connector_mut(id, &waiter.connection) {
            connector.replies.0.remove(&waiter.request_id);
        }
        let message = ToConnector::Reply(Box::new(reply));
        self.answer_connector(waiter.process, Some(waiter.request_id), message);
    }

    /// Sends the outcome of a turn to a waiting connection.
    pub(super) fn tell_connection(
        &mut self,
        at: &InstanceRef,
        waiter: &ReplyWaiter,
        outcome: &TurnOutcome,
    ) {
        let outcome = outcome.clone();
        self.tell_reply(&at.workspace_id, waiter, Reply::Over { outcome });
    }

    /// Notifies a waiting connection that the turn will not begin, or not now.
    pub(super) fn fail_connection(
        &mut self,
        at: &InstanceRef,
        event_id: &EventId,
        waiter: ReplyWaiter,
        error: &ControlError,
        status: QuestionStatus,
    ) {
        let stands = status == QuestionStatus::Stands || error.code == ErrorCode::EventParked;
        if stands {
            return self.tell_reply(&at.workspace_id, &waiter, open(&*error.message));
        }
        // The outcome of a canceled event is stored, too.
        self.look_up_reply(at.clone(), event_id.clone(), waiter);
    }

    /// Handles a connection that no longer waits.
    pub(crate) fn on_reply_forget(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        process: ProcessId,
        forget: &ReplyForget,
    ) {
        for request_id in &forget.request_ids {
            let connector = self.connector_mut(id, name);
            let awaited = connector.and_then(|it| it.replies.0.remove(request_id));
            self.forget_awaited(process, *request_id, awaited);
        }
    }

    /// Drops the waits of a connection's exited process. Its clients ask again.
    pub(super) fn forget_replies_of(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        process: ProcessId,
    ) {
        let connector = self.connector_mut(id, name);
        let awaited = connector.map(|it| std::mem::take(&mut it.replies.0));
        for (request_id, place) in awaited.into_iter().flatten() {
            self.forget_awaited(process, request_id, Some(place));
        }
    }

    fn forget_awaited(
        &mut self,
        process: ProcessId,
        request_id: u64,
        awaited: Option<(InstanceRef, EventId)>,
    ) {
        let Some((at, event_id)) = awaited else {
            return;
        };
        if let Some(entry) = self.conversation_mut(&at) {
            entry.waiters_mut().forget_connection(&event_id, |waiter| {
                waiter.process == process && waiter.request_id == request_id
            });
            self.forget_if_done(&at);
        }
    }
}
