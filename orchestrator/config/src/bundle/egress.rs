//! The implicit connection through which confined programs reach allowed hosts (`SEC-3`).

use std::collections::BTreeMap;

use goondan_protocol::JsonObject;
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::egress::{AllowList, EGRESS, EgressCaller};
use goondan_protocol::ids::{AgentName, ConnectionName};
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::sandbox::SandboxPolicy;
use goondan_protocol::task::CliAgentDefinition;

use crate::ConnectionDefinition;
use crate::codes;
use crate::kinds::Resources;
use crate::report::{Problem, ProblemReport};

/// Adds the egress to the connections if a program needs it.
pub(super) fn add(
    agents: &BTreeMap<AgentName, AgentDefinition>,
    cli_agents: &BTreeMap<AgentName, CliAgentDefinition>,
    connections: &mut BTreeMap<ConnectionName, ConnectionDefinition>,
    resources: &Resources,
    report: &mut ProblemReport,
) {
    let lists = lists_of(agents, cli_agents, connections);
    let (Ok(name), Ok(connector)) = (EGRESS.parse::<ConnectionName>(), EGRESS.parse()) else {
        return;
    };
    if lists.is_empty() {
        return;
    }
    let taken = resources
        .connections
        .iter()
        .find(|it| it.value.name == name);
    if let Some(taken) = taken {
        let message = format!(
            "the name of Connection `{name}` is reserved for the process that connects sandboxes \
             to their allowed hosts"
        );
        let problem = Problem::new(codes::DUPLICATE_RESOURCE, taken.place, message);
        report.add(problem.help("give it another name"));
        return;
    }
    let egress = ConnectionDefinition {
        name: name.clone(),
        connector,
        entry: None,
        entry_digest: None,
        config: JsonObject::new(),
        secrets: BTreeMap::new(),
        rules: Vec::new(),
        header: None,
        keeps_payload: true,
        limits: ProcessLimits::default(),
        sandbox: SandboxPolicy::default(),
        egress: lists,
    };
    connections.insert(name, egress);
}

fn lists_of(
    agents: &BTreeMap<AgentName, AgentDefinition>,
    cli_agents: &BTreeMap<AgentName, CliAgentDefinition>,
    connections: &BTreeMap<ConnectionName, ConnectionDefinition>,
) -> Vec<AllowList> {
    let list = |caller: EgressCaller, sandbox: &SandboxPolicy| {
        let allow = sandbox.allow_list()?.to_vec();
        Some(AllowList { caller, allow })
    };
    let mut of_modules: Vec<AllowList> = Vec::new();
    for agent in agents.values() {
        for modules in agent.module_sandboxes() {
            let own = list(modules.caller(&agent.name), &modules.sandbox);
            of_modules.extend(own.filter(|it| !of_modules.contains(it)));
        }
    }
    let agents = agents.values().filter(|agent| agent.programs().is_some());
    let of_agents = agents.filter_map(|agent| {
        let caller = EgressCaller::Agent(agent.name.clone());
        list(caller, &agent.sandbox)
    });
    let connections = connections.values().filter(|it| it.programs().is_some());
    let of_connections = connections.filter_map(|connection| {
        let caller = EgressCaller::Connection(connection.name.clone());
        list(caller, &connection.sandbox)
    });
    let of_programs = cli_agents.values().filter_map(|agent| {
        let caller = EgressCaller::Agent(agent.name.clone());
        list(caller, &agent.sandbox)
    });
    of_agents
        .chain(of_modules)
        .chain(of_programs)
        .chain(of_connections)
        .collect()
}
