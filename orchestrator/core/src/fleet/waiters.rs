//! Who waits for what comes of events.

use std::collections::{BTreeMap, HashSet};

use goondan_protocol::control::Sent;
use goondan_protocol::ids::{EventId, InstanceRef};

use super::answers::waiting::AgentWaiter;
use super::conversation_run::ConversationRun;
use super::reply_waiter::ReplyWaiter;
use crate::RequestToken;

/// Who waits for an event's turn.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// A client.
    Client {
        token: RequestToken,
        sent: Box<Sent>,
    },
    /// An agent that asked.
    Agent(AgentWaiter),
    /// A task, whose run it is.
    Run(Box<ConversationRun>),
    /// A connection, whose event it is.
    Connection(ReplyWaiter),
}

/// Who waits for turns of an instance, by their events.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    of: BTreeMap<EventId, Vec<Waiter>>,
}

impl Waiters {
    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// The events for which anybody waits.
    pub(super) fn events(&self) -> impl Iterator<Item = &EventId> {
        self.of.keys()
    }

    /// The clients that wait for an event's turn.
    pub(super) fn clients_of(&self, id: &EventId) -> Vec<RequestToken> {
        let waiters = self.of.get(id).into_iter().flatten();
        let clients = waiters.filter_map(|waiter| match waiter {
            Waiter::Client { token, .. } => Some(*token),
            Waiter::Agent(_) | Waiter::Run(_) | Waiter::Connection(_) => None,
        });
        clients.collect()
    }

    /// Somebody waits for an event's turn. An agent or a task waits once for it.
    pub(super) fn add(&mut self, id: EventId, waiter: Waiter) {
        let waiters = self.of.entry(id).or_default();
        waiters.retain(|other| match (other, &waiter) {
            (Waiter::Agent(other), Waiter::Agent(new)) => other.requester != new.requester,
            (Waiter::Run(other), Waiter::Run(new)) => other != new,
            _ => true,
        });
        waiters.push(waiter);
    }

    /// Nobody waits for an event's turn any more. Gives who did.
    pub(super) fn take(&mut self, id: &EventId) -> Vec<Waiter> {
        self.of.remove(id).unwrap_or_default()
    }

    /// Nobody waits any more but for the turn of `kept`. Gives who did.
    pub(super) fn take_all_but(
        &mut self,
        kept: Option<&EventId>,
    ) -> impl Iterator<Item = (EventId, Waiter)> + use<> {
        let kept = kept.and_then(|id| self.of.remove_entry(id));
        let taken = std::mem::replace(&mut self.of, kept.into_iter().collect());
        taken.into_iter().flat_map(|(id, waiters)| {
            let waiters = waiters.into_iter();
            waiters.map(move |waiter| (id.clone(), waiter))
        })
    }

    /// The agents whose calls have waited for long enough wait no longer. Gives them.
    pub(super) fn take_late(&mut self, now_ms: u64) -> Vec<(EventId, AgentWaiter)> {
        let is_late =
            |waiter: &mut Waiter| matches!(waiter, Waiter::Agent(waiter) if waiter.is_late(now_ms));
        let mut late = Vec::new();
        for (id, waiters) in &mut self.of {
            let due = waiters.extract_if(.., is_late);
            late.extend(due.filter_map(|waiter| match waiter {
                Waiter::Agent(waiter) => Some((id.clone(), waiter)),
                Waiter::Client { .. } | Waiter::Run(_) | Waiter::Connection(_) => None,
            }));
        }
        self.retain(|_| true);
        late
    }

    /// These clients wait no longer.
    pub(super) fn forget_clients(&mut self, gone: &HashSet<RequestToken>) {
        self.retain(|waiter| match waiter {
            Waiter::Client { token, .. } => !gone.contains(token),
            Waiter::Agent(_) | Waiter::Run(_) | Waiter::Connection(_) => true,
        });
    }

    /// The connection that is meant waits no longer for an event's turn.
    pub(super) fn forget_connection(
        &mut self,
        id: &EventId,
        is_meant: impl Fn(&ReplyWaiter) -> bool,
    ) {
        let Some(waiters) = self.of.get_mut(id) else {
            return;
        };
        waiters.retain(|waiter| !matches!(waiter, Waiter::Connection(it) if is_meant(it)));
        if waiters.is_empty() {
            self.of.remove(id);
        }
    }

    /// An instance that asked is gone.
    pub(super) fn forget_requester(&mut self, gone: &InstanceRef) {
        self.retain(|waiter| match waiter {
            Waiter::Client { .. } | Waiter::Run(_) | Waiter::Connection(_) => true,
            Waiter::Agent(waiter) => waiter.requester != *gone,
        });
    }

    fn retain(&mut self, stays: impl Fn(&Waiter) -> bool) {
        self.of.retain(|_, waiters| {
            waiters.retain(&stays);
            !waiters.is_empty()
        });
    }
}
