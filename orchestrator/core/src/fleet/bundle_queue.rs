//! Queue of the operations on the bundles of conversations, which a thread of the daemon executes.

use std::collections::{BTreeMap, VecDeque};

use goondan_protocol::ids::InstanceRef;

use super::agent_replies::pending_replies::Requester;
use crate::RequestToken;
use crate::exchange::BundleAction;
use crate::limits::BUNDLE_REQUESTS_MAX;
use crate::refusals::AgentRequestError;

/// Recipient of the result of a bundle operation.
#[derive(Debug)]
pub(super) enum BundleRequester {
    Nobody,
    /// The next process of the instance, under the configuration with this digest.
    Start(String),
    Agent(Requester),
    Client(RequestToken),
}

#[derive(Debug)]
struct QueuedBundleAction {
    asker: BundleRequester,
    /// `None` while the operation is in progress.
    action: Option<BundleAction>,
}

/// Queued operations by conversation. The first of each queue is in progress.
#[derive(Debug, Default)]
pub(crate) struct BundleQueues(BTreeMap<InstanceRef, VecDeque<QueuedBundleAction>>);

impl BundleQueues {
    pub(super) fn add(&mut self, at: &InstanceRef, asker: BundleRequester, action: BundleAction) {
        let queue = self.0.entry(at.clone()).or_default();
        queue.push_back(QueuedBundleAction {
            asker,
            action: Some(action),
        });
    }

    /// Takes the first operation of a conversation, unless it is in progress.
    pub(super) fn begin_next(&mut self, at: &InstanceRef) -> Option<BundleAction> {
        let queue = self.0.get_mut(at)?;
        let Some(first) = queue.front_mut() else {
            self.0.remove(at);
            return None;
        };
        first.action.take()
    }

    /// The operation in progress is done. Returns the recipient of its result.
    pub(super) fn end(&mut self, at: &InstanceRef) -> Option<BundleRequester> {
        let done = self.0.get_mut(at).and_then(VecDeque::pop_front);
        done.map(|done| done.asker)
    }

    /// Drops the operations of a conversation. Returns the clients that requested them.
    pub(super) fn clear(&mut self, at: &InstanceRef) -> Vec<RequestToken> {
        let waiting = self.0.remove(at).unwrap_or_default().into_iter();
        let clients = waiting.filter_map(|waiting| match waiting.asker {
            BundleRequester::Client(token) => Some(token),
            BundleRequester::Nobody | BundleRequester::Start(_) | BundleRequester::Agent(_) => None,
        });
        clients.collect()
    }

    /// True while the outcome of the last turn is being counted, because the next turn may use
    /// another revision.
    pub(super) fn is_noting(&self, at: &InstanceRef) -> bool {
        let mut waiting = self.0.get(at).into_iter().flatten();
        waiting.any(|it| matches!(it.asker, BundleRequester::Nobody))
    }

    /// Checks that another request may wait.
    pub(super) fn check_room(&self, at: &InstanceRef) -> Result<(), AgentRequestError> {
        let waiting = self.0.get(at).map_or(0, VecDeque::len);
        if waiting >= BUNDLE_REQUESTS_MAX {
            let message = format!(
                "{BUNDLE_REQUESTS_MAX} requests about this conversation's configuration are already waiting"
            );
            return Err(AgentRequestError::new("E_OVERLOADED", message));
        }
        Ok(())
    }
}
