//! A project, ready to run: resolves the references between its documents.
//!
//! * `members`: the agents of the swarm, and the entry agent.
//! * `agents`: an agent with its model, tools and extensions.
//! * `agent_tools`: tools that are other agents.
//! * `cli_agents`: agents that are programs.
//! * `connections`: a connection with its connector and its routing rules.
//! * `notify`: notifications about tasks through connections.
//! * `older_connections`: connections as modules of 0.0.3 know them.
//! * `event_tool`: the tool with which agents read the payloads of events.
//! * `headers`: the headers of a connection's events.
//! * `oauth`: the users of each OAuth application's tokens.
//! * `permissions`: rights of modules of packages.
//! * `workspace_permissions`: permissions that a person gives a workspace.
//! * `egress`: the connection that lets confined programs reach allowed hosts.

mod agent_tools;
mod agents;
mod cli_agents;
mod connections;
mod egress;
mod event_tool;
mod headers;
mod joins;
mod members;
mod notify;
mod oauth;
mod older_connections;
mod permissions;
mod sandboxes;
pub(crate) mod workspace_permissions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use goondan_protocol::budget::{Budget, BudgetScope};
use goondan_protocol::control::WorkspacePermission;
use goondan_protocol::definition::{AgentDefinition, HostedModel};
use goondan_protocol::ids::{AgentName, ConnectionName, InstanceKey, ResourceName};
use goondan_protocol::oauth::{OAuthApp, OAuthNeed};
use goondan_protocol::observe::ObservationBounds;
use goondan_protocol::task::{CliAgentDefinition, Notify};
use goondan_protocol::usage::PriceTable;
use serde_json::{Map, Value, json};

use agents::resolve_agent;
use connections::{check_shared_keys, resolve_connections};
use members::{Membership, find_entry_agent, read_membership, running_swarm};
use sandboxes::SandboxCheckContext;
use workspace_permissions::{PermissionRequest, PermissionState};

use crate::codes;
use crate::digest;
use crate::fields::LocatedValue;
use crate::kind::ResourceKind;
use crate::kinds::Resources;
use crate::kinds::swarm::SwarmSpec;
use crate::machine::HostMachine;
use crate::report::{Problem, ProblemReport};
use crate::{
    ApprovalPolicy, ChangesetPolicy, ConnectionDefinition, Lifecycle, Package, TaskPolicy,
};

/// A project, ready to run.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectConfig {
    /// Name and version of the package, if the project has them.
    pub package: Option<Package>,
    /// The agent that gets what no rule sends elsewhere: one of `agents`. None only in a project whose agents are
    /// all programs, which work for tasks alone.
    pub entry_agent: Option<AgentName>,
    /// The Swarm that runs, if the project has one.
    pub swarm: Option<ResourceName>,
    /// Further Swarms, which do not run.
    pub idle_swarms: Vec<ResourceName>,
    /// The default conversation, if the project names one.
    pub conversation_key: Option<InstanceKey>,
    /// The agents that take part, fully resolved.
    pub agents: BTreeMap<AgentName, AgentDefinition>,
    /// The agents that are programs, and work for tasks. No event goes to them.
    pub cli_agents: BTreeMap<AgentName, CliAgentDefinition>,
    /// Notifications about the tasks of each agent. The agent's process does not get them.
    pub notify: BTreeMap<AgentName, Vec<Notify>>,
    /// The connections; one connector process runs for each (`SUP-1`).
    pub connections: BTreeMap<ConnectionName, ConnectionDefinition>,
    /// The connection of the local client, if the project says where its events go. No process runs
    /// for it.
    pub local: Option<ConnectionDefinition>,
    /// The provider models that agents may call; each is served by a connector process.
    pub models: BTreeMap<ResourceName, HostedModel>,
    /// The applications at authorization servers.
    pub oauth_apps: BTreeMap<ResourceName, OAuthApp>,
    /// The required OAuth tokens. Values contain placeholders for them.
    pub oauth_needs: BTreeSet<OAuthNeed>,
    /// Prices of these models, if the project has them.
    pub prices: BTreeMap<ResourceName, PriceTable>,
    /// Budgets for the replies of models.
    pub budgets: Vec<Budget>,
    /// Timeout of a stop for the turn in progress, in milliseconds (`SUP-6`).
    pub grace_period_ms: u64,
    /// Retention of unused processes and conversations (`INST-7`).
    pub lifecycle: Lifecycle,
    /// Retention of observations of a conversation (`MSG-12`, `LLM-1`).
    pub observation: ObservationBounds,
    /// Retention and time limits of tasks.
    pub tasks: TaskPolicy,
    /// Tool calls that wait for a person.
    pub approvals: ApprovalPolicy,
    /// Rules for changes by agents to their own configuration; `None` if they are not allowed.
    pub changesets: Option<ChangesetPolicy>,
    /// Paths that agents may change by applying proposals of other agents (`PROP-8`).
    pub appliers: BTreeMap<AgentName, Vec<String>>,
    /// Permissions that it can use and about which no person has decided.
    pub undecided_permissions: Vec<WorkspacePermission>,
    /// SHA-256 over all of the above as 64 hex digits: changes exactly when the content does,
    /// environment values included.
    pub digest: String,
}

fn agents_of(
    membership: &Membership,
    entry_agent: Option<&AgentName>,
    resources: &Resources,
    ground: &SandboxCheckContext<'_>,
    report: &mut ProblemReport,
) -> BTreeMap<AgentName, AgentDefinition> {
    let mut agents = BTreeMap::new();
    for agent in &resources.agents {
        let definition = resolve_agent(&agent.value, membership, resources, report);
        if let Some(mut definition) = definition
            && membership.members.contains(definition.name.as_str())
        {
            // Only tools of the older contract use it.
            if !definition.contract.is_own() {
                definition.swarm =
                    membership.swarm(entry_agent, || older_connections::describe(resources));
            }
            permissions::confine(&mut definition, agent, resources, ground, report);
            sandboxes::check_agent(&definition, &agent.value, agent.place, ground, report);
            agents.insert(definition.name.clone(), definition);
        }
    }
    agents
}

impl ProjectConfig {
    /// True if this is the entry agent.
    #[must_use]
    pub fn is_entry(&self, agent: &AgentName) -> bool {
        self.entry_agent.as_ref() == Some(agent)
    }

    /// An agent that is a program.
    #[must_use]
    pub fn cli_agent(&self, name: &AgentName) -> Option<&CliAgentDefinition> {
        self.cli_agents.get(name)
    }

    /// The agents that are programs, in the order of their names.
    pub fn cli_agents(&self) -> impl ExactSizeIterator<Item = &CliAgentDefinition> {
        self.cli_agents.values()
    }

    /// Connects what was read: follows every reference. `None` only if a problem has been reported.
    pub(crate) fn of(
        resources: Resources,
        project: &Path,
        machine: &dyn HostMachine,
        (report, requests): (&mut ProblemReport, &mut Vec<PermissionRequest>),
    ) -> Option<Self> {
        let swarm = running_swarm(&resources, report);
        let membership = read_membership(swarm, &resources, report);
        let entry_agent = find_entry_agent(swarm, &membership, &resources, report);

        let ground = SandboxCheckContext {
            machine,
            project,
            swarm: &membership.policy.sandbox,
        };
        let entry = entry_agent.as_ref().and_then(Option::as_ref);
        let mut agents = agents_of(&membership, entry, &resources, &ground, report);
        let (mut connections, local) =
            resolve_connections(&membership, &resources, &ground, report);
        event_tool::offer(&mut agents, &connections, entry);
        check_shared_keys(&resources, entry, report);
        let cli_agents = cli_agents::resolve(&membership, &resources, &ground, report);
        let notify = notify::resolve(&membership, &resources, report);
        let appliers = appliers_of(&membership, &resources, report);
        *requests = workspace_permissions::grant(
            (&mut agents, &mut connections),
            (project, resources.contract),
            (&resources.permissions, resources.start),
            report,
        );
        let undecided = requests
            .iter()
            .filter(|it| it.state == PermissionState::Undecided);
        let undecided_permissions = undecided.map(|it| it.permission).collect();
        egress::add(&agents, &cli_agents, &mut connections, &resources, report);
        let mut oauth_needs = oauth::resolve_needs(&resources, report);
        let mut oauth_apps = oauth::apps_of(&resources);
        oauth::authorize(
            &mut connections,
            &mut oauth_apps,
            &mut oauth_needs,
            &resources,
            report,
        );
        oauth::add(&oauth_apps, &mut connections, &resources, report);
        if !report.has_errors() {
            let mut kinds = vec![
                ResourceKind::MODEL,
                ResourceKind::TOOL,
                ResourceKind::EXTENSION,
                ResourceKind::CONNECTOR,
            ];
            if swarm.is_some_and(|swarm| swarm.value.agents.is_some()) {
                kinds.push(ResourceKind::AGENT);
            }
            resources.names.warn_unused(&kinds, report);
        }
        let (models, prices) = called_models(&agents, &resources);
        let budgets = kept_budgets(swarm, &membership, &agents, &resources, report);
        let conversation_key = swarm.and_then(|swarm| default_key(&swarm.value, &resources));
        let swarm = swarm.map(|swarm| swarm.value.name.clone());
        let names = resources.swarms.iter().map(|swarm| &swarm.value.name);
        let idle_swarms = names.filter(|name| swarm.as_ref() != Some(name)).cloned();
        let idle_swarms = idle_swarms.collect();
        let mut bundle = Self {
            package: resources.package,
            entry_agent: entry_agent?,
            swarm,
            idle_swarms,
            conversation_key,
            agents,
            cli_agents,
            notify,
            connections,
            local,
            grace_period_ms: membership.policy.grace_period_ms,
            lifecycle: membership.policy.lifecycle,
            observation: membership.policy.observation,
            tasks: membership.policy.tasks,
            approvals: membership.policy.approvals,
            changesets: membership.policy.changesets,
            appliers,
            undecided_permissions,
            models,
            oauth_apps,
            oauth_needs,
            prices,
            budgets,
            digest: String::new(),
        };
        bundle.digest = digest_of(&bundle);
        Some(bundle)
    }
}

/// The key of a swarm's default conversation, if it is not the usual one. In 0.0.3, the Swarm's name
/// is the key.
fn default_key(swarm: &SwarmSpec, resources: &Resources) -> Option<InstanceKey> {
    let own = swarm.conversation_key.clone();
    match resources.contract.is_own() {
        true => own,
        false => own.or_else(|| InstanceKey::new(swarm.name.as_str()).ok()),
    }
}

/// Models, and what those with prices cost.
type PricedModels = (
    BTreeMap<ResourceName, HostedModel>,
    BTreeMap<ResourceName, PriceTable>,
);

/// The models that agents call, and their prices if the project has them.
fn called_models(
    agents: &BTreeMap<AgentName, AgentDefinition>,
    resources: &Resources,
) -> PricedModels {
    let names = agents.values().flat_map(|agent| agent.model.names());
    let called = names.filter_map(|name| {
        let hosted = resources.hosted.get(name)?;
        Some((hosted.model.name.clone(), hosted))
    });
    let called: BTreeMap<_, _> = called.collect();
    let priced = called
        .iter()
        .filter(|(_, hosted)| !hosted.prices.is_empty());
    let prices = priced.map(|(name, hosted)| (name.clone(), hosted.prices.clone()));
    let prices = prices.collect();
    let models = called.into_iter();
    let models = models.map(|(name, hosted)| (name, hosted.model.clone()));
    (models.collect(), prices)
}

/// Digest of everything that distinguishes a bundle.
fn digest_of(bundle: &ProjectConfig) -> String {
    let package = bundle
        .package
        .as_ref()
        .map(|package| json!({"name": package.name, "version": package.version}));
    let agents: Vec<Value> = bundle.agents.values().map(|agent| json!(agent)).collect();
    let connections: Vec<Value> = bundle
        .connections
        .values()
        .map(digest::connection)
        .collect();
    let models: Vec<Value> = bundle.models.values().map(|model| json!(model)).collect();
    let mut content = json!({
        "package": package,
        "entryAgent": bundle.entry_agent,
        "conversationKey": bundle.conversation_key,
        "agents": agents,
        "connections": connections,
        "local": bundle.local.as_ref().map(digest::connection),
        "models": models,
        "prices": bundle.prices,
        "budgets": bundle.budgets,
        "gracePeriodMs": bundle.grace_period_ms,
        "lifecycle": {
            "ttlMs": bundle.lifecycle.ttl_ms,
            "gcGraceMs": bundle.lifecycle.gc_grace_ms,
            "idleMs": bundle.lifecycle.idle_ms,
        },
    });
    if let Some(content) = content.as_object_mut() {
        add_said(bundle, content);
    }
    digest::digest(content)
}

/// Settings of later versions, which change the digest only if they are set.
fn add_said(bundle: &ProjectConfig, content: &mut Map<String, Value>) {
    if bundle.observation != ObservationBounds::default() {
        let ObservationBounds { bytes, days } = bundle.observation;
        let bounds = json!({"bytes": bytes, "days": days});
        content.insert("observation".to_owned(), bounds);
    }
    if bundle.tasks != TaskPolicy::default() {
        let TaskPolicy {
            keep_ms,
            drill_ms,
            checkpoint_ms,
        } = bundle.tasks;
        let policy = if checkpoint_ms == TaskPolicy::default().checkpoint_ms {
            json!({"keepMs": keep_ms, "drillMs": drill_ms})
        } else {
            json!({"keepMs": keep_ms, "drillMs": drill_ms, "checkpointMs": checkpoint_ms})
        };
        content.insert("tasks".to_owned(), policy);
    }
    if let ApprovalPolicy {
        timeout_ms: Some(timeout_ms),
    } = bundle.approvals
    {
        content.insert("approvals".to_owned(), json!({"timeoutMs": timeout_ms}));
    }
    if let Some(policy) = bundle.changesets {
        let ChangesetPolicy {
            prompts,
            tools,
            models,
        } = policy;
        let rules = json!({
            "prompts": prompts.as_str(), "tools": tools.as_str(), "models": models.as_str(),
        });
        content.insert("changesets".to_owned(), rules);
    }
    if !bundle.oauth_apps.is_empty() {
        let apps: Vec<Value> = bundle.oauth_apps.values().map(|app| json!(app)).collect();
        content.insert("oauthApps".to_owned(), apps.into());
    }
    if !bundle.cli_agents.is_empty() {
        let agents: Vec<Value> = bundle.cli_agents().map(|agent| json!(agent)).collect();
        content.insert("cliAgents".to_owned(), agents.into());
    }
    if !bundle.appliers.is_empty() {
        content.insert("appliers".to_owned(), json!(bundle.appliers));
    }
    if !bundle.undecided_permissions.is_empty() {
        let undecided = json!(bundle.undecided_permissions);
        content.insert("undecidedPermissions".to_owned(), undecided);
    }
    if !bundle.notify.is_empty() {
        content.insert("notify".to_owned(), json!(bundle.notify));
    }
    if !bundle.idle_swarms.is_empty() {
        content.insert("swarm".to_owned(), json!(bundle.swarm));
        content.insert("idleSwarms".to_owned(), json!(bundle.idle_swarms));
    }
}

/// The paths that each agent may change by applying proposals; several rules add up.
fn appliers_of(
    membership: &Membership,
    resources: &Resources,
    report: &mut ProblemReport,
) -> BTreeMap<AgentName, Vec<String>> {
    let mut appliers: BTreeMap<AgentName, Vec<String>> = BTreeMap::new();
    for rule in &membership.policy.appliers {
        if membership.check(&rule.agent, resources, report).is_some()
            && let Ok(agent) = AgentName::new(&rule.agent.name)
        {
            appliers
                .entry(agent)
                .or_default()
                .extend(rule.paths.iter().cloned());
        }
    }
    appliers
}

/// The budgets, checked against what models cost.
fn kept_budgets(
    swarm: Option<&LocatedValue<SwarmSpec>>,
    membership: &Membership,
    agents: &BTreeMap<AgentName, AgentDefinition>,
    resources: &Resources,
    report: &mut ProblemReport,
) -> Vec<Budget> {
    let budgets = budgets_of(swarm, membership, resources);
    for budget in &budgets {
        check_prices(budget, agents, resources, report);
    }
    let budgets = budgets.into_iter().map(|budget| budget.value.clone());
    budgets.collect()
}

/// The budgets of the swarm, then those of its agents.
fn budgets_of<'r>(
    swarm: Option<&'r LocatedValue<SwarmSpec>>,
    membership: &Membership,
    resources: &'r Resources,
) -> Vec<&'r LocatedValue<Budget>> {
    let of_swarm = swarm.into_iter().flat_map(|swarm| &swarm.value.budgets);
    let agents = resources.agents.iter().map(|agent| &agent.value);
    let agents = agents.map(|agent| (&agent.name, &agent.budgets));
    let programs = resources.cli_agents.iter().map(|agent| &agent.value);
    let programs = programs.map(|agent| (&agent.name, &agent.budgets));
    let members = agents.chain(programs);
    let members = members.filter(|(name, _)| membership.members.contains(name.as_str()));
    of_swarm
        .chain(members.flat_map(|(_, budgets)| budgets))
        .collect()
}

/// A budget in money is kept only if it is known what the models cost it is about.
fn check_prices(
    budget: &LocatedValue<Budget>,
    agents: &BTreeMap<AgentName, AgentDefinition>,
    resources: &Resources,
    report: &mut ProblemReport,
) {
    if budget.value.micro_usd.is_none() {
        return;
    }
    let named = budget.value.agent.as_ref();
    let bound = agents.values().filter(|agent| {
        let only = named.filter(|_| budget.value.scope == BudgetScope::Agent);
        only.is_none_or(|only| agent.name == *only)
    });
    let called = bound.flat_map(|agent| agent.model.names());
    let without = called.filter(|name| {
        let hosted = resources.hosted.get(*name);
        hosted.is_some_and(|hosted| hosted.prices.is_empty())
    });
    let without: BTreeSet<&str> = without.map(ResourceName::as_str).collect();
    for model in without {
        let message = format!(
            "this budget has a `cost`, but Model `{model}` has no `prices`, so the cost is unknown"
        );
        report.add(
            Problem::new(codes::INVALID_VALUE, budget.place, message).help(format!(
                "add `prices` to Model `{model}`, or set the budget in `tokens`"
            )),
        );
    }
}
