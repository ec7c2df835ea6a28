//! The agents that are programs, and work for tasks (`TASK-8`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use goondan_protocol::ids::AgentName;
use goondan_protocol::oauth::OAuthNeed;
use goondan_protocol::sandbox::{Level, SandboxPath};
use goondan_protocol::service::GITHUB;
use goondan_protocol::task::{CliAgentDefinition, GitCredentials, RepositoryAccess};

use super::members::Membership;
use super::sandboxes::{self, SandboxCheckContext};
use crate::codes;
use crate::fields::LocatedValue;
use crate::kinds::Resources;
use crate::kinds::cli_agent::{CliAgentSpec, TOKEN_USER};
use crate::kinds::cli_presets;
use crate::report::{Problem, ProblemReport};
use crate::tool_connections::{check_secret, is_of};

/// Resolves the members that are programs.
pub(super) fn resolve(
    membership: &Membership,
    resources: &Resources,
    ground: &SandboxCheckContext<'_>,
    report: &mut ProblemReport,
) -> BTreeMap<AgentName, CliAgentDefinition> {
    let mut agents = BTreeMap::new();
    for written in &resources.cli_agents {
        let mut definition = definition_of(&written.value, membership);
        if membership.members.contains(definition.name.as_str()) {
            sandboxes::check_cli_agent(&definition, written, ground, report);
            check_guide(&definition, written, report);
            check_visible(&definition, written, ground, report);
            definition.repository = access_of(&written.value, resources, report);
            agents.insert(definition.name.clone(), definition);
        }
    }
    for written in &resources.cli_agents {
        if agents.contains_key(&written.value.name) {
            check_fallbacks(&written.value, &agents, membership, resources, report);
        }
    }
    agents
}

/// Checks that the agents that continue a task are other programs of the swarm.
fn check_fallbacks(
    written: &CliAgentSpec,
    agents: &BTreeMap<AgentName, CliAgentDefinition>,
    membership: &Membership,
    resources: &Resources,
    report: &mut ProblemReport,
) {
    let mut known = BTreeSet::from([written.name.as_str()]);
    for reference in &written.fallbacks {
        if resources.names.check(reference, report).is_none() {
            continue;
        }
        let name = reference.name.as_str();
        let is_program = agents.keys().any(|agent| agent.as_str() == name);
        let (message, help) = if !known.insert(name) {
            (
                format!("Agent `{name}` already works on these tasks"),
                "remove it from `fallbacks`",
            )
        } else if !is_program && membership.is_complete() {
            (
                format!("Agent `{name}` is not an agent of the swarm with `runtime.kind: cli`"),
                "write an Agent that is a program, and add it to the Swarm's `agents`",
            )
        } else {
            continue;
        };
        let problem = Problem::new(codes::INVALID_VALUE, reference.place, message);
        report.add(problem.help(help));
    }
}

fn definition_of(written: &CliAgentSpec, membership: &Membership) -> CliAgentDefinition {
    let mut sandbox = written.sandbox.within(&membership.policy.sandbox);
    let level = sandbox.require;
    if let Some(login) = written.login.as_ref().filter(|_| level != Level::Off) {
        sandbox.write.push(login.clone());
    }
    let mut environment = cli_presets::environment(level);
    environment.extend(written.environment.clone());
    let fallbacks = written.fallbacks.iter();
    let fallbacks = fallbacks.map(|reference| AgentName::new(&reference.name).ok());
    let (session_model, session_mode) = written.program.session_settings();
    CliAgentDefinition {
        name: written.name.clone(),
        description: written.description.clone(),
        command: written.program.command(level),
        resume: written.program.resume(level),
        format: written.program.format(),
        prompt: written.program.prompt(),
        tools: written.program.tools(),
        preamble: written.preamble.clone(),
        session_model,
        session_mode,
        environment,
        secrets: written.secrets.clone(),
        guide: written.guide.as_ref().map(|guide| guide.value.clone()),
        limits: written.limits,
        disk_bytes: written.disk_bytes,
        source: written.of_project.source.clone(),
        repository: RepositoryAccess::default(),
        deliver: written.of_project.deliver,
        setup: written.of_project.setup.clone(),
        verify: written.of_project.verify.clone(),
        fallbacks: fallbacks.flatten().collect(),
        account: written.account.clone(),
        sandbox,
    }
}

/// Resolves the rights at the repository of an agent's tasks.
fn access_of(
    written: &CliAgentSpec,
    resources: &Resources,
    report: &mut ProblemReport,
) -> RepositoryAccess {
    let own = written.of_project.credentials.clone();
    let none = |credentials| RepositoryAccess {
        connection: None,
        credentials,
    };
    let Some(reference) = &written.of_project.connection else {
        return none(own);
    };
    if resources.names.check(reference, report).is_none() {
        return none(own);
    }
    let mut connections = resources.connections.iter().map(|it| &it.value);
    // An unreadable connection was already reported.
    let Some(connection) = connections.find(|it| it.name.as_str() == reference.name) else {
        return none(own);
    };
    if !is_of(connection, GITHUB.connector, resources) {
        let message = format!(
            "Connection `{}` is not a connection to GitHub",
            connection.name
        );
        let problem = Problem::new(codes::INVALID_VALUE, reference.place, message);
        report.add(problem.help("use a Connection of the connector `github`"));
        return none(own);
    }
    let at = (reference.place, resources);
    check_secret("`source`", &GITHUB, connection, at, report);
    let token = connection.secrets.get("token");
    if let (None, Some(token)) = (&own, token)
        && OAuthNeed::of_placeholder(token).is_some()
    {
        let message = format!(
            "the `token` of Connection `{}` is a token of an authorization server, which git cannot renew",
            connection.name
        );
        let problem = Problem::new(codes::INVALID_VALUE, reference.place, message);
        report.add(problem.help("write a `token` beside `connection`, from a secret"));
    }
    let of_connection = || {
        Some(GitCredentials {
            username: TOKEN_USER.to_owned(),
            token: token?.clone(),
        })
    };
    RepositoryAccess {
        connection: Some(connection.name.clone()),
        credentials: own.or_else(of_connection),
    }
}

/// Reports a program that its own sandbox would hide: no run could start it (`AGENT-6`).
fn check_visible(
    definition: &CliAgentDefinition,
    written: &LocatedValue<CliAgentSpec>,
    ground: &SandboxCheckContext<'_>,
    report: &mut ProblemReport,
) {
    let Some(program) = definition.command.first() else {
        return;
    };
    let hidden = ground
        .machine
        .hidden_program(program, ground.project, &definition.sandbox);
    if let Some(hidden) = hidden {
        let message = format!(
            "the sandbox of Agent `{}` hides its program `{program}`, which is `{}`",
            definition.name,
            hidden.display()
        );
        let directory = package_directory(&hidden);
        let place = written.value.program_place;
        let problem = Problem::new(codes::SANDBOX_PATH, place, message);
        report.add(problem.help(format!(
            "allow it to read the directory where the program is installed: `sandbox: {{read: [{}]}}`",
            directory.display()
        )));
    }
}

/// The directory that holds all of an installed program: that of its packages, if there is one.
fn package_directory(program: &Path) -> &Path {
    let of_packages = program.ancestors().find(|directory| {
        let name = directory.file_name().unwrap_or_default();
        name == "node_modules" || name == "site-packages"
    });
    of_packages.or(program.parent()).unwrap_or(program)
}

/// Checks that the guide is not below a writable path, because such paths are writable with
/// everything below them.
fn check_guide(
    definition: &CliAgentDefinition,
    written: &LocatedValue<CliAgentSpec>,
    report: &mut ProblemReport,
) {
    let Some(guide) = &written.value.guide else {
        return;
    };
    let mut writable = definition.sandbox.write.iter().map(SandboxPath::as_path);
    if let Some(path) = writable.find(|path| guide.value.starts_with(path)) {
        let message = format!(
            "Agent `{}` may write below `{}`, which contains its `guide`; the guide must be read-only",
            definition.name,
            path.display()
        );
        let problem = Problem::new(codes::SANDBOX_PATH, guide.place, message);
        report.add(problem.help("move the guide, or remove the directory from `sandbox.write`"));
    }
}
