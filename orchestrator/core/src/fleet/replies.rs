//! Replies to connections' events (`MSG-13`).
//!
//! This state does not have to be durable: the outcome of an event is in its conversation's inbox,
//! and a repeated request returns the same reply. A connection receives replies to its own events
//! only, even if it names another conversation.

use std::collections::BTreeMap;

use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{ConnectionName, EventId, InstanceRef};
use goondan_protocol::ipc::ToConnector;
use goondan_protocol::namespace::event_id_within;
use goondan_protocol::reply::{Reply, ReplyAwait, ReplyForget};
use goondan_store::StoreError;
use goondan_store::instance::EventState;
use goondan_store::writer::operation::LookUpEvent;

use super::Workspace;
use super::agent_replies::pending_replies::QuestionStatus;
use super::conversation::Conversation;
use super::reply_waiter::ReplyWaiter;
use super::waiters::TurnWaiter;
use crate::ProcessId;
use crate::bus::context::Cx;
use crate::exchange::ChildRequest;
use crate::jobs::continuation;
use crate::limits::REPLIES_AWAITED_MAX;

/// Replies that a connection's process waits for, by request id. Each is answered once.
#[derive(Debug, Default)]
pub(super) struct AwaitedReplies(BTreeMap<u64, (InstanceRef, EventId)>);

impl AwaitedReplies {
    /// False if too many are awaited.
    fn add(&mut self, request_id: u64, at: &InstanceRef, event_id: &EventId) -> bool {
        let has_room = self.0.len() < REPLIES_AWAITED_MAX;
        if has_room {
            self.0.insert(request_id, (at.clone(), event_id.clone()));
        }
        has_room
    }

    fn is_awaited(&self, request_id: u64) -> bool {
        self.0.contains_key(&request_id)
    }

    fn take(&mut self, request_id: u64) -> Option<(InstanceRef, EventId)> {
        self.0.remove(&request_id)
    }
}

continuation! {
    /// Looks up the outcome of an event whose reply a connection requests.
    LookingUpReply { event_id: EventId, waiter: ReplyWaiter } after LookUpEvent => &workspace.on_reply_looked_up
}

fn open(message: impl Into<String>) -> Reply {
    Reply::Open {
        message: message.into(),
    }
}

impl Workspace {
    /// Handles a connection's request for the reply to one of its events.
    pub(crate) fn on_reply_await(
        &mut self,
        cx: &mut Cx,
        name: &ConnectionName,
        request: ChildRequest,
        asked: &ReplyAwait,
    ) {
        // A request without an id cannot be answered.
        let Some(request_id) = request.request_id else {
            return;
        };
        let waiter = ReplyWaiter {
            connection: name.clone(),
            process: request.process,
            request_id,
        };
        let at = self.conversation_ref(&asked.instance_key);
        // The id is namespaced, so it always refers to an event of this connection.
        let Ok(event_id) = event_id_within(name, &asked.event_id) else {
            return self.tell_reply(cx, &waiter, Reply::Unknown {});
        };
        let Some(connector) = self.connectors.get_mut(name) else {
            return;
        };
        if !connector.replies().add(request_id, &at, &event_id) {
            let message = format!("{REPLIES_AWAITED_MAX} clients already wait for replies");
            return self.tell_reply(cx, &waiter, open(message));
        }
        look_up_reply(cx, at, event_id, waiter);
    }

    fn on_reply_looked_up(
        &mut self,
        cx: &mut Cx,
        sought: &LookingUpReply,
        result: Result<EventState, StoreError>,
    ) {
        let (at, waiter) = (&sought.instance, &sought.waiter);
        if !self.is_reply_awaited(cx, waiter) {
            return self.forget_if_done(cx, &at.instance_key);
        }
        let reply = match result {
            Ok(EventState::Done(outcome)) => Some(Reply::Over { outcome }),
            Ok(EventState::Waiting) => self.wait_for_reply(cx, sought),
            Ok(EventState::Parked(_)) => {
                Some(open("the event is parked and needs a person's decision"))
            }
            Ok(EventState::Unknown) | Err(StoreError::NoInstance { .. }) => Some(Reply::Unknown {}),
            Err(_) => Some(open("failed to look up the event")),
        };
        if let Some(reply) = reply {
            self.tell_reply(cx, waiter, reply);
        }
        self.forget_if_done(cx, &at.instance_key);
    }

    /// Makes a connection wait for a future turn; returns a reply if it cannot wait now.
    fn wait_for_reply(&mut self, cx: &Cx, sought: &LookingUpReply) -> Option<Reply> {
        let (key, event_id) = (&sought.instance.instance_key, &sought.event_id);
        let turn = self.conversations.get(key).and_then(Conversation::turn);
        let is_its_turn = turn.is_some_and(|turn| turn.context.event_id == *event_id);
        if let Some(error) = self.why_nothing_begins(cx, key).filter(|_| !is_its_turn) {
            return Some(open(error.message));
        }
        // A conversation with queued events has an entry as soon as its workspace is loaded.
        let Some(entry) = self.conversations.get_mut(key) else {
            return Some(open("the conversation is being opened"));
        };
        let waiter = TurnWaiter::Connection(sought.waiter.clone());
        entry.waiters_mut().add(event_id.clone(), waiter);
        None
    }

    fn is_reply_awaited(&mut self, cx: &Cx, waiter: &ReplyWaiter) -> bool {
        let connector = self.connectors.get_mut(&waiter.connection);
        cx.processes().is_up(waiter.process)
            && connector.is_some_and(|it| it.replies().is_awaited(waiter.request_id))
    }

    fn tell_reply(&mut self, cx: &mut Cx, waiter: &ReplyWaiter, reply: Reply) {
        if let Some(connector) = self.connectors.get_mut(&waiter.connection) {
            connector.replies().take(waiter.request_id);
        }
        let request = ChildRequest {
            process: waiter.process,
            request_id: Some(waiter.request_id),
        };
        cx.answer_connector(request, ToConnector::Reply(Box::new(reply)));
    }

    /// Sends the outcome of a turn to a waiting connection.
    pub(super) fn tell_connection(
        &mut self,
        cx: &mut Cx,
        waiter: &ReplyWaiter,
        outcome: &TurnOutcome,
    ) {
        let outcome = outcome.clone();
        self.tell_reply(cx, waiter, Reply::Over { outcome });
    }

    /// Notifies a waiting connection that the turn will not begin, or not now.
    pub(super) fn fail_connection(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        event_id: &EventId,
        waiter: ReplyWaiter,
        error: &ControlError,
        status: QuestionStatus,
    ) {
        let stands = status == QuestionStatus::Stands || error.code == ErrorCode::EventParked;
        if stands {
            return self.tell_reply(cx, &waiter, open(&*error.message));
        }
        // The outcome of a canceled event is stored, too.
        look_up_reply(cx, at.clone(), event_id.clone(), waiter);
    }

    /// Handles a connection that no longer waits.
    pub(crate) fn on_reply_forget(
        &mut self,
        cx: &mut Cx,
        name: &ConnectionName,
        process: ProcessId,
        forget: &ReplyForget,
    ) {
        for request_id in &forget.request_ids {
            let connector = self.connectors.get_mut(name);
            let awaited = connector.and_then(|it| it.replies().take(*request_id));
            self.forget_awaited(cx, (process, *request_id), awaited);
        }
    }

    /// Drops the waits of a connection's exited process. Its clients ask again.
    pub(super) fn forget_replies_of(
        &mut self,
        cx: &mut Cx,
        name: &ConnectionName,
        process: ProcessId,
    ) {
        let connector = self.connectors.get_mut(name);
        let awaited = connector.map(|it| std::mem::take(&mut it.replies().0));
        for (request_id, place) in awaited.into_iter().flatten() {
            self.forget_awaited(cx, (process, request_id), Some(place));
        }
    }

    fn forget_awaited(
        &mut self,
        cx: &mut Cx,
        (process, request_id): (ProcessId, u64),
        awaited: Option<(InstanceRef, EventId)>,
    ) {
        let Some((at, event_id)) = awaited else {
            return;
        };
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            entry.waiters_mut().forget_connection(&event_id, |waiter| {
                waiter.process == process && waiter.request_id == request_id
            });
            self.forget_if_done(cx, &at.instance_key);
        }
    }
}

fn look_up_reply(cx: &mut Cx, instance: InstanceRef, event_id: EventId, waiter: ReplyWaiter) {
    let look_up = LookUpEvent {
        instance: instance.clone(),
        event_id: event_id.clone(),
    };
    let looking_up = LookingUpReply {
        instance,
        event_id,
        waiter,
    };
    cx.store(look_up, looking_up);
}
