//! Tools: the actions available to an agent, and their rules.
//!
//! [`Toolbox`] holds the tools of one agent: their catalog for the model, their argument schemas,
//! and the code that runs them. Tool output goes to the model as text. A failing tool produces an
//! error result and never ends the turn.

mod agent;
mod agents;
mod answers;
mod approval;
mod bash;
mod bundle_answers;
mod capture;
pub(crate) mod connection_tools;
mod event;
mod export;
pub(crate) mod extension_tools;
mod fault;
mod file_system;
pub(crate) mod host;
mod invocation;
mod json_query;
pub(crate) mod mcp;
mod module;
mod near_text;
mod older;
mod origin;
pub(crate) mod orphan_reaper;
pub(crate) mod pipe;
mod places;
mod proposal;
mod proposal_review;
mod readable_file;
mod residents;
pub(crate) mod rooted_files;
mod runtimes;
mod sandbox;
mod schedule;
mod schema;
mod search;
mod secret_files;
mod self_restart;
mod session;
mod setup;
pub(crate) mod startup_check;
mod swarm_bundle;
mod tasks;
mod text_transform;
pub(crate) mod tool_search;
pub mod tool_supervisor;
mod wait;
pub(crate) mod work_area;
mod worker_sandbox;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use goondan_protocol::approval::Approve;
use goondan_protocol::base_package::{self, AGENT_TOOL, BASE_PACKAGE, BaseContract, EVENT_TOOL};
use goondan_protocol::definition::{
    AgentAssignment, CatalogEntry, ToolDefinition, ToolExport, ToolSource,
};
use goondan_protocol::ids::{ResourceName, ToolName};
use goondan_protocol::message::{ToolCall, tool_full_name};
use goondan_protocol::sandbox::Level;
use goondan_protocol::service::{Recovery, service_of};
use goondan_protocol::settings;

use crate::tool_call::{CallRejection, ToolOutcome, ToolRules};
use approval::ApprovalRules;
use export::{Export, ExportHandler, Output};
use extension_tools::RegisteredTools;
pub(crate) use fault::ToolFault;
use host::HostProgram;
pub(crate) use invocation::CallSite;
use invocation::ToolInvocation;
use mcp::McpServerHandle;
pub(crate) use mcp::WhileStarting;
pub(crate) use origin::Origin;
use pipe::Surroundings;
pub(crate) use pipe::has_no_sandbox;
use places::ToolRoots;
use schema::ArgumentSchema;
pub use setup::NoDirectory;
pub(crate) use setup::{changesets_of, own_files, runs_of};

/// Longest error text about a tool that is not in the catalog, in characters.
const UNKNOWN_TOOL_ERROR_CHARS: usize = 1_000;

struct Tool {
    /// Index in the catalog, the only place that holds the descriptions for models.
    place: usize,
    is_idempotent: bool,
    recovery: Option<Recovery>,
    starts_programs: bool,
    output: Output,
    run: ExportHandler,
    /// Compiled on the first call, so that an idle agent pays for no schema.
    schema: OnceLock<Result<ArgumentSchema, String>>,
    error_limit_chars: usize,
}

/// Error while an agent's tools are set up.
#[derive(Debug, thiserror::Error)]
pub enum ToolboxError {
    /// The tool is not built in.
    #[error(
        "tool `{tool}`: package `{package}` has no `{builtin}`; `{BASE_PACKAGE}` has {}",
        base_package::tool_names().collect::<Vec<_>>().join(", ")
    )]
    UnknownTool {
        tool: ResourceName,
        /// The builtin it refers to.
        builtin: ResourceName,
        package: String,
    },
    /// The tool's settings are invalid.
    #[error("tool `{tool}`: the settings do not fit `{builtin}`: {problems}")]
    Settings {
        tool: ResourceName,
        /// The builtin it refers to.
        builtin: ResourceName,
        problems: String,
    },
    /// The definition lists an export that the tool does not have.
    #[error("tool `{tool}`: `{builtin}` has no export `{export}`; it has {}", known.join(", "))]
    UnknownExport {
        tool: ResourceName,
        /// The builtin it refers to.
        builtin: ResourceName,
        export: String,
        known: Vec<String>,
    },
    /// Two tools have the same full name, or the name is not valid.
    #[error(
        "tool `{tool}`: `{name}` is already taken or not a valid tool name; choose another name"
    )]
    BadName { tool: ResourceName, name: String },
    /// An approval rule contains an invalid pattern.
    #[error("tool `{tool}`: invalid regular expression in `approve` for `{argument}`: {source}")]
    BadRule {
        tool: ResourceName,
        argument: String,
        #[source]
        source: regex_lite::Error,
    },
    /// A tool has the name of the tool that the extension `tool-search` adds.
    #[error(
        "the extension `tool-search` needs the name `{tool}` for its own tool; rename the other tool"
    )]
    NameOfSearch { tool: String },
    /// A directory of the assignment cannot be opened.
    #[error(transparent)]
    NoDirectory(#[from] NoDirectory),
}

/// The tools of one agent. Cloning shares them.
#[derive(Clone)]
pub struct Toolbox {
    places: Arc<ToolRoots>,
    tools: Arc<BTreeMap<String, Tool>>,
    catalog: Arc<[CatalogEntry]>,
    /// Full name of the search tool.
    search_tool: Option<String>,
    /// Servers that list their tools on request.
    servers: Arc<[Arc<McpServerHandle>]>,
    /// Tools that modules of extensions have registered.
    registered: Arc<RegisteredTools>,
    /// Rules for the calls that need a person.
    approvals: Arc<ApprovalRules>,
}

impl std::fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}

impl Toolbox {
    /// Sets up the tools of an agent. `supervisor` is this crate's binary, which wraps each command
    /// ([`tool_supervisor`]).
    ///
    /// # Errors
    ///
    /// [`ToolboxError`] if a tool is unknown or its directories do not exist.
    pub fn new(assignment: &AgentAssignment, supervisor: PathBuf) -> Result<Self, ToolboxError> {
        let places = setup::places_of(assignment, supervisor)?;
        let mut tools = BTreeMap::new();
        let (mut catalog, mut servers) = (Vec::new(), Vec::new());
        for definition in &assignment.agent.tools {
            check_settings(definition)?;
            if is_mcp(definition) {
                servers.extend(McpServerHandle::all_of(definition).map(Arc::new));
                continue;
            }
            for export in exports_of(definition, assignment)? {
                let bad_name = || ToolboxError::BadName {
                    tool: definition.name.clone(),
                    name: format!("{}__{}", definition.name, export.name),
                };
                let name = tool_full_name(definition.name.as_str(), &export.name)
                    .map_err(|_| bad_name())?;
                if tools.contains_key(name.as_str()) {
                    return Err(bad_name());
                }
                let tool = Tool {
                    place: catalog.len(),
                    is_idempotent: export.is_idempotent,
                    recovery: recovery_of(definition, assignment, &export.name),
                    starts_programs: definition.starts_programs(),
                    output: export.output,
                    run: export.run,
                    schema: OnceLock::new(),
                    error_limit_chars: definition.error_message_limit,
                };
                tools.insert(name.to_string(), tool);
                catalog.push(CatalogEntry {
                    name,
                    description: export.description.into_owned(),
                    parameters: export.parameters,
                });
            }
        }
        let servers: Arc<[Arc<McpServerHandle>]> = servers.into();
        let search = tool_search::settings_of(&assignment.agent);
        let search_tool = search.as_ref().map(|search| search.tool_name.clone());
        let taken = tools.keys().chain(&search_tool).cloned().collect();
        let may_register = assignment.agent.has_module_extensions();
        let registered = Arc::new(RegisteredTools::new(may_register, taken));
        let catalog = match search {
            None => catalog.into(),
            Some(search) => {
                let name = search.tool_name.clone();
                let found = RuntimeToolSources {
                    servers: Arc::clone(&servers),
                    registered: Arc::clone(&registered),
                };
                let (entry, tool) = add_search(catalog, found, search)?;
                tools.insert(name, tool);
                entry
            }
        };
        Ok(Self {
            places: Arc::new(places),
            tools: Arc::new(tools),
            catalog,
            search_tool,
            servers,
            registered,
            approvals: Arc::new(ApprovalRules::of(&assignment.agent.tools)?),
        })
    }

    /// The approval that a call needs before it runs.
    pub(crate) fn approval_of(&self, call: &ToolCall) -> Approve {
        let mut servers = self.servers.iter();
        if servers.any(|server| server.is_wait(&call.tool_name)) {
            return Approve::Always;
        }
        self.approvals.of_call(call)
    }

    /// JSON Schema of a tool's arguments, if the tool is in the catalog.
    pub(crate) fn parameters_of(&self, tool_name: &str) -> Option<serde_json::Value> {
        let catalog = self.catalog();
        let mut catalog = catalog.iter();
        let entry = catalog.find(|entry| entry.name.as_str() == tool_name)?;
        Some(entry.parameters.clone())
    }

    /// The tools as the model sees them.
    #[must_use]
    pub fn catalog(&self) -> Cow<'_, [CatalogEntry]> {
        with_found(&self.catalog, &self.servers, &self.registered)
    }

    /// Tools that modules of extensions have registered.
    pub(crate) fn registered(&self) -> &Arc<RegisteredTools> {
        &self.registered
    }

    /// Confinement level of the programs of a tool; `None` if the tool starts no programs.
    pub(crate) fn sandbox_of(&self, tool_name: &str) -> Option<Level> {
        let tool = self.tools.get(tool_name)?;
        let level = self.surroundings().allowed.policy.require;
        tool.starts_programs.then_some(level)
    }

    /// The MCP servers to ask before a step.
    pub(crate) fn servers(&self) -> &Arc<[Arc<McpServerHandle>]> {
        &self.servers
    }

    /// The server that has this tool, or may have it.
    fn server_of(&self, tool_name: &str) -> Option<&Arc<McpServerHandle>> {
        let servers = self.servers.iter();
        let has = servers.clone().find(|server| server.has(tool_name));
        let mut may_have = servers.filter(|server| server.may_have(tool_name));
        has.or_else(|| {
            let unlisted = may_have.clone().find(|server| !server.is_listed());
            unlisted.or_else(|| may_have.next())
        })
    }

    /// Runs a validated call outside of any turn, so other agents are not reachable. The call is
    /// logged under the current span. Dropping the future ends the tool and every process it
    /// started.
    #[must_use]
    pub fn run(&self, call: &ToolCall) -> BoxFuture<'static, ToolOutcome> {
        self.run_at(call, None)
    }

    /// Runs a validated call. Dropping the future ends the tool and every process it started.
    pub(crate) fn run_at(
        &self,
        call: &ToolCall,
        site: Option<CallSite>,
    ) -> BoxFuture<'static, ToolOutcome> {
        let tool_name = call.tool_name.clone();
        let call = ToolInvocation {
            call_id: call.id.to_string(),
            args: call.input.clone(),
            span: tracing::Span::current(),
            site,
        };
        let call_id = call.call_id.clone();
        let (running, output) = match self.tools.get(&tool_name) {
            Some(tool) => ((tool.run)(Arc::clone(&self.places), call), tool.output),
            None => match self.server_of(&tool_name) {
                Some(server) => (Arc::clone(server).run(tool_name, call), Output::MayBeLong),
                None if self.registered.may_have(&tool_name) => {
                    (self.registered.run(&tool_name, call), Output::MayBeLong)
                }
                None => {
                    let outcome = ToolOutcome::error(self.not_in_catalog(&tool_name).to_string());
                    return Box::pin(std::future::ready(outcome));
                }
            },
        };
        match output {
            Output::BoundedByTool => running,
            Output::MayBeLong => {
                let places = Arc::clone(&self.places);
                Box::pin(async move { shortened(running.await, &places, &call_id) })
            }
        }
    }

    /// Finds a program that can run `script` for modules in JavaScript and TypeScript, each in its
    /// source form and location.
    ///
    /// # Errors
    ///
    /// If no available runtime can run a module.
    pub(crate) async fn host_of_modules(
        &self,
        script: &str,
        entries: &[(PathBuf, PathBuf)],
    ) -> Result<Option<HostProgram>, ToolFault> {
        self.places.runtimes.host_of_all(script, entries).await
    }

    /// Environment in which commands and modules of the project start.
    pub(crate) fn surroundings(&self) -> &Arc<Surroundings> {
        &self.places.surroundings
    }

    /// Environment in which the host of extensions starts.
    pub(crate) fn extension_surroundings(&self) -> &Arc<Surroundings> {
        let own = self.places.of_extensions.as_ref();
        own.unwrap_or(&self.places.surroundings)
    }

    /// Shortens a result that an extension created to the limit of a tool result.
    pub(crate) fn shortened(&self, outcome: ToolOutcome, call_id: &str) -> ToolOutcome {
        shortened(outcome, &self.places, call_id)
    }

    /// Ends every process left over from calls. Must only be called while no call runs. Returns
    /// false if some processes could not be ended.
    #[must_use]
    pub(crate) fn reap_orphans(&self) -> bool {
        orphan_reaper::end_all_but(&self.places.surroundings.residents.pids())
    }

    fn not_in_catalog(&self, tool_name: &str) -> CallRejection {
        if let Some(search) = &self.search_tool {
            return CallRejection::NotInCatalog(format!(
                "`{tool_name}` is not a tool of this agent; search for one with `{search}`"
            ));
        }
        let mut names: Vec<_> = self.tools.keys().map(|name| format!("`{name}`")).collect();
        let offered = self.servers.iter().flat_map(|server| server.entries());
        let offered = offered.chain(self.registered.entries());
        names.extend(offered.map(|entry| format!("`{}`", entry.name)));
        let there_are = if names.is_empty() {
            "the agent has no tools".to_owned()
        } else {
            format!("available: {}", names.join(", "))
        };
        CallRejection::NotInCatalog(format!(
            "`{tool_name}` is not a tool of this agent; {there_are}"
        ))
    }
}

impl ToolRules for Toolbox {
    fn check(&self, call: &ToolCall) -> Result<(), CallRejection> {
        match self.tools.get(&call.tool_name) {
            None => match self.server_of(&call.tool_name) {
                Some(server) => server.check(&call.tool_name, &call.input),
                None if self.registered.may_have(&call.tool_name) => {
                    self.registered.check(&call.tool_name, &call.input)
                }
                None => Err(self.not_in_catalog(&call.tool_name)),
            },
            Some(tool) => {
                let schema = tool
                    .schema
                    .get_or_init(|| match self.catalog.get(tool.place) {
                        Some(entry) => ArgumentSchema::new(&entry.parameters),
                        None => Err("not in the catalog".to_owned()),
                    });
                let checked = match schema {
                    Ok(schema) => schema.check(&call.input),
                    Err(reason) => Err(format!("its schema is invalid: {reason}")),
                };
                checked.map_err(|faults| {
                    CallRejection::InvalidArgs(format!("{}: {faults}", call.tool_name))
                })
            }
        }
    }

    fn is_idempotent(&self, tool_name: &str) -> bool {
        match self.tools.get(tool_name) {
            Some(tool) => tool.is_idempotent,
            None => self
                .server_of(tool_name)
                .is_some_and(|server| server.is_idempotent(tool_name)),
        }
    }

    fn is_recoverable(&self, tool_name: &str) -> bool {
        match self.tools.get(tool_name) {
            Some(tool) => tool.recovery.is_some_and(Recovery::is_automatic),
            // A server that was not listed yet reports later whether its tool may run again.
            None => self
                .server_of(tool_name)
                .is_some_and(|server| !server.is_listed() && server.may_have(tool_name)),
        }
    }

    fn why_unknown(&self, tool_name: &str) -> Option<&'static str> {
        let recovery = self.tools.get(tool_name).and_then(|tool| tool.recovery);
        recovery.and_then(Recovery::why_unknown)
    }

    fn needs_person(&self, call: &ToolCall) -> bool {
        self.approval_of(call).needs_person()
    }

    fn error_limit_chars(&self, tool_name: &str) -> usize {
        let tool = self.tools.get(tool_name).map(|tool| tool.error_limit_chars);
        let server = || Some(self.server_of(tool_name)?.error_limit_chars);
        tool.or_else(server).unwrap_or(UNKNOWN_TOOL_ERROR_CHARS)
    }
}

/// Errors have their own limit ([`ToolRules::error_limit_chars`]).
fn shortened(outcome: ToolOutcome, places: &ToolRoots, call_id: &str) -> ToolOutcome {
    if outcome.is_error {
        return outcome;
    }
    ToolOutcome {
        text: capture::shortened(outcome.text, &places.work, call_id),
        ..outcome
    }
}

/// True if the tool's exports come from MCP servers.
fn is_mcp(definition: &ToolDefinition) -> bool {
    matches!(
        &definition.source,
        ToolSource::Builtin { package, name } if package == BASE_PACKAGE && name.as_str() == "mcp"
    )
}

/// Sources of tools that are discovered at run time.
struct RuntimeToolSources {
    servers: Arc<[Arc<McpServerHandle>]>,
    registered: Arc<RegisteredTools>,
}

/// The known tools together with those that servers and extensions currently offer.
fn with_found<'c>(
    catalog: &'c [CatalogEntry],
    servers: &[Arc<McpServerHandle>],
    registered: &RegisteredTools,
) -> Cow<'c, [CatalogEntry]> {
    let registered = registered.entries();
    if servers.is_empty() && registered.is_empty() {
        return Cow::Borrowed(catalog);
    }
    let mut all = catalog.to_vec();
    let offered = servers.iter().flat_map(|server| server.entries());
    for entry in offered.chain(registered) {
        if all.iter().all(|other| other.name != entry.name) {
            all.push(entry);
        }
    }
    Cow::Owned(all)
}

fn add_search(
    mut catalog: Vec<CatalogEntry>,
    found: RuntimeToolSources,
    search: tool_search::SearchSettings,
) -> Result<(Arc<[CatalogEntry]>, Tool), ToolboxError> {
    let search_tool = search.tool_name.as_str();
    let bad_name = |tool: &str| ToolboxError::NameOfSearch {
        tool: tool.to_owned(),
    };
    if let Some(taken) = catalog.iter().find(|it| it.name.as_str() == search_tool) {
        return Err(bad_name(taken.name.as_str()));
    }
    let place = catalog.len();
    catalog.push(CatalogEntry {
        name: ToolName::new(search_tool).map_err(|_| bad_name(search_tool))?,
        description: tool_search::description().into_owned(),
        parameters: tool_search::parameters(&search),
    });
    let catalog: Arc<[CatalogEntry]> = catalog.into();
    let searched = Arc::clone(&catalog);
    let run: ExportHandler = Box::new(move |_, call| {
        let all = with_found(&searched, &found.servers, &found.registered);
        let outcome = tool_search::run(&call, &all, &search);
        Box::pin(std::future::ready(outcome))
    });
    let tool = Tool {
        place,
        is_idempotent: true,
        recovery: None,
        starts_programs: false,
        output: Output::BoundedByTool,
        run,
        schema: OnceLock::new(),
        error_limit_chars: UNKNOWN_TOOL_ERROR_CHARS,
    };
    Ok((catalog, tool))
}

/// Checks the settings of a built-in tool. A module checks its own settings.
fn check_settings(definition: &ToolDefinition) -> Result<(), ToolboxError> {
    let ToolSource::Builtin { package, name } = &definition.source else {
        return Ok(());
    };
    let settings = settings::of_tool(name.as_str()).filter(|_| package == BASE_PACKAGE);
    let Some(settings) = settings else {
        return Ok(());
    };
    let problems = settings::check(settings, &definition.config);
    if problems.is_empty() {
        return Ok(());
    }
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    Err(ToolboxError::Settings {
        tool: definition.name.clone(),
        builtin: name.clone(),
        problems: problems.join("; "),
    })
}

/// Recovery of an interrupted call of an export, if it acts at a service.
fn recovery_of(
    definition: &ToolDefinition,
    assignment: &AgentAssignment,
    export: &str,
) -> Option<Recovery> {
    match (&definition.source, assignment.agent.contract) {
        (ToolSource::Builtin { package, name }, BaseContract::Own) if package == BASE_PACKAGE => {
            service_of(name.as_str())?.recovery(export)
        }
        (ToolSource::Builtin { .. } | ToolSource::Module { .. }, _) => None,
    }
}

fn exports_of(
    definition: &ToolDefinition,
    assignment: &AgentAssignment,
) -> Result<Vec<Export>, ToolboxError> {
    let project_root = &assignment.project_root;
    let (package, builtin) = match &definition.source {
        ToolSource::Builtin { package, name } => (package, name),
        ToolSource::Module {
            entry,
            timeout_ms,
            limits,
            digest: _,
        } => {
            let module = project_root.join(entry);
            let exports = module::exports(definition, entry, &module, *timeout_ms, *limits);
            return Ok(exports);
        }
    };
    let exports = match (package.as_str(), builtin.as_str()) {
        (BASE_PACKAGE, AGENT_TOOL) => agent::exports(definition)?,
        (BASE_PACKAGE, "agents") => agents::exports(),
        (BASE_PACKAGE, "bash") => bash::exports(),
        (BASE_PACKAGE, EVENT_TOOL) => event::exports(),
        (BASE_PACKAGE, "file-system") => file_system::exports(),
        (BASE_PACKAGE, "json-query") => json_query::exports(),
        (BASE_PACKAGE, "proposal") => proposal::exports(),
        (BASE_PACKAGE, "proposal-review") => proposal_review::exports(),
        (BASE_PACKAGE, "sandbox") => sandbox::exports(),
        (BASE_PACKAGE, "schedule") => schedule::exports(),
        (BASE_PACKAGE, "self-restart") => self_restart::exports(),
        (BASE_PACKAGE, "swarm-bundle") => swarm_bundle::exports(),
        (BASE_PACKAGE, "tasks") => tasks::exports(),
        (BASE_PACKAGE, "text-transform") => text_transform::exports(),
        (BASE_PACKAGE, "wait") => wait::exports(),
        (BASE_PACKAGE, name) if let Some(service) = service_of(name) => {
            connection_tools::exports(service, &definition.connections)
        }
        _ => {
            return Err(ToolboxError::UnknownTool {
                tool: definition.name.clone(),
                builtin: builtin.clone(),
                package: package.clone(),
            });
        }
    };
    let exports = match assignment.agent.contract {
        BaseContract::Own => exports,
        BaseContract::V0_0_3 => {
            older::exports(builtin.as_str(), exports, definition, &assignment.agent)
        }
    };
    if definition.exports.is_empty() {
        return Ok(exports);
    }
    chosen(&definition.name, builtin, &definition.exports, exports)
}

/// Selects the exports that a tool's definition lists, each with the description that the
/// definition gives.
fn chosen(
    tool: &ResourceName,
    builtin: &ResourceName,
    wanted: &[ToolExport],
    mut exports: Vec<Export>,
) -> Result<Vec<Export>, ToolboxError> {
    let known: Vec<String> = exports
        .iter()
        .map(|export| export.name.to_string())
        .collect();
    let mut chosen = Vec::with_capacity(wanted.len());
    for wanted in wanted {
        // A duplicate entry fails here, because the first one removed the export.
        let Some(at) = exports.iter().position(|export| export.name == wanted.name) else {
            return Err(ToolboxError::UnknownExport {
                tool: tool.clone(),
                builtin: builtin.clone(),
                export: wanted.name.clone(),
                known,
            });
        };
        let mut export = exports.swap_remove(at);
        if let Some(description) = &wanted.description {
            export.description = Cow::Owned(description.clone());
        }
        export.is_idempotent = wanted.idempotent.unwrap_or(export.is_idempotent);
        chosen.push(export);
    }
    Ok(chosen)
}
