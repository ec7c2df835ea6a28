//! Waiters for the outcome of events: clients, agents, tasks and connections.

use std::collections::{BTreeMap, HashSet};

use goondan_protocol::control::SendResult;
use goondan_protocol::ids::{EventId, InstanceRef};

use super::agent_replies::pending_replies::AgentWaiter;
use super::conversation_run::ConversationRun;
use super::reply_waiter::ReplyWaiter;
use crate::RequestToken;

/// A waiter for an event's turn.
#[derive(Debug)]
pub(crate) enum TurnWaiter {
    Client {
        token: RequestToken,
        sent: Box<SendResult>,
    },
    Agent(AgentWaiter),
    /// The task of the run.
    Run(Box<ConversationRun>),
    /// The connection that sent the event.
    Connection(ReplyWaiter),
}

/// Waiters for an instance's turns, by event.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    of: BTreeMap<EventId, Vec<TurnWaiter>>,
}

impl Waiters {
    /// True if there are no waiters.
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &EventId> {
        self.of.keys()
    }

    /// Clients that wait for an event's turn.
    pub(super) fn clients_of(&self, id: &EventId) -> Vec<RequestToken> {
        let waiters = self.of.get(id).into_iter().flatten();
        let clients = waiters.filter_map(|waiter| match waiter {
            TurnWaiter::Client { token, .. } => Some(*token),
            TurnWaiter::Agent(_) | TurnWaiter::Run(_) | TurnWaiter::Connection(_) => None,
        });
        clients.collect()
    }

    /// Adds a waiter for an event's turn. An agent or a task waits at most once.
    pub(super) fn add(&mut self, id: EventId, waiter: TurnWaiter) {
        let waiters = self.of.entry(id).or_default();
        waiters.retain(|other| match (other, &waiter) {
            (TurnWaiter::Agent(other), TurnWaiter::Agent(new)) => other.requester != new.requester,
            (TurnWaiter::Run(other), TurnWaiter::Run(new)) => other != new,
            _ => true,
        });
        waiters.push(waiter);
    }

    /// Removes and returns the waiters of an event.
    pub(super) fn take(&mut self, id: &EventId) -> Vec<TurnWaiter> {
        self.of.remove(id).unwrap_or_default()
    }

    /// Removes and returns all waiters except those of `kept`.
    pub(super) fn take_all_but(
        &mut self,
        kept: Option<&EventId>,
    ) -> impl Iterator<Item = (EventId, TurnWaiter)> + use<> {
        let kept = kept.and_then(|id| self.of.remove_entry(id));
        let taken = std::mem::replace(&mut self.of, kept.into_iter().collect());
        taken.into_iter().flat_map(|(id, waiters)| {
            let waiters = waiters.into_iter();
            waiters.map(move |waiter| (id.clone(), waiter))
        })
    }

    /// Removes and returns the agents whose calls have timed out.
    pub(super) fn take_late(&mut self, now_ms: u64) -> Vec<(EventId, AgentWaiter)> {
        let is_late = |waiter: &mut TurnWaiter| matches!(waiter, TurnWaiter::Agent(waiter) if waiter.is_late(now_ms));
        let mut late = Vec::new();
        for (id, waiters) in &mut self.of {
            let due = waiters.extract_if(.., is_late);
            late.extend(due.filter_map(|waiter| match waiter {
                TurnWaiter::Agent(waiter) => Some((id.clone(), waiter)),
                TurnWaiter::Client { .. } | TurnWaiter::Run(_) | TurnWaiter::Connection(_) => None,
            }));
        }
        self.retain(|_| true);
        late
    }

    /// Removes disconnected clients.
    pub(super) fn forget_clients(&mut self, gone: &HashSet<RequestToken>) {
        self.retain(|waiter| match waiter {
            TurnWaiter::Client { token, .. } => !gone.contains(token),
            TurnWaiter::Agent(_) | TurnWaiter::Run(_) | TurnWaiter::Connection(_) => true,
        });
    }

    /// Removes the matching connection from an event's waiters.
    pub(super) fn forget_connection(
        &mut self,
        id: &EventId,
        is_meant: impl Fn(&ReplyWaiter) -> bool,
    ) {
        let Some(waiters) = self.of.get_mut(id) else {
            return;
        };
        waiters.retain(|waiter| !matches!(waiter, TurnWaiter::Connection(it) if is_meant(it)));
        if waiters.is_empty() {
            self.of.remove(id);
        }
    }

    /// Removes the waiters of a deleted instance.
    pub(super) fn forget_requester(&mut self, gone: &InstanceRef) {
        self.retain(|waiter| match waiter {
            TurnWaiter::Client { .. } | TurnWaiter::Run(_) | TurnWaiter::Connection(_) => true,
            TurnWaiter::Agent(waiter) => waiter.requester != *gone,
        });
    }

    fn retain(&mut self, stays: impl Fn(&TurnWaiter) -> bool) {
        self.of.retain(|_, waiters| {
            waiters.retain(&stays);
            !waiters.is_empty()
        });
    }
}
