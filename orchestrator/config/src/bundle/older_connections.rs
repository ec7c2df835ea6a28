//! Connections as modules of 0.0.3 know them: by connector, with the older names of events.

use std::collections::BTreeMap;

use goondan_protocol::definition::OlderConnection;
use goondan_protocol::ids::ConnectionName;

use crate::compat::older_events;
use crate::kinds::Resources;
use crate::reference::LOCAL_CLIENT;

pub(super) type OlderConnections = BTreeMap<ConnectionName, OlderConnection>;

/// The connections of a project, and the one of local clients.
pub(super) fn describe(resources: &Resources) -> OlderConnections {
    let mut all = OlderConnections::new();
    for connection in &resources.connections {
        let connection = &connection.value;
        let Some(connector) = &connection.connector else {
            continue;
        };
        let described = match connector.builtin {
            true => of_builtin(&connector.name, connection.name.as_str()),
            false => Some(OlderConnection {
                connector: connector.name.clone(),
                events: BTreeMap::new(),
                keeps_key: connector.name == connection.name.as_str(),
            }),
        };
        all.extend(described.map(|described| (connection.name.clone(), described)));
    }
    if let Ok(local) = ConnectionName::new(LOCAL_CLIENT)
        && let Some(described) = of_builtin(LOCAL_CLIENT, LOCAL_CLIENT)
    {
        all.entry(local).or_insert(described);
    }
    all
}

fn of_builtin(connector: &str, connection: &str) -> Option<OlderConnection> {
    let (older, events) = older_events(connector)?;
    Some(OlderConnection {
        connector: older.to_owned(),
        events,
        // The keys of a built-in connector begin with its name.
        keeps_key: [older, connector].contains(&connection),
    })
}
