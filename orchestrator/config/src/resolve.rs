//! Connects what was read: follows every reference and builds the [`Bundle`].

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::budget::{Budget, BudgetScope};
use goondan_protocol::definition::{
    AgentDefinition, ExtensionDefinition, ExtensionSource, ModelProvider, ToolDefinition,
};
use goondan_protocol::ids::{AgentName, ConnectionName};
use goondan_protocol::settings::TOOL_SEARCH_FIND;

use crate::codes;
use crate::digest::digest;
use crate::fields::{Located, one_of};
use crate::kind::Kind;
use crate::kinds::agent::AgentSpec;
use crate::kinds::connection::{ConnectionSpec, RuleSpec, check_program};
use crate::kinds::connector::{Events, Program};
use crate::kinds::swarm::{Policy, SwarmSpec};
use crate::kinds::{extension, settings};
use crate::kinds::{thinking, tool};
use crate::outgoing;
use crate::reference::{LOCAL_CLIENT, Reference};
use crate::report::{Problem, Report};
use crate::resources::Resources;
use crate::similar::nearest;
use crate::{Bundle, ConnectionDefinition, IngressRule, KeyRule};

/// The built-in extension that `requiredTools` stands for.
const REQUIRED_TOOLS_GUARD: &str = "required-tools-guard";
/// The name it has then. No resource can have it: it is no resource's name.
const REQUIRED_TOOLS: &str = "$requiredTools";

/// Who works together: the swarm's members, or all agents of a project without a Swarm.
struct Membership {
    /// The Swarm's name for messages, if there is one.
    swarm: Option<String>,
    members: BTreeSet<String>,
    /// Whether every member could be found; if not, who is missing is not known.
    complete: bool,
    policy: Policy,
}

/// Builds the bundle. `None` only if a problem has been reported.
pub(crate) fn resolve(resources: Resources, report: &mut Report) -> Option<Bundle> {
    let swarm = only_swarm(&resources, report);
    let membership = read_membership(swarm, &resources, report);
    let entry_agent = find_entry_agent(swarm, &membership, &resources, report);

    let mut agents = BTreeMap::new();
    for agent in &resources.agents {
        let definition = resolve_agent(&agent.value, membership.policy, &resources, report);
        if let Some(definition) = definition
            && membership.members.contains(definition.name.as_str())
        {
            agents.insert(definition.name.clone(), definition);
        }
    }
    let (connections, local) = resolve_connections(&membership, &resources, report);
    if !report.has_errors() {
        let mut kinds = vec![Kind::Model, Kind::Tool, Kind::Extension, Kind::Connector];
        if swarm.is_some_and(|swarm| swarm.value.agents.is_some()) {
            kinds.push(Kind::Agent);
        }
        resources.names.warn_unused(&kinds, report);
    }
    let called = agents.values().filter_map(|agent: &AgentDefinition| {
        let hosted = resources.hosted.get(&agent.model.name)?;
        Some((hosted.model.name.clone(), hosted))
    });
    let called: BTreeMap<_, _> = called.collect();
    let prices = called
        .iter()
        .filter(|(_, hosted)| !hosted.prices.is_empty());
    let prices = prices.map(|(name, hosted)| (name.clone(), hosted.prices.clone()));
    let prices = prices.collect();
    let models = called.into_iter();
    let models = models
        .map(|(name, hosted)| (name, hosted.model.clone()))
        .collect();
    let budgets = budgets_of(swarm, &membership, &resources);
    for budget in &budgets {
        check_prices(budget, &agents, &resources, report);
    }
    let budgets = budgets.into_iter().map(|budget| budget.value.clone());
    let budgets = budgets.collect();
    let conversation_key = swarm.and_then(|swarm| swarm.value.conversation_key.clone());
    let mut bundle = Bundle {
        package: resources.package,
        entry_agent: entry_agent?,
        conversation_key,
        agents,
        connections,
        local,
        grace_period_ms: membership.policy.grace_period_ms,
        lifecycle: membership.policy.lifecycle,
        observation: membership.policy.observation,
        models,
        prices,
        budgets,
        digest: String::new(),
    };
    bundle.digest = digest(&bundle);
    Some(bundle)
}

/// The connections that processes run for, and the one of clients, if there is one.
fn resolve_connections(
    membership: &Membership,
    resources: &Resources,
    report: &mut Report,
) -> (
    BTreeMap<ConnectionName, ConnectionDefinition>,
    Option<ConnectionDefinition>,
) {
    let mut connections = BTreeMap::new();
    let mut local = None;
    for connection in &resources.connections {
        let definition = resolve_connection(&connection.value, membership, resources, report);
        let Some(definition) = definition else {
            continue;
        };
        if definition.entry.is_none() && definition.connector.as_str() == LOCAL_CLIENT {
            check_local(connection, &local, report);
            local = Some(definition);
        } else {
            connections.insert(definition.name.clone(), definition);
        }
    }
    (connections, local)
}

/// The budgets of the swarm, then those of its agents.
fn budgets_of<'r>(
    swarm: Option<&'r Located<SwarmSpec>>,
    membership: &Membership,
    resources: &'r Resources,
) -> Vec<&'r Located<Budget>> {
    let of_swarm = swarm.into_iter().flat_map(|swarm| &swarm.value.budgets);
    let members = resources.agents.iter().map(|agent| &agent.value);
    let members = members.filter(|agent| membership.members.contains(agent.name.as_str()));
    of_swarm
        .chain(members.flat_map(|agent| &agent.budgets))
        .collect()
}

/// A budget in money is kept only if it is known what the models cost it is about.
fn check_prices(
    budget: &Located<Budget>,
    agents: &BTreeMap<AgentName, AgentDefinition>,
    resources: &Resources,
    report: &mut Report,
) {
    if budget.value.micro_usd.is_none() {
        return;
    }
    let named = budget.value.agent.as_ref();
    let bound = agents.values().filter(|agent| {
        let only = named.filter(|_| budget.value.scope == BudgetScope::Agent);
        only.is_none_or(|only| agent.name == *only)
    });
    let without = bound.filter(|agent| {
        let hosted = resources.hosted.get(&agent.model.name);
        hosted.is_some_and(|hosted| hosted.prices.is_empty())
    });
    let without: BTreeSet<&str> = without.map(|agent| agent.model.name.as_str()).collect();
    for model in without {
        let message = format!(
            "this budget is in money, but nobody says what Model `{model}` costs, so it could not be \
             kept"
        );
        report.add(
            Problem::new(codes::INVALID_VALUE, budget.place, message).help(format!(
                "add `prices` to Model `{model}`, or set the budget in `tokens`"
            )),
        );
    }
}

/// The project's Swarm; reports every further one.
fn only_swarm<'r>(resources: &'r Resources, report: &mut Report) -> Option<&'r Located<SwarmSpec>> {
    let (first, further) = resources.swarms.split_first()?;
    for swarm in further {
        let first = report.locate(first.place);
        report.add(
            Problem::new(
                codes::UNSUPPORTED,
                swarm.place,
                format!(
                    "Swarm `{}` is a second Swarm; this version runs one for each project; first \
                     at {first}",
                    swarm.value.name
                ),
            )
            .help("join the two or make two projects"),
        );
    }
    Some(first)
}

fn read_membership(
    swarm: Option<&Located<SwarmSpec>>,
    resources: &Resources,
    report: &mut Report,
) -> Membership {
    let all = || {
        let names = resources.agents.iter();
        names
            .map(|agent| agent.value.name.as_str().to_owned())
            .collect()
    };
    let Some(swarm) = swarm else {
        return Membership {
            swarm: None,
            members: all(),
            complete: true,
            policy: Policy::default(),
        };
    };
    let mut complete = true;
    let members = match &swarm.value.agents {
        None => all(),
        Some(references) => {
            let mut members = BTreeSet::new();
            for reference in references {
                if resources.names.check(reference, report).is_none() {
                    complete = false;
                    continue;
                }
                if !members.insert(reference.name.clone()) {
                    report.add(
                        Problem::new(
                            codes::DUPLICATE_REFERENCE,
                            reference.place,
                            format!("Agent `{}` is listed twice", reference.name),
                        )
                        .help("remove one of the two"),
                    );
                }
            }
            members
        }
    };
    Membership {
        swarm: Some(swarm.value.name.as_str().to_owned()),
        members,
        complete,
        policy: swarm.value.policy,
    }
}

impl Membership {
    /// Checks that a reference names an agent that takes part.
    fn check(
        &self,
        reference: &Reference,
        resources: &Resources,
        report: &mut Report,
    ) -> Option<()> {
        resources.names.check(reference, report)?;
        let Some(swarm) = &self.swarm else {
            return Some(());
        };
        let name = &reference.name;
        if self.members.contains(name) || !self.complete {
            return Some(());
        }
        report.add(
            Problem::new(
                codes::UNKNOWN_REFERENCE,
                reference.place,
                format!("Agent `{name}` is not one of the agents of Swarm `{swarm}`"),
            )
            .help(format!("add `Agent/{name}` to the Swarm's `agents`")),
        );
        None
    }
}

fn find_entry_agent(
    swarm: Option<&Located<SwarmSpec>>,
    membership: &Membership,
    resources: &Resources,
    report: &mut Report,
) -> Option<AgentName> {
    if let Some(swarm) = swarm {
        let reference = swarm.value.entry_agent.as_ref()?;
        membership.check(reference, resources, report)?;
        return AgentName::new(&reference.name).ok();
    }
    let count = |kind| resources.counts.get(&kind).copied().unwrap_or_default();
    if count(Kind::Swarm) > 0 {
        return None;
    }
    match (count(Kind::Agent), resources.agents.as_slice()) {
        (1, [only]) => Some(only.value.name.clone()),
        (0, _) => {
            // What could not be read may have been the agent.
            if let Some(place) = resources.start.filter(|_| !report.is_partial()) {
                report.add(
                    Problem::new(
                        codes::NO_ENTRY_AGENT,
                        place,
                        "the project defines no Agent, so nobody could answer",
                    )
                    .help("add a document of `kind: Agent`"),
                );
            }
            None
        }
        (1, _) => None,
        // What could not be read may have been the Swarm.
        (_, [_, ..]) if report.is_partial() => None,
        (_, [first, ..]) => {
            report.add(
                Problem::new(
                    codes::NO_ENTRY_AGENT,
                    first.place,
                    "the project defines several Agents but no Swarm that says who answers first",
                )
                .help(format!(
                    "add a document of `kind: Swarm` with `entryAgent: Agent/{}`",
                    first.value.name
                )),
            );
            None
        }
        (_, []) => None,
    }
}

fn resolve_agent(
    agent: &AgentSpec,
    policy: Policy,
    resources: &Resources,
    report: &mut Report,
) -> Option<AgentDefinition> {
    let mut model = agent.model.as_ref().and_then(|reference| {
        resources.names.check(reference, report)?;
        resources.models.get(&reference.name).cloned()
    });
    if let Some(ModelProvider::Connector { params }) =
        model.as_mut().map(|model| &mut model.provider)
    {
        params.clone_from(&agent.params);
    }
    let hosted = model.as_ref().and_then(|it| resources.hosted.get(&it.name));
    if let (Some(place), Some(hosted)) = (agent.params_place, hosted) {
        let sent = agent.params.clone().or(&hosted.model.params);
        thinking::check(&hosted.model, &sent, place, report);
    }
    let extensions = resolve_extensions(agent, resources, report);
    if let (Some(place), Some(ModelProvider::Scripted { .. })) = (
        agent.params_place,
        model.as_ref().map(|model| &model.provider),
    ) {
        report.add(
            Problem::warning(
                codes::NO_EFFECT,
                place,
                "`params` has no effect: the scripted model has no parameters",
            )
            .help("remove it, or keep it for another model"),
        );
    }
    let mut seen = BTreeSet::new();
    let mut tools = Vec::with_capacity(agent.tools.len());
    for reference in &agent.tools {
        if !seen.insert(reference.name.as_str()) {
            report.add(
                Problem::new(
                    codes::DUPLICATE_REFERENCE,
                    reference.place,
                    format!(
                        "Agent `{}` has two tools of the name `{}`; a model could not tell them \
                         apart",
                        agent.name, reference.name
                    ),
                )
                .help("remove one of the two or give it another name in a Tool document"),
            );
        }
        tools.extend(resolve_tool(reference, resources, report));
    }
    Some(AgentDefinition {
        name: agent.name.clone(),
        description: agent.description.clone(),
        system_prompt: agent.system_prompt.clone(),
        model: model?,
        tools,
        extensions,
        max_steps_per_turn: policy.max_steps_per_turn,
        loop_breaker: policy.loop_breaker,
        cwd_mode: agent.runtime.cwd_mode,
        limits: agent.runtime.limits,
        secret_files: resources.env_files.clone(),
    })
}

fn resolve_extensions(
    agent: &AgentSpec,
    resources: &Resources,
    report: &mut Report,
) -> Vec<ExtensionDefinition> {
    let mut seen = BTreeSet::new();
    let mut extensions = Vec::new();
    for reference in &agent.extensions {
        if !seen.insert(reference.name.as_str()) {
            report.add(
                Problem::new(
                    codes::DUPLICATE_REFERENCE,
                    reference.place,
                    format!(
                        "Agent `{}` has two extensions of the name `{}`; they would share one state",
                        agent.name, reference.name
                    ),
                )
                .help("remove one of the two or give it another name in an Extension document"),
            );
        }
        if resources.names.check(reference, report).is_none() {
            continue;
        }
        let found = if reference.builtin {
            extension::builtin(&reference.name)
        } else {
            resources.extensions.get(&reference.name).cloned()
        };
        let found = found.and_then(|it| extension::with_settings(it, reference, report));
        if let Some(definition) = &found {
            check_named_tools(definition, reference, agent, report);
        }
        extensions.extend(found);
    }
    check_required_tools(agent, report);
    extensions.extend(required_tools_guard(agent));
    extensions
}

/// An extension's settings name tools by their full names: each is one of the agent's. The tool that
/// `tool-search` adds has its name to itself.
fn check_named_tools(
    definition: &ExtensionDefinition,
    reference: &Reference,
    agent: &AgentSpec,
    report: &mut Report,
) {
    let ExtensionSource::Builtin { name, .. } = &definition.source else {
        return;
    };
    let extension = name.as_str();
    let (search, _) = TOOL_SEARCH_FIND.split_once("__").unwrap_or_default();
    if extension == search
        && let Some(taken) = agent.tools.iter().find(|held| held.name == search)
    {
        let message = format!(
            "the extension `{extension}` adds a tool `{search}`, and Agent `{}` has another one of that \
             name",
            agent.name
        );
        report.add(
            Problem::new(codes::DUPLICATE_REFERENCE, taken.place, message)
                .help("give the Tool another name"),
        );
    }
    for setting in settings_of_tools(extension) {
        let names = definition.config.get(*setting);
        let names = names.and_then(serde_json::Value::as_array).into_iter();
        for name in names.flatten().filter_map(serde_json::Value::as_str) {
            let (tool, _) = name.split_once("__").unwrap_or_default();
            let has_it = agent.tools.iter().any(|held| held.name == tool);
            if !has_it && !report.is_partial() {
                let message = format!(
                    "`{setting}` of the extension `{}` names `{name}`, but Agent `{}` has no tool \
                     `{tool}`",
                    definition.name, agent.name
                );
                report.add(
                    Problem::new(codes::UNKNOWN_REFERENCE, reference.place, message)
                        .help("write the full name, `tool__export`, of one of the agent's `tools`"),
                );
            }
        }
    }
}

/// The settings of a built-in extension that name tools.
fn settings_of_tools(extension: &str) -> &'static [&'static str] {
    match extension {
        REQUIRED_TOOLS_GUARD => &["tools"],
        "tool-search" => &["alwaysOffered"],
        _ => &[],
    }
}

/// A tool that an agent does not have can never be called.
fn check_required_tools(agent: &AgentSpec, report: &mut Report) {
    for required in &agent.required_tools {
        let (tool, _) = required.value.split_once("__").unwrap_or_default();
        let has_it = agent.tools.iter().any(|held| held.name == tool);
        if !has_it && !report.is_partial() {
            report.add(
                Problem::new(
                    codes::UNKNOWN_REFERENCE,
                    required.place,
                    format!(
                        "Agent `{}` requires a call of `{}`, but has no tool `{tool}`",
                        agent.name, required.value
                    ),
                )
                .help("write the full name, `tool__export`, of one of the agent's `tools`"),
            );
        }
    }
}

/// `requiredTools` is the extension `required-tools-guard`, innermost.
fn required_tools_guard(agent: &AgentSpec) -> Option<ExtensionDefinition> {
    if agent.required_tools.is_empty() {
        return None;
    }
    let mut guard = extension::builtin(REQUIRED_TOOLS_GUARD)?;
    guard.name = REQUIRED_TOOLS.parse().ok()?;
    let tools = agent.required_tools.iter().map(|tool| tool.value.as_str());
    guard.config.insert("tools".to_owned(), tools.collect());
    Some(guard)
}

fn resolve_tool(
    reference: &Reference,
    resources: &Resources,
    report: &mut Report,
) -> Option<ToolDefinition> {
    resources.names.check(reference, report)?;
    let mut tool = if reference.builtin {
        tool::builtin(&reference.name)
    } else {
        resources.tools.get(&reference.name).cloned()
    }?;
    outgoing::connect(&mut tool, reference, resources, report);
    Some(tool)
}

fn resolve_connection(
    connection: &ConnectionSpec,
    membership: &Membership,
    resources: &Resources,
    report: &mut Report,
) -> Option<ConnectionDefinition> {
    if let Some(swarm) = &connection.swarm {
        resources.names.check(swarm, report)?;
    }
    let mut events = Events::new();
    let program: Option<Program> = connection.connector.as_ref().and_then(|reference| {
        resources.names.check(reference, report)?;
        if reference.builtin {
            return Some(Program::Builtin(reference.name.parse().ok()?));
        }
        let connector = resources.connectors.get(&reference.name)?;
        events = connector.events.clone();
        Some(connector.program.clone())
    });
    if let Some(Program::Builtin(name)) = &program
        && let Some(described) = goondan_connectors::find(name.as_str())
    {
        settings::check(connection, described, report);
        check_program(connection, name, report);
        if events.is_empty() {
            events = described_events(described);
        }
    }
    let mut rules = Vec::with_capacity(connection.rules.len());
    for rule in &connection.rules {
        if !events.is_empty() {
            check_events(rule, &events, report);
        }
        rules.extend(resolve_rule(rule, membership, resources, report));
    }
    if connection.rules.is_empty() {
        rules.push(IngressRule {
            event: None,
            properties: BTreeMap::new(),
            agent: None,
            key: KeyRule::FromEvent { prefix: None },
        });
    }
    let (connector, entry, entry_digest) = match program? {
        Program::Builtin(name) => (name, None, None),
        Program::Entry(name, path, digest) => (name, Some(path), Some(digest)),
    };
    Some(ConnectionDefinition {
        name: connection.name.clone(),
        connector,
        entry,
        entry_digest,
        config: connection.config.clone(),
        secrets: connection.secrets.clone(),
        rules,
        limits: connection.limits,
    })
}

/// The local client takes no settings, and its events have one way to go.
fn check_local(
    connection: &Located<ConnectionSpec>,
    earlier: &Option<ConnectionDefinition>,
    report: &mut Report,
) {
    let spec = &connection.value;
    if let Some(earlier) = earlier {
        report.add(
            Problem::new(
                codes::DUPLICATE_REFERENCE,
                connection.place,
                format!(
                    "Connection `{}` is a second one of the connector `{LOCAL_CLIENT}`, beside `{}`",
                    spec.name, earlier.name
                ),
            )
            .help("put the rules of both into one"),
        );
    }
    if !spec.config.is_empty() || !spec.secrets.is_empty() {
        report.add(
            Problem::new(
                codes::UNKNOWN_FIELD,
                connection.place,
                format!(
                    "the connector `{LOCAL_CLIENT}` takes no settings and no secrets, and Connection \
                     `{}` has some",
                    spec.name
                ),
            )
            .help("remove `config` and `secrets`"),
        );
    }
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

/// Checks a rule by the events its connector says it brings.
fn check_events(rule: &RuleSpec, events: &Events, report: &mut Report) {
    let unknown = |what: &str, written: &Located<String>, known: Vec<&str>| {
        let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
        let name = &written.value;
        Problem::new(
            codes::UNKNOWN_REFERENCE,
            written.place,
            format!(
                "the connector brings no {what} `{name}`; there is {}",
                one_of(&names)
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

fn resolve_rule(
    rule: &RuleSpec,
    membership: &Membership,
    resources: &Resources,
    report: &mut Report,
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
    })
}
