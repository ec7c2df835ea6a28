//! The kinds of resources: the fields of each `spec`, and the readers of its documents.
//!
//! A reader converts a document to a typed value and reports every problem within it. References to
//! other resources are stored as [`crate::reference::Reference`] for [`crate::bundle`].

pub(crate) mod agent;
pub(crate) mod budgets;
pub(crate) mod builtin_settings;
mod captures;
pub(crate) mod changesets;
pub(crate) mod cli_agent;
pub(crate) mod cli_presets;
mod clouds;
pub(crate) mod connection;
pub(crate) mod connector;
pub(crate) mod extension;
pub(crate) mod fallbacks;
pub(crate) mod inheritance;
pub(crate) mod joins;
mod keyword_lists;
pub(crate) mod model;
pub(crate) mod notify;
pub(crate) mod oauth_app;
pub(crate) mod package;
pub(crate) mod params;
pub(crate) mod permissions;
pub(crate) mod prices;
pub(crate) mod process_limits;
pub(crate) mod proposals;
mod runtime;
pub(crate) mod sandbox;
pub(crate) mod script;
pub(crate) mod settings;
pub(crate) mod swarm;
pub(crate) mod thinking;
pub(crate) mod tool;
pub(crate) mod value;
mod written;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use goondan_packages::PackageName;
use goondan_protocol::base_package::BaseContract;
use goondan_protocol::definition::{ExtensionDefinition, ModelDefinition, ToolDefinition};
use goondan_protocol::ids::{InvalidId, ResourceName};
use goondan_protocol::oauth::OAuthApp;
use goondan_protocol::permissions::Permissions;
use goondan_protocol::secret::SecretStore;

use crate::Package;
use crate::asked_token::TokenRequest;
use crate::bundle::workspace_permissions::PermissionContext;
use crate::codes;
use crate::dependency::Dependency;
use crate::document::Document;
use crate::environment::Variables;
use crate::fields::LocatedValue;
use crate::kind::ResourceKind;
use crate::machine::HostMachine;
use crate::project_files::ProjectFiles;
use crate::reference::Names;
use crate::report::{Problem, ProblemReport, SourceLocation};
use crate::secrets::Secrets;
use crate::shape::FieldType;

/// Inputs and outputs of readers.
pub(crate) struct Context<'a> {
    pub(crate) files: &'a ProjectFiles,
    pub(crate) variables: &'a Variables<'a>,
    pub(crate) store: &'a dyn SecretStore,
    pub(crate) machine: &'a dyn HostMachine,
    pub(crate) secrets: Secrets,
    pub(crate) asked_tokens: Vec<TokenRequest>,
    /// The resource that is being read, such as `Connection/hook`.
    pub(crate) resource: String,
    /// The contract of the project.
    pub(crate) contract: BaseContract,
    pub(crate) report: ProblemReport,
}

/// Turns text into a checked id, or reports why it is none.
pub(crate) fn id<T: FromStr<Err = InvalidId>>(
    text: &LocatedValue<&str>,
    report: &mut ProblemReport,
) -> Option<T> {
    match text.value.parse() {
        Ok(id) => Some(id),
        Err(error) => {
            report.add(Problem::new(
                codes::INVALID_VALUE,
                text.place,
                error.to_string(),
            ));
            None
        }
    }
}

/// Reads a text file that a field names by its path within the project. Also gives the path.
pub(crate) fn read_named_file(
    path: &LocatedValue<&str>,
    limit: usize,
    cx: &mut Context<'_>,
) -> Option<(PathBuf, String)> {
    let read = ProjectFiles::check_text(path.value)
        .and_then(|clean| Ok((cx.files.read(&clean, limit)?, clean)));
    match read {
        Ok((text, clean)) => Some((clean, text)),
        Err(failure) => {
            cx.report.add(failure.at(path.place));
            None
        }
    }
}

/// Finds the file of an `entry` (`ROOT-5`), and what runs it on this machine.
pub(crate) fn read_entry(entry: &LocatedValue<&str>, cx: &mut Context<'_>) -> Option<PathBuf> {
    let found = ProjectFiles::check_text(entry.value)
        .and_then(|path| cx.files.check_is_file(&path).map(|()| path));
    match found {
        Ok(path) => {
            if let Some(why) = cx.machine.lacks_runtime(&cx.files.place_of(&path)) {
                let message = format!("`{}` {why}", path.display());
                let problem = Problem::new(codes::NO_RUNTIME, entry.place, message);
                cx.report.add(problem.help(why.kind.choices()));
            }
            Some(path)
        }
        Err(failure) => {
            cx.report.add(failure.at(entry.place));
            None
        }
    }
}

/// Reads a document and puts what it defines where [`Resources`] keep it.
type DocumentReader = fn(&Document<'_>, &mut Resources, &mut Context<'_>);

/// All kinds, in display order: the shape of each `spec`, and the reader of its documents.
static KINDS: [(ResourceKind, FieldType, DocumentReader); 9] = [
    (
        ResourceKind::PACKAGE,
        FieldType::Mapping(&package::SPEC),
        |document, all, cx| {
            (all.package, all.dependencies) = package::read(document, &mut cx.report);
        },
    ),
    (
        ResourceKind::MODEL,
        FieldType::Choice(&model::SPEC),
        |document, all, cx| {
            if let Some((model, hosted)) = model::read(document, cx) {
                let hosted = hosted.map(|hosted| (model.name.clone(), hosted));
                all.hosted.extend(hosted);
                all.models.insert(document.name.value.to_owned(), model);
            }
        },
    ),
    (
        ResourceKind::AGENT,
        FieldType::Choice(&agent::SPEC),
        |document, all, cx| match agent::read(document, cx) {
            Some(agent::AgentDocument::Llm(agent)) => {
                all.agents.extend(document.located(Some(*agent)));
            }
            Some(agent::AgentDocument::Cli(agent)) => {
                all.cli_agent_count += 1;
                let agent = agent.map(|agent| *agent);
                all.cli_agents.extend(document.located(agent));
            }
            None => {}
        },
    ),
    (
        ResourceKind::SWARM,
        FieldType::Mapping(&swarm::SPEC),
        |document, all, cx| {
            let swarm = swarm::read(document, cx);
            all.swarms.extend(document.located(swarm));
        },
    ),
    (
        ResourceKind::TOOL,
        FieldType::Choice(&tool::SPEC),
        |document, all, cx| {
            let tool = tool::read(document, cx);
            all.tools.extend(document.named(tool));
        },
    ),
    (
        ResourceKind::EXTENSION,
        FieldType::Choice(&extension::SPEC),
        |document, all, cx| {
            let extension = extension::read(document, cx);
            all.extensions.extend(document.named(extension));
        },
    ),
    (
        ResourceKind::CONNECTOR,
        FieldType::Choice(&connector::SPEC),
        |document, all, cx| {
            let connector = connector::read(document, cx);
            all.connectors.extend(document.named(connector));
        },
    ),
    (
        ResourceKind::CONNECTION,
        FieldType::Mapping(&connection::SPEC),
        |document, all, cx| {
            let connection = connection::read(document, cx);
            all.connections.extend(document.located(connection));
        },
    ),
    (
        ResourceKind::OAUTH_APP,
        FieldType::Mapping(&oauth_app::SPEC),
        |document, all, cx| {
            let app = oauth_app::read(document, cx);
            all.oauth_apps.extend(document.named(app));
        },
    ),
];

/// A package that was found and read.
#[derive(Debug)]
pub(crate) struct ResolvedPackage {
    pub(crate) folder: PathBuf,
    /// Its requested permissions, all of which were granted.
    pub(crate) permissions: Permissions,
    /// True if it is a skill, whose files the model reads.
    pub(crate) is_skill: bool,
}

/// Everything a project defines, read but not yet connected.
///
/// A resource that could not be read is still in `names`, so that references to it are not reported
/// as a second problem; so a missing entry always means a reported problem.
#[derive(Default)]
pub(crate) struct Resources {
    pub(crate) names: Names,
    /// The start of `goondan.yaml`, if it could be read: the location of problems about missing
    /// documents.
    pub(crate) start: Option<SourceLocation>,
    pub(crate) package: Option<Package>,
    /// The packages that it requires, with their places.
    pub(crate) dependencies: Vec<Dependency>,
    /// The packages that were read.
    pub(crate) packages: BTreeMap<PackageName, ResolvedPackage>,
    pub(crate) models: BTreeMap<String, ModelDefinition>,
    /// The models that a provider serves.
    pub(crate) hosted: BTreeMap<ResourceName, model::ModelWithPrices>,
    pub(crate) tools: BTreeMap<String, ToolDefinition>,
    pub(crate) extensions: BTreeMap<String, ExtensionDefinition>,
    pub(crate) connectors: BTreeMap<String, connector::ConnectorSpec>,
    /// With the places of their names, in the order read.
    pub(crate) agents: Vec<LocatedValue<agent::AgentSpec>>,
    /// Number of Agents that are programs, including unreadable ones.
    pub(crate) cli_agent_count: usize,
    pub(crate) cli_agents: Vec<LocatedValue<cli_agent::CliAgentSpec>>,
    pub(crate) swarms: Vec<LocatedValue<swarm::SwarmSpec>>,
    pub(crate) connections: Vec<LocatedValue<connection::ConnectionSpec>>,
    pub(crate) oauth_apps: BTreeMap<String, OAuthApp>,
    pub(crate) asked_tokens: Vec<TokenRequest>,
    /// Number of documents of each kind, including unreadable ones.
    pub(crate) counts: BTreeMap<ResourceKind, usize>,
    /// The contract of `@goondan/base` that it is written for.
    pub(crate) contract: BaseContract,
    /// The environment files that were named.
    pub(crate) env_files: Vec<PathBuf>,
    /// The name of the Swarm to run; `None` for the first one.
    pub(crate) swarm_to_run: Option<ResourceName>,
    /// Decisions of people about permissions of the workspace.
    pub(crate) permissions: PermissionContext,
}

impl Resources {
    /// Adds what a document defines.
    pub(crate) fn read(&mut self, document: &Document<'_>, cx: &mut Context<'_>) {
        let Document { kind, name, .. } = document;
        *self.counts.entry(*kind).or_default() += 1;
        self.names
            .register(*kind, name.value, name.place, &mut cx.report);
        cx.resource = format!("{kind}/{}", name.value);
        if let Some((_, _, read)) = find(*kind) {
            read(document, self, cx);
        }
    }
}

fn find(kind: ResourceKind) -> Option<&'static (ResourceKind, FieldType, DocumentReader)> {
    KINDS.iter().find(|(other, _, _)| *other == kind)
}

/// All kinds, in display order.
pub(crate) fn all() -> impl Iterator<Item = ResourceKind> {
    KINDS.iter().map(|(kind, _, _)| *kind)
}

/// Shape of a kind's `spec`.
pub(crate) fn spec_of(kind: ResourceKind) -> FieldType {
    find(kind).map_or(FieldType::Anything, |(_, spec, _)| *spec)
}
