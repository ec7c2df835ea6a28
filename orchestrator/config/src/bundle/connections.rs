//! Resolves a connection with its connector and its ingress rules.

use std::collections::{BTreeMap, BTreeSet};

use goondan_connectors::{ApprovalChat, working_as};
use goondan_protocol::JsonObject;
use goondan_protocol::base_package::tool_exports;
use goondan_protocol::ids::{AgentName, ConnectionName, ResourceName};
use sha2::{Digest as _, Sha256};

use super::agents::known_exports;
use super::headers;
use super::joins::Joins;
use super::members::Membership;
use super::permissions;
use super::sandboxes::{self, SandboxCheckContext};
use crate::codes;
use crate::fields::{LocatedValue, one_of};
use crate::kinds::connection::{ConnectionSpec, RuleSpec, check_program};
use crate::kinds::connector::{Events, Program};
use crate::kinds::{Resources, settings};
use crate::reference::{LOCAL_CLIENT, Reference};
use crate::report::{Problem, ProblemReport};
use crate::similar::nearest;
use crate::{ConnectionDefinition, IngressRule, KeyRule};

/// A connector that can send without receiving.
const SLACK: &str = "slack";
/// Its secrets: for requests of Slack, and for requests to Slack.
const SLACK_SIGNING: &str = "signingSecret";
const SLACK_TOKEN: &str = "botToken";

/// The connections that have processes, and the connection of local clients, if there is one.
pub(super) fn resolve_connections(
    membership: &Membership,
    resources: &Resources,
    ground: &SandboxCheckContext<'_>,
    report: &mut ProblemReport,
) -> (
    BTreeMap<ConnectionName, ConnectionDefinition>,
    Option<ConnectionDefinition>,
) {
    let mut connections = BTreeMap::new();
    let mut local = None;
    for connection in &resources.connections {
        let definition = resolve_connection(connection, membership, resources, ground, report);
        let Some(definition) = definition.filter(|_| can_start(&connection.value, resources))
        else {
            continue;
        };
        sandboxes::check_connection(&definition, connection, ground, report);
        if definition.entry.is_none() && definition.connector.as_str() == LOCAL_CLIENT {
            check_local(connection, &local, report);
            local = Some(definition);
        } else {
            connections.insert(definition.name.clone(), definition);
        }
    }
    (connections, local)
}

/// Note of a Connection whose Swarm does not run.
fn of_idle_swarm(connection: &ConnectionSpec, swarm: &Reference) -> Problem {
    let message = format!(
        "Connection `{}` does not start, because its Swarm `{}` does not run",
        connection.name, swarm.name
    );
    Problem::note(codes::IDLE_SWARM, swarm.place, message)
        .help("refer to the Swarm that runs, or remove the Connection")
}

/// Note of a Connection that routes to an agent of a Swarm that does not run. `None` if it has its
/// own Swarm, or routes only to agents of the Swarm that runs.
fn of_idle_agent(
    connection: &ConnectionSpec,
    membership: &Membership,
    resources: &Resources,
) -> Option<Problem> {
    if connection.swarm.is_some() || resources.swarms.len() < 2 {
        return None;
    }
    let mut agents = connection
        .rules
        .iter()
        .filter_map(|rule| rule.agent.as_ref());
    let is_of_other = |agent: &&Reference| {
        let mut known = resources.agents.iter();
        membership.excludes(&agent.name) && known.any(|it| it.value.name.as_str() == agent.name)
    };
    let agent = agents.find(is_of_other)?;
    let message = format!(
        "Connection `{}` does not start, because its agent `{}` is not in the Swarm that runs",
        connection.name, agent.name
    );
    let problem = Problem::note(codes::IDLE_SWARM, agent.place, message);
    Some(problem.help("set `swarmRef`, or add the agent to the Swarm that runs"))
}

/// False for a Connection of 0.0.3 whose environment variables are not set, which was reported.
fn can_start(connection: &ConnectionSpec, resources: &Resources) -> bool {
    resources.contract.is_own() || connection.written.is_whole
}

/// True for a Connection of 0.0.3 that can only send: it has a token for Slack, but no secret for
/// requests of Slack.
fn is_send_only(
    connection: &ConnectionSpec,
    program: Option<&Program>,
    resources: &Resources,
) -> bool {
    let is_slack = matches!(program, Some(Program::Builtin(name)) if name.as_str() == SLACK);
    let has = |name| connection.secrets.contains_key(name);
    is_slack
        && !resources.contract.is_own()
        && connection.written.is_whole
        && has(SLACK_TOKEN)
        && !has(SLACK_SIGNING)
}

/// A secret that no sender knows, so that every request is refused. It is the same in each load, so
/// that the connector does not restart.
fn unknown_secret(connection: &ConnectionSpec) -> String {
    let token = connection.secrets.get(SLACK_TOKEN);
    let mut hash = Sha256::new();
    hash.update("no requests are received by ");
    hash.update(connection.name.as_str());
    hash.update(token.map(String::as_str).unwrap_or_default());
    hex::encode(hash.finalize())
}

fn receives_nothing(connection: &ConnectionSpec) -> Problem {
    let message = format!(
        "the environment variable `SLACK_SIGNING_SECRET` is not set, so Connection `{}` sends but receives nothing",
        connection.name
    );
    let place = connection.written.place_of("");
    Problem::warning(codes::MISSING_VARIABLE, place, message).help(
        "set it in the daemon's environment, or write `SLACK_SIGNING_SECRET=…` into `.env.local`",
    )
}

fn resolve_connection(
    written: &LocatedValue<ConnectionSpec>,
    membership: &Membership,
    resources: &Resources,
    ground: &SandboxCheckContext<'_>,
    report: &mut ProblemReport,
) -> Option<ConnectionDefinition> {
    let connection = &written.value;
    if let Some(swarm) = &connection.swarm {
        resources.names.check(swarm, report)?;
    }
    let idle = match &connection.swarm {
        Some(swarm) => {
            let mut readable = resources.swarms.iter();
            let is_idle = !membership.runs(&swarm.name)
                && readable.any(|it| it.value.name.as_str() == swarm.name);
            is_idle.then(|| of_idle_swarm(connection, swarm))
        }
        None => of_idle_agent(connection, membership, resources),
    };
    if let Some(idle) = idle {
        if let Some(connector) = &connection.connector {
            resources.names.check(connector, report)?;
        }
        for agent in connection
            .rules
            .iter()
            .filter_map(|rule| rule.agent.as_ref())
        {
            resources.names.check(agent, report)?;
        }
        report.add(idle);
        return None;
    }
    let mut events = Events::new();
    let program: Option<Program> = connection.connector.as_ref().and_then(|reference| {
        resources.names.check(reference, report)?;
        if reference.builtin {
            return Some(Program::Builtin(reference.name.parse().ok()?));
        }
        let connector = resources.connectors.get(reference.key().as_ref())?;
        events = connector.events.clone();
        Some(connector.program.clone())
    });
    if let Some(Program::Builtin(name)) = &program
        && let Some(described) = goondan_connectors::find(name.as_str())
    {
        if !is_send_only(connection, program.as_ref(), resources) {
            settings::check(connection, described, report);
        }
        check_program(connection, name, report);
        if let Some(chat) = ApprovalChat::of(name.as_str(), &connection.config)
            && !report.is_partial()
            && membership.is_complete()
        {
            check_shown_agents(connection, &chat, (membership, resources), report);
            check_shown_tools(connection, &chat, (membership, resources), report);
        }
        if events.is_empty() {
            events = events_of(name, &connection.config);
        }
    }
    let mut secrets = connection.secrets.clone();
    if is_send_only(connection, program.as_ref(), resources) {
        secrets.insert(SLACK_SIGNING.to_owned(), unknown_secret(connection));
        if !connection.rules.is_empty() {
            report.add(receives_nothing(connection));
        }
    }
    let joins = Joins::of(connection, report);
    let mut rules = Vec::with_capacity(connection.rules.len());
    for rule in &connection.rules {
        if !events.is_empty() {
            check_events(rule, &events, report);
        }
        rules.extend(resolve_rule(rule, &joins, membership, resources, report));
    }
    if connection.rules.is_empty() {
        rules.push(IngressRule {
            event: None,
            properties: BTreeMap::new(),
            agent: None,
            key: KeyRule::FromEvent { prefix: None },
            join: None,
        });
    }
    let header = headers::resolve(connection, program.as_ref()?, &events, resources, report);
    let (connector, entry, entry_digest) = match program? {
        Program::Builtin(name) => (name, None, None),
        Program::Entry(name, path, digest) => (name, Some(path), Some(digest)),
    };
    let mut sandbox = connection.sandbox.within(&membership.policy.sandbox);
    let reference = connection.connector.as_ref();
    let of = reference.and_then(|it| permissions::referred_to(it, resources));
    if let Some(of) = of.filter(|_| entry.is_some()) {
        permissions::check_secrets(connection, of, written.place, report);
        sandbox = permissions::of_connector(&sandbox, of.1, ground);
    }
    Some(ConnectionDefinition {
        name: connection.name.clone(),
        connector,
        entry,
        entry_digest,
        config: connection.config.clone(),
        secrets,
        rules,
        header,
        keeps_payload: connection.keeps_payload,
        limits: connection.limits,
        sandbox,
        egress: Vec::new(),
    })
}

/// Checks that a chat for decisions only lists existing agents (`STEER-3`).
fn check_shown_agents(
    connection: &ConnectionSpec,
    chat: &ApprovalChat,
    (membership, resources): (&Membership, &Resources),
    report: &mut ProblemReport,
) {
    // The questions of agents that are programs are shown, too.
    let is_known = |agent: &str| {
        let mut programs = resources.cli_agents.iter();
        membership.members.contains(agent)
            || programs.any(|program| program.value.name.as_str() == agent)
    };
    let agents = chat.agents().enumerate();
    for (index, agent) in agents.filter(|(_, agent)| !is_known(agent)) {
        let place = connection
            .written
            .place_of(&format!("approvals.agents[{index}]"));
        let members = membership.members.iter().map(String::as_str);
        report.add(
            Problem::new(
                codes::UNKNOWN_REFERENCE,
                place,
                format!("Agent `{agent}` is not an agent of this project's swarm"),
            )
            .rename(agent, nearest(agent, members)),
        );
    }
}

/// Warns about tools of a chat for decisions whose calls it never shows (`STEER-3`). An agent can get
/// a tool by a change of its own configuration, so that an unknown name is not an error.
fn check_shown_tools(
    connection: &ConnectionSpec,
    chat: &ApprovalChat,
    (membership, resources): (&Membership, &Resources),
    report: &mut ProblemReport,
) {
    let is_shown = |agent: &str| {
        let mut agents = chat.agents().peekable();
        membership.members.contains(agent)
            && (agents.peek().is_none() || agents.any(|listed| listed == agent))
    };
    let agents = resources.agents.iter().map(|agent| &agent.value);
    let shown = agents.filter(|agent| is_shown(agent.name.as_str()));
    let tools: Vec<&Reference> = shown.flat_map(|agent| &agent.tools).collect();
    let is_of = |tool: &Reference, written: &str| match written.strip_prefix(tool.name.as_str()) {
        Some("") => true,
        Some(end) => end.strip_prefix("__").is_some_and(|export| {
            let exports = exports_of(tool, resources);
            exports.is_empty() || exports.contains(&export)
        }),
        None => false,
    };
    for (index, written) in chat.tools().enumerate() {
        let place = connection
            .written
            .place_of(&format!("approvals.tools[{index}]"));
        let problem = if !chat.shows_calls() {
            let message = format!("`{written}` has no effect: `kinds` does not list `call`");
            Problem::warning(codes::NO_EFFECT, place, message)
                .help("remove `tools`, or list `call`")
        } else if !tools.iter().any(|tool| is_of(tool, written)) {
            let message = format!(
                "`{written}` has no effect: it is not a tool of an agent whose decisions are shown"
            );
            let names = tools.iter().map(|tool| tool.name.as_str());
            Problem::warning(codes::NO_EFFECT, place, message)
                .help("write the name of a tool in `tools` of an agent, or `tool__export`")
                .did_you_mean(nearest(written, names))
        } else {
            continue;
        };
        report.add(problem);
    }
}

/// Names of the exports of a listed tool; empty if they are not known here.
fn exports_of<'r>(tool: &Reference, resources: &'r Resources) -> Vec<&'r str> {
    if tool.builtin {
        return tool_exports(&tool.name);
    }
    let found = resources.tools.get(tool.key().as_ref());
    found.map(known_exports).unwrap_or_default()
}

/// Checks that the local client has no settings, and one route for its events.
fn check_local(
    connection: &LocatedValue<ConnectionSpec>,
    earlier: &Option<ConnectionDefinition>,
    report: &mut ProblemReport,
) {
    let spec = &connection.value;
    if let Some(earlier) = earlier {
        report.add(
            Problem::new(
                codes::DUPLICATE_REFERENCE,
                connection.place,
                format!(
                    "Connection `{}` is a second Connection of the connector `{LOCAL_CLIENT}`; the first is `{}`",
                    spec.name, earlier.name
                ),
            )
            .help("merge the rules into one Connection"),
        );
    }
    if let Some(join) = spec.joins.first() {
        let message = "the local client sends one kind of event, so it has no joins";
        let problem = Problem::new(codes::INVALID_VALUE, join.name.place, message);
        report.add(problem.help("remove `joins`"));
    }
    if !spec.config.is_empty() || !spec.secrets.is_empty() {
        report.add(
            Problem::new(
                codes::UNKNOWN_FIELD,
                connection.place,
                format!(
                    "the connector `{LOCAL_CLIENT}` takes no settings and no secrets, but \
                     Connection `{}` sets some",
                    spec.name
                ),
            )
            .help("remove `config` and `secrets`"),
        );
    }
}

/// Events of a connection of a built-in connector. A relay has the events of the connector on the
/// other machine.
fn events_of(connector: &ResourceName, config: &JsonObject) -> Events {
    let brought = working_as(connector.as_str(), config).and_then(goondan_connectors::find);
    brought.map(described_events).unwrap_or_default()
}

/// The events of a built-in connector.
fn described_events(connector: &goondan_connectors::Connector) -> Events {
    let events = connector.events.iter();
    events
        .map(|event| {
            let properties = event.properties.map(|names| {
                let names = names.iter();
                names.map(|name| (*name).to_owned()).collect()
            });
            (event.name.to_owned(), properties)
        })
        .collect()
}

/// Checks a rule against the declared events of its connector.
fn check_events(rule: &RuleSpec, events: &Events, report: &mut ProblemReport) {
    let unknown = |what: &str, written: &LocatedValue<String>, known: Vec<&str>| {
        let name = &written.value;
        Problem::new(
            codes::UNKNOWN_REFERENCE,
            written.place,
            format!(
                "the connector has no {what} `{name}`; expected {}",
                one_of(&known)
            ),
        )
        .did_you_mean(nearest(name, known))
    };
    let properties: Vec<&str> = match &rule.event {
        Some(event) => match events.get(&event.value) {
            Some(Some(properties)) => properties.iter().map(String::as_str).collect(),
            Some(None) => return,
            None => {
                let known = events.keys().map(String::as_str).collect();
                report.add(unknown("event", event, known));
                return;
            }
        },
        None if events.values().any(Option::is_none) => return,
        None => {
            let all = events.values().flatten().flatten().map(String::as_str);
            all.collect::<BTreeSet<_>>().into_iter().collect()
        }
    };
    for property in &rule.property_places {
        if !properties.contains(&property.value.as_str()) {
            report.add(unknown("property", property, properties.clone()));
        }
    }
}

/// Warns of rules that send one conversation to two agents: it belongs to the first, and events for
/// the other are refused.
pub(super) fn check_shared_keys(
    resources: &Resources,
    entry: Option<&AgentName>,
    report: &mut ProblemReport,
) {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    let connections = resources.connections.iter();
    for rule in connections.flat_map(|connection| &connection.value.rules) {
        let KeyRule::Fixed(key) = &rule.key else {
            continue;
        };
        let named = rule.agent.as_ref().map(|agent| agent.name.as_str());
        let Some(agent) = named.or_else(|| entry.map(AgentName::as_str)) else {
            continue;
        };
        let owner = *owners.entry(key.as_str()).or_insert(agent);
        let place = rule.agent.as_ref().map(|agent| agent.place);
        let place = place.or_else(|| rule.event.as_ref().map(|event| event.place));
        if let Some(place) = place.filter(|_| owner != agent) {
            let message = format!(
                "the conversation `{key}` gets events for agent `{owner}` and for agent `{agent}`, \
                 but belongs to the agent of its first event; the others are refused"
            );
            let problem = Problem::warning(codes::NO_EFFECT, place, message);
            report.add(problem.help("give each agent an `instanceKey` of its own"));
        }
    }
}

fn resolve_rule(
    rule: &RuleSpec,
    joins: &Joins<'_>,
    membership: &Membership,
    resources: &Resources,
    report: &mut ProblemReport,
) -> Option<IngressRule> {
    let agent = match &rule.agent {
        None => None,
        Some(reference) => {
            membership.check(reference, resources, report)?;
            Some(AgentName::new(&reference.name).ok()?)
        }
    };
    Some(IngressRule {
        event: rule.event.as_ref().map(|event| event.value.clone()),
        properties: rule.properties.clone(),
        agent,
        key: rule.key.clone(),
        join: joins.resolve(rule),
    })
}
