//! Permissions that a person gives a workspace (`SEC-3`): for projects of the older contract
//! (`COMPAT-2`), and for servers that are downloaded when they start (`PROV-1`).
//!
//! A configuration only requests them. A person's decision covers what the person was shown, so
//! that no file which appears later, for example because an agent wrote it, widens it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use goondan_protocol::base_package::{BASE_PACKAGE, BaseContract};
use goondan_protocol::control::{PermissionDecision, WorkspacePermission};
use goondan_protocol::definition::{AgentDefinition, ProjectWork, ToolDefinition, ToolSource};
use goondan_protocol::ids::{AgentName, ConnectionName};
use goondan_protocol::limits::MAX_PERMISSION_COVERS;
use goondan_protocol::package_runner::{PackageCommand, PackageRegistry};
use goondan_protocol::sandbox::{Level, Network};
use goondan_protocol::settings::FILE_SYSTEM;
use serde_json::Value;

use crate::ConnectionDefinition;
use crate::codes;
use crate::file_list::PROJECT_FILE;
use crate::report::{Problem, ProblemReport, SourceLocation};

/// A permission that a project can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRequest {
    pub permission: WorkspacePermission,
    /// Files of the configuration, relative to the Project Root, names of connections, or commands
    /// of servers.
    pub covers: BTreeSet<String>,
    /// The part of `covers` that no earlier decision allowed.
    pub added: BTreeSet<String>,
    pub state: PermissionState,
}

/// A person's decision about a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionState {
    Allowed,
    Denied,
    /// No decision, or the decision does not cover the whole request.
    Undecided,
}

/// Decisions, and the files that they must cover.
#[derive(Debug, Default)]
pub(crate) struct PermissionContext {
    pub(crate) decisions: Vec<PermissionDecision>,
    /// Files of the project that were read, or one that a link leads to. `None` for stored files,
    /// which were checked when they were read.
    pub(crate) sources: Option<Result<BTreeSet<String>, PathBuf>>,
}

impl PermissionContext {
    fn decision(&self, permission: WorkspacePermission) -> Option<&PermissionDecision> {
        let mut decisions = self.decisions.iter();
        decisions.find(|decision| decision.permission == permission)
    }
}

/// Grants the allowed permissions, and returns all that the project can use.
pub(super) fn grant(
    (agents, connections): (
        &mut BTreeMap<AgentName, AgentDefinition>,
        &mut BTreeMap<ConnectionName, ConnectionDefinition>,
    ),
    (project_root, contract): (&Path, BaseContract),
    (context, start): (&PermissionContext, Option<SourceLocation>),
    report: &mut ProblemReport,
) -> Vec<PermissionRequest> {
    let network = grant_network(connections, contract, context);
    let packages = grant_packages(connections, project_root, context);
    let project = grant_project(agents, (context, start), report);
    project.into_iter().chain(network).chain(packages).collect()
}

fn grant_project(
    agents: &mut BTreeMap<AgentName, AgentDefinition>,
    (context, start): (&PermissionContext, Option<SourceLocation>),
    report: &mut ProblemReport,
) -> Option<PermissionRequest> {
    let decision = context.decision(WorkspacePermission::Project);
    let allowed = decision.filter(|decision| decision.allowed);
    let covers = match (&context.sources, allowed) {
        (None, allowed) => allowed?.covers.clone(),
        (Some(Ok(files)), _) if files.len() <= MAX_PERMISSION_COVERS => files.clone(),
        (Some(Ok(files)), Some(_)) => {
            let count = files.len();
            let why = format!("they are {count} files, and at most {MAX_PERMISSION_COVERS}");
            refuse(&format!("{why} can be protected"), start, report);
            return None;
        }
        (Some(Err(link)), Some(_)) => {
            let why = format!("`{}` is behind a symbolic link", link.display());
            refuse(&why, start, report);
            return None;
        }
        // Nothing was allowed, and what cannot be protected is not requested.
        (Some(_), None) => return None,
    };
    let known = allowed.map(|decision| &decision.covers);
    let is_new = |file: &&String| known.is_none_or(|known| !known.contains(*file));
    let added: BTreeSet<String> = covers.iter().filter(is_new).cloned().collect();
    let mut users: Vec<&mut AgentDefinition> = agents
        .values_mut()
        .filter(|agent| works_in_project(agent))
        .collect();
    let state = match decision {
        None => PermissionState::Undecided,
        Some(decision) if !decision.allowed => PermissionState::Denied,
        Some(_) if added.is_empty() => PermissionState::Allowed,
        Some(_) => {
            let files: Vec<&str> = added.iter().map(String::as_str).collect();
            let why = format!(
                "no person has seen `{}`, which an agent could have written",
                files.join("`, `")
            );
            refuse(&why, start, report);
            PermissionState::Undecided
        }
    };
    let is_outgrown = known.is_some() && !added.is_empty();
    if users.is_empty() && !is_outgrown {
        return None;
    }
    if state == PermissionState::Allowed {
        let protected: Vec<PathBuf> = known.into_iter().flatten().map(PathBuf::from).collect();
        for agent in &mut users {
            agent.project_work = Some(ProjectWork {
                protected: protected.clone(),
            });
        }
    }
    Some(PermissionRequest {
        permission: WorkspacePermission::Project,
        covers,
        added,
        state,
    })
}

/// Refuses a configuration that agents may have changed, because they may write in the project.
fn refuse(why: &str, start: Option<SourceLocation>, report: &mut ProblemReport) {
    let place = start
        .unwrap_or_else(|| SourceLocation::start_of(report.add_file(Path::new(PROJECT_FILE), "")));
    let message = format!("agents may write in the project, but not in its configuration: {why}");
    let help = "check these files, then run `gdn workspace permission allow project`, or withdraw it: \
        `gdn workspace permission deny project`";
    report.add(Problem::new(codes::PERMISSION_OUTGROWN, place, message).help(help));
}

/// True if a tool of the agent uses files under the older contract. Landlock alone cannot protect
/// files in a writable directory, so the permission has no effect there.
fn works_in_project(agent: &AgentDefinition) -> bool {
    let is_file_system = |tool: &ToolDefinition| {
        matches!(&tool.source, ToolSource::Builtin { package, name }
            if package == BASE_PACKAGE && name.as_str() == FILE_SYSTEM)
    };
    let can_protect = match agent.sandbox.require {
        Level::Full | Level::Off => true,
        Level::Landlock | Level::Seatbelt => false,
    };
    !agent.contract.is_own()
        && can_protect
        && (agent.programs().is_some() || agent.tools.iter().any(is_file_system))
}

fn grant_network(
    connections: &mut BTreeMap<ConnectionName, ConnectionDefinition>,
    contract: BaseContract,
    context: &PermissionContext,
) -> Option<PermissionRequest> {
    if contract.is_own() {
        return None;
    }
    let users = connections
        .values_mut()
        .filter(|connection| lacks_network(connection));
    let users: BTreeMap<String, &mut ConnectionDefinition> = users
        .map(|connection| (connection.name.to_string(), connection))
        .collect();
    if users.is_empty() {
        return None;
    }
    let covers = users.keys().cloned().collect();
    let request = decided_in_parts(WorkspacePermission::Network, covers, context);
    let is_allowed = |name: &String| !request.added.contains(name);
    for (_, connection) in users.into_iter().filter(|(name, _)| is_allowed(name)) {
        connection.sandbox.network = Network::Any;
    }
    Some(request)
}

/// Lets servers that are downloaded when they start reach the registry of their packages. Another
/// command needs another decision.
fn grant_packages(
    connections: &mut BTreeMap<ConnectionName, ConnectionDefinition>,
    project_root: &Path,
    context: &PermissionContext,
) -> Option<PermissionRequest> {
    let users = connections.values_mut().filter_map(|connection| {
        let (registry, cover) = wanted_packages(connection, project_root)?;
        Some((cover, (registry, connection)))
    });
    let users: BTreeMap<String, _> = users.collect();
    if users.is_empty() {
        return None;
    }
    let covers = users.keys().cloned().collect();
    let request = decided_in_parts(WorkspacePermission::Packages, covers, context);
    let is_allowed = |cover: &String| !request.added.contains(cover);
    for (_, (registry, connection)) in users.into_iter().filter(|(cover, _)| is_allowed(cover)) {
        let mut hosts = match &connection.sandbox.network {
            Network::Allow(hosts) => hosts.clone(),
            Network::None | Network::Any => Vec::new(),
        };
        hosts.extend(registry.hosts());
        connection.sandbox.network = Network::Allow(hosts);
    }
    Some(request)
}

/// The registry that the server of a connection lacks, and its command. Only separate namespaces
/// can restrict programs to some hosts, so that at other levels a person sets the network.
fn wanted_packages(
    connection: &ConnectionDefinition,
    project_root: &Path,
) -> Option<(PackageRegistry, String)> {
    let command = connection.server_command()?;
    let package = PackageCommand::of(&command)?;
    let registry = package.registry();
    let lacks = match &connection.sandbox.network {
        Network::None => true,
        Network::Any => false,
        Network::Allow(hosts) => !registry.is_within(hosts),
    };
    let env = connection.config.get("env").and_then(Value::as_object);
    let variables = env.into_iter().flatten();
    let variables: Vec<&str> = variables.map(|(name, _)| name.as_str()).collect();
    let is_wanted = lacks
        && connection.sandbox.require == Level::Full
        && !package.names_other_registry(&variables)
        && !package.is_installed_in(project_root, Path::exists);
    is_wanted.then(|| (registry, package.cover(connection.name.as_str())))
}

/// A request whose parts are allowed independently: a decision holds for all that it covers, and
/// what it does not cover needs another one.
fn decided_in_parts(
    permission: WorkspacePermission,
    covers: BTreeSet<String>,
    context: &PermissionContext,
) -> PermissionRequest {
    let decision = context.decision(permission);
    let is_decided = decision.is_some_and(|decision| covers.is_subset(&decision.covers));
    let allowed = decision.filter(|decision| decision.allowed);
    let is_new = |name: &&String| allowed.is_none_or(|allowed| !allowed.covers.contains(*name));
    let added = covers.iter().filter(is_new).cloned().collect();
    PermissionRequest {
        permission,
        covers,
        added,
        state: match (is_decided, allowed) {
            (false, _) => PermissionState::Undecided,
            (true, Some(_)) => PermissionState::Allowed,
            (true, None) => PermissionState::Denied,
        },
    }
}

/// True if the connector is a module of the project without a network. Modules of packages have only
/// what their package was granted.
fn lacks_network(connection: &ConnectionDefinition) -> bool {
    let entry = connection.entry.as_deref();
    entry.is_some_and(Path::is_relative)
        && connection.sandbox.require != Level::Off
        && connection.sandbox.network == Network::None
}

/// True if a path, as written in a decision, is within the project.
#[must_use]
pub fn is_within_project(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    !path.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
}
