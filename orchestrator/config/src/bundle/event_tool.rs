//! The tool `event` of agents that get events of connections (`CONN-1`).

use std::collections::{BTreeMap, BTreeSet};

use goondan_connectors::{inbound, working_as};
use goondan_protocol::base_package::EVENT_TOOL;
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::ids::{AgentName, ConnectionName};

use crate::ConnectionDefinition;
use crate::kinds::tool;

/// Gives the tool to the agents that connections with stored payloads reach, unless they have a tool
/// of that name.
pub(super) fn offer(
    agents: &mut BTreeMap<AgentName, AgentDefinition>,
    connections: &BTreeMap<ConnectionName, ConnectionDefinition>,
    entry: Option<&AgentName>,
) {
    let with_payload = connections.values().filter(|it| has_payload(it));
    let reached: BTreeSet<&AgentName> = with_payload
        .flat_map(|connection| &connection.rules)
        .filter_map(|rule| rule.agent.as_ref().or(entry))
        .collect();
    for (name, agent) in agents {
        let has_own = agent.tools.iter().any(|it| it.name.as_str() == EVENT_TOOL);
        // The older contract has a fixed set of tools (`COMPAT-2`).
        if reached.contains(name) && !has_own && agent.contract.is_own() {
            agent.tools.extend(tool::builtin(EVENT_TOOL));
        }
    }
}

/// True if events of a connection can bring a payload, which is stored.
fn has_payload(connection: &ConnectionDefinition) -> bool {
    let is_program = connection.entry.is_some();
    let work = working_as(connection.connector.as_str(), &connection.config);
    let brings_one = is_program || work.is_none_or(|work| inbound(work).is_some());
    connection.keeps_payload && brings_one
}
