//! Ownership of conversations created before keys were namespaced by connection (`SEC-9`): a
//! connection continues its own conversations.
//!
//! A legacy key of a connection's event (`ann`, `telegram:178`) can also come from another source.
//! The conversation belongs to the connection if all events in its inbox came from the connection.
//! If the inbox holds no events, it belongs to the connection if only this kind of connector
//! creates such keys (`telegram:…`).

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::event::AgentEvent;
use goondan_protocol::ids::{ConnectionName, InstanceKey, InstanceRef};
use goondan_store::StoreError;
use goondan_store::writer::operation::ReadSources;

use super::Workspace;
use super::event_queue::EventOrigin;
use crate::LogEvent;
use crate::bus::context::Cx;
use crate::jobs::continuation;
use crate::limits::FORMER_KEYS_REMEMBERED;
use crate::router::Route;

/// Connectors whose keys begin with their own name.
const NAMING_CONNECTORS: [&str; 4] = ["discord", "github", "slack", "telegram"];

/// An event on its way to a conversation.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(super) connection: ConnectionName,
    pub(super) route: Route,
    pub(super) event: AgentEvent,
    pub(super) reply: EventOrigin,
}

/// Legacy keys of a connection, and true for those that name its own conversations.
#[derive(Debug, Default)]
pub(super) struct FormerKeys(BTreeMap<InstanceKey, bool>);

impl FormerKeys {
    fn is_own(&self, key: &InstanceKey) -> Option<bool> {
        self.0.get(key).copied()
    }

    fn remember(&mut self, key: InstanceKey, is_own: bool) {
        if self.0.len() >= FORMER_KEYS_REMEMBERED {
            self.0.clear();
        }
        self.0.insert(key, is_own);
    }
}

/// True if a conversation belongs to the connection.
fn is_own(
    sources: &BTreeSet<ConnectionName>,
    connection: &ConnectionName,
    (key, connector): (&InstanceKey, &str),
) -> bool {
    if !sources.is_empty() {
        return sources.iter().all(|source| source == connection);
    }
    let of_kind = key.as_str().strip_prefix(connector);
    NAMING_CONNECTORS.contains(&connector) && of_kind.is_some_and(|rest| rest.starts_with(':'))
}

continuation! {
    /// Determines the owner of a conversation with the event's legacy key.
    FindingOwner { arrival: Box<Arrival> } after ReadSources => workspace.on_owner_found
}

impl Workspace {
    /// Delivers a connection's event to its conversation, which may have a legacy key.
    pub(super) fn arrive(&mut self, cx: &mut Cx, arrival: Arrival) {
        let Some(former) = arrival.route.former_key.clone() else {
            return self.arrive_at(cx, arrival);
        };
        let connector = self.connectors.get_mut(&arrival.connection);
        match connector.and_then(|connector| connector.former_keys().is_own(&former)) {
            Some(is_own) => self.arrive_where(cx, arrival, former, is_own),
            None => {
                let instance = self.conversation_ref(&former);
                let read = ReadSources {
                    instance: instance.clone(),
                };
                let arrival = Box::new(arrival);
                cx.store(read, FindingOwner { instance, arrival });
            }
        }
    }

    /// Handles the store's list of connections whose events are in the conversation with the legacy
    /// key.
    fn on_owner_found(
        &mut self,
        cx: &mut Cx,
        finding: FindingOwner,
        result: Result<BTreeSet<ConnectionName>, StoreError>,
    ) {
        let (former, arrival) = (&finding.instance, *finding.arrival);
        let sources = match result {
            Ok(sources) => Some(sources),
            Err(StoreError::NoInstance { .. }) => None,
            Err(error) => {
                let message = "failed to look up the conversation; see the daemon's log";
                let event = LogEvent::warn("failed to read conversation owner").of(former);
                self.log(cx, event.with("error", goondan_log::error_chain(&error)));
                let code = goondan_protocol::ipc::RefusalCode::Unavailable;
                return self.refuse(cx, &arrival.reply, code, message.to_owned());
            }
        };
        let key = former.instance_key.clone();
        let Some(connector) = self.connectors.get_mut(&arrival.connection) else {
            return;
        };
        let running = connector.running();
        let kind = running.map_or("", |running| running.definition.connector.as_str());
        let name = &arrival.connection;
        let is_own = sources.is_some_and(|sources| is_own(&sources, name, (&key, kind)));
        connector.former_keys().remember(key.clone(), is_own);
        self.arrive_where(cx, arrival, key, is_own);
    }

    fn arrive_where(
        &mut self,
        cx: &mut Cx,
        mut arrival: Arrival,
        former: InstanceKey,
        is_own: bool,
    ) {
        if is_own {
            arrival.event.instance_key = Some(former.clone());
            arrival.route.instance_key = former;
        }
        self.arrive_at(cx, arrival);
    }

    fn arrive_at(&mut self, cx: &mut Cx, arrival: Arrival) {
        let Arrival {
            route,
            event,
            reply,
            ..
        } = arrival;
        let instance = self.conversation_ref(&route.instance_key);
        self.accept(cx, instance, &route.agent, event, reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_9_connection_owns_a_conversation_if_it_sent_all_events() {
        let bot: ConnectionName = "bot".parse().unwrap();
        let owned = |sources: &[&str], key: &str, connector: &str| {
            let sources = sources.iter().map(|name| name.parse().unwrap()).collect();
            is_own(&sources, &bot, (&key.parse().unwrap(), connector))
        };
        assert!(owned(&["bot"], "telegram:178", "telegram"));
        assert!(owned(&["bot"], "ann", "webhook"));
        assert!(!owned(&["cli"], "main", "webhook"));
        assert!(!owned(&["bot", "hook"], "telegram:178", "telegram"));
        // With no events left, only keys that no other kind of connector creates.
        assert!(owned(&[], "telegram:178", "telegram"));
        assert!(!owned(&[], "telegram:178", "webhook"));
        assert!(!owned(&[], "main", "webhook"));
        assert!(!owned(&[], "webhook:1", "webhook"));
    }

    #[test]
    fn sec_9_so_many_keys_are_remembered() {
        let mut keys = FormerKeys::default();
        for n in 0..3 * FORMER_KEYS_REMEMBERED {
            keys.remember(n.to_string().parse().unwrap(), true);
            assert!(keys.0.len() <= FORMER_KEYS_REMEMBERED);
        }
        let last = (3 * FORMER_KEYS_REMEMBERED - 1).to_string();
        assert_eq!(keys.is_own(&last.parse().unwrap()), Some(true));
    }
}
