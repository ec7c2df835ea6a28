//! Definitions of child processes, sent in the orchestrator's `welcome`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::JsonObject;
use crate::approval::ApproveRule;
use crate::base_package::{BASE_PACKAGE, BaseContract};
use crate::call_error::CallErrorCode;
use crate::cloud::CloudPlatform;
use crate::egress::{EgressCaller, EgressDoor};
use crate::ids::{
    AgentName, ConnectionName, ExtensionName, InstanceKey, ResourceName, ToolName, WorkspaceId,
};
use crate::limits::{DEFAULT_NO_PROGRESS_STEPS_MAX, DEFAULT_SAME_CALLS_MAX};
use crate::process_limits::ProcessLimits;
use crate::sandbox::{Level, SandboxPolicy};
use crate::script::Script;
use crate::task::AssignedTask;
use crate::working_directory::CwdMode;

/// The built-in tool that runs commands of a model.
const BASH: &str = "bash";

/// The setting of a built-in connector that names a program.
const COMMAND: &str = "command";

/// Everything an agent process works with. It reads no configuration of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentAssignment {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The conversation.
    pub instance_key: InstanceKey,
    /// Definition of the agent.
    pub agent: AgentDefinition,
    /// The directory its tools may write to, and run in unless the agent works elsewhere.
    pub work_dir: PathBuf,
    /// The project it belongs to; its tools may read it.
    pub project_root: PathBuf,
    /// Proxy socket of its programs, if they may reach only some hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_socket: Option<PathBuf>,
    /// Proxy sockets of modules of packages, by [`ModuleSandbox::caller`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub package_sockets: BTreeMap<String, PathBuf>,
    /// Directory of its sandbox, if one was prepared: its tools then work there (`BOX-3`). Only for
    /// an agent that can submit proposals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<PathBuf>,
    /// Directory of its conversation's sandboxes, if it prepares sandboxes for others: its tools
    /// may read them. The directory is created with the first sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<PathBuf>,
    /// Directory of its changesets' working copies, if it may make changesets: its file tools may
    /// write there (`BUNDLE-3`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changesets: Option<PathBuf>,
    /// The task it works for, if it does: then `work_dir` is the work area of that (`TASK-8`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<AssignedTask>,
    /// The node that it runs on, of a workspace that several have (`REP-1`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// One Agent resource with its references resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentDefinition {
    /// Its name.
    pub name: AgentName,
    /// Description for people, and for other agents that look for help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its system prompt, sent to the model with every step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Its model.
    pub model: ModelDefinition,
    /// The tools it may call.
    pub tools: Vec<ToolDefinition>,
    /// Extensions around its turns, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<ExtensionDefinition>,
    /// Most steps of one turn; a turn that needs more fails.
    pub max_steps_per_turn: u32,
    /// Limits that detect a turn without progress, which then fails.
    pub loop_breaker: LoopBreaker,
    /// Working directory of its tools' programs.
    #[serde(default, skip_serializing_if = "CwdMode::is_usual")]
    pub cwd_mode: CwdMode,
    /// Resource limits of its process, including its tools.
    #[serde(default, skip_serializing_if = "ProcessLimits::is_none")]
    pub limits: ProcessLimits,
    /// Absolute paths of files that its file tools never open: the environment files of the
    /// workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_files: Vec<PathBuf>,
    /// Confinement of its tools' and modules' programs, and additional rights.
    pub sandbox: SandboxPolicy,
    /// Confinement of its tools' modules of packages: never with more rights than `sandbox`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub package_sandboxes: Vec<ModuleSandbox>,
    /// Confinement of the process of its extensions' modules, if any of them belongs to a package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension_sandbox: Option<Box<ModuleSandbox>>,
    /// Folders of skills, which its file tools may read as well. Absolute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<PathBuf>,
    /// Contract of its tools and modules.
    #[serde(default, skip_serializing_if = "BaseContract::is_own")]
    pub contract: BaseContract,
    /// Its Swarm, if the contract of its tools and modules includes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm: Option<SwarmView>,
    /// Set if its tools work in the project, by a person's consent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_work: Option<ProjectWork>,
}

/// Work of an agent's tools in the project itself, as under the older contract (`COMPAT-2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProjectWork {
    /// Files of the configuration and of modules, relative to the Project Root. They stay
    /// read-only, because an agent could otherwise give itself more rights.
    pub protected: Vec<PathBuf>,
}

impl ProjectWork {
    /// Other paths that stay read-only if they exist: code that modules import, and code that git
    /// runs as the user.
    pub const ALWAYS_PROTECTED: [&'static str; 4] =
        ["node_modules", "package.json", ".git/config", ".git/hooks"];
}

/// Rights of modules of packages: those granted to the packages, within the rights of their agent's
/// programs (`PKG-3`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModuleSandbox {
    /// The packages: one, unless extensions of several share a process.
    pub packages: Vec<String>,
    /// Absolute paths of the packages' folders.
    pub folders: Vec<PathBuf>,
    /// Their rights.
    pub sandbox: SandboxPolicy,
    /// Names of a task's secrets that they receive.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub secrets: BTreeSet<String>,
}

impl ModuleSandbox {
    /// Their identity for the egress.
    #[must_use]
    pub fn caller(&self, agent: &AgentName) -> EgressCaller {
        EgressCaller::Packages {
            agent: agent.clone(),
            packages: self.packages.clone(),
        }
    }

    /// True if a module, by its absolute path, belongs to these packages.
    #[must_use]
    pub fn holds_for(&self, module: &Path) -> bool {
        let mut folders = self.folders.iter();
        folders.any(|folder| module.starts_with(folder))
    }
}

/// A Swarm, in the form that the older contract of `@goondan/base` gives agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SwarmView {
    /// Its name.
    pub name: ResourceName,
    /// The agent that answers first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_agent: Option<AgentName>,
    /// The agents that take part.
    pub agents: Vec<AgentName>,
    /// The connections, with the names that modules know.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub connections: BTreeMap<ConnectionName, OlderConnection>,
}

/// A connection, in the form that modules of the older contract know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OlderConnection {
    /// The connector's name, which is the name of the source of its events.
    pub connector: String,
    /// Older names of its events, by current name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub events: BTreeMap<String, String>,
    /// True if the keys of its events begin with the connection's name, which therefore is not added
    /// to them.
    #[serde(default)]
    pub keeps_key: bool,
}

impl AgentDefinition {
    /// Confinement level of its programs: commands of `bash`, or modules. `None` if it starts no
    /// programs.
    #[must_use]
    pub fn programs(&self) -> Option<Level> {
        let is_any =
            self.tools.iter().any(ToolDefinition::starts_programs) || self.has_module_extensions();
        is_any.then_some(self.sandbox.require)
    }

    /// Confinements of the modules of packages that it uses.
    pub fn module_sandboxes(&self) -> impl Iterator<Item = &ModuleSandbox> {
        let of_extensions = self.extension_sandbox.as_deref();
        self.package_sandboxes.iter().chain(of_extensions)
    }

    /// True if its extensions include modules of the project.
    #[must_use]
    pub fn has_module_extensions(&self) -> bool {
        let is_module =
            |it: &ExtensionDefinition| matches!(it.source, ExtensionSource::Module { .. });
        self.extensions.iter().any(is_module)
    }

    /// True if it has an export of a built-in tool.
    #[must_use]
    pub fn has_export(&self, tool: &str, export: &str) -> bool {
        self.tools.iter().any(|held| held.grants(tool, export))
    }

    /// True if a tool of the agent may use this connection.
    #[must_use]
    pub fn works_by(&self, connection: &ConnectionName) -> bool {
        let mut tools = self.tools.iter();
        tools.any(|tool| tool.connections.contains(connection))
    }
}

/// Limits that detect a turn without progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoopBreaker {
    /// Maximum number of consecutive steps with the same calls and results.
    pub same_calls_max: u32,
    /// Maximum number of consecutive steps without progress: each of their calls failed, or
    /// returned the same result as an earlier identical call.
    pub no_progress_steps_max: u32,
}

impl Default for LoopBreaker {
    fn default() -> Self {
        Self {
            same_calls_max: DEFAULT_SAME_CALLS_MAX,
            no_progress_steps_max: DEFAULT_NO_PROGRESS_STEPS_MAX,
        }
    }
}

/// One Extension resource with its references resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExtensionDefinition {
    /// Its name: that of its state, and of the messages it makes.
    pub name: ExtensionName,
    /// Implementation of the extension.
    pub source: ExtensionSource,
    /// Its settings.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub config: JsonObject,
}

/// Implementation of an extension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "lowercase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum ExtensionSource {
    /// An extension of a package.
    Builtin {
        /// The package: `@goondan/base`.
        package: String,
        /// The extension's name within it.
        name: ResourceName,
    },
    /// A file of the project in JavaScript or TypeScript.
    Module {
        /// The file's path within the project.
        entry: PathBuf,
        /// SHA-256 of the file and its imports when the configuration was loaded, as for a tool.
        digest: String,
        /// Timeout of a middleware for calling the next one or returning, in milliseconds.
        timeout_ms: u64,
    },
}

/// One Model resource with its references resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelDefinition {
    /// Its name.
    pub name: ResourceName,
    /// The provider's own name of the model, for people to read.
    pub model: String,
    /// Provider of its replies.
    pub provider: ModelProvider,
}

/// Provider of a model's replies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub enum ModelProvider {
    /// The embedded model: it plays a script, needs no network and always answers the same.
    Scripted {
        /// The script.
        script: Script,
    },
    /// A connector process of its own, which the agent reaches by outgoing calls
    /// ([`crate::call`]). It holds the key; the agent does not.
    Connector {
        /// The agent's parameters for each call, which override those of the Model.
        #[serde(default, skip_serializing_if = "ModelParams::is_empty")]
        params: ModelParams,
        /// Fallback models, in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fallbacks: Vec<Fallback>,
    },
}

/// A model that is asked when the one before it cannot answer (`STEER-5`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fallback {
    /// Its name.
    pub name: ResourceName,
    /// The agent's parameters for each call.
    #[serde(default, skip_serializing_if = "ModelParams::is_empty")]
    pub params: ModelParams,
    /// Errors of the previous call for which this fallback is used.
    pub on: Vec<CallErrorCode>,
}

impl Fallback {
    /// Default errors for a fallback. Others are excluded because another model would not help
    /// against an invalid request or an exceeded budget, and an invalid key should be noticed.
    pub const USUAL: [CallErrorCode; 5] = [
        CallErrorCode::RateLimited,
        CallErrorCode::Overloaded,
        CallErrorCode::Unavailable,
        CallErrorCode::TimedOut,
        CallErrorCode::Interrupted,
    ];

    /// All that can be named.
    pub const NAMED: [CallErrorCode; 10] = [
        CallErrorCode::RateLimited,
        CallErrorCode::Overloaded,
        CallErrorCode::Unavailable,
        CallErrorCode::TimedOut,
        CallErrorCode::Interrupted,
        CallErrorCode::Unauthorized,
        CallErrorCode::NotFound,
        CallErrorCode::Refused,
        CallErrorCode::TooLarge,
        CallErrorCode::Internal,
    ];
}

impl ModelDefinition {
    /// The names of all models that may answer, in the order in which they are asked.
    pub fn names(&self) -> impl Iterator<Item = &ResourceName> {
        let fallbacks = match &self.provider {
            ModelProvider::Connector { fallbacks, .. } => fallbacks.as_slice(),
            ModelProvider::Scripted { .. } => &[],
        };
        let others = fallbacks.iter().map(|fallback| &fallback.name);
        std::iter::once(&self.name).chain(others)
    }
}

/// One Tool resource with its references resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolDefinition {
    /// The tool's name: the first half of its exports' full names.
    pub name: ResourceName,
    /// Implementation of the tool.
    pub source: ToolSource,
    /// Exports that the agent has. Empty for all exports, unchanged; a module lists its own
    /// exports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exports: Vec<ToolExport>,
    /// Its settings.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub config: JsonObject,
    /// The connections it may work by, if it is one that does ([`crate::service::SERVICES`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionName>,
    /// Rules for calls that need approval, first match wins; empty for none (`STEER-3`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approve: Vec<ApproveRule>,
    /// Maximum length of an error text for the model, in characters.
    pub error_message_limit: usize,
}

impl ToolDefinition {
    /// True if it is this built-in tool, with this export.
    #[must_use]
    pub fn grants(&self, tool: &str, export: &str) -> bool {
        let ToolSource::Builtin { package, name } = &self.source else {
            return false;
        };
        let has_export = self.exports.is_empty() || self.exports.iter().any(|e| e.name == export);
        package == BASE_PACKAGE && name.as_str() == tool && has_export
    }

    /// True if its calls start programs: commands of `bash`, or a module.
    #[must_use]
    pub fn starts_programs(&self) -> bool {
        match &self.source {
            ToolSource::Builtin { package, name } => {
                package == BASE_PACKAGE && name.as_str() == BASH
            }
            ToolSource::Module { .. } => true,
        }
    }
}

/// Implementation of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "lowercase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum ToolSource {
    /// A tool of a package.
    Builtin {
        /// The package: `@goondan/base`.
        package: String,
        /// The tool's name within it.
        name: ResourceName,
    },
    /// A file of the project, run by its kind ([`crate::module_file`]).
    Module {
        /// The file's path within the project.
        entry: PathBuf,
        /// SHA-256 of the file, and of the files of the project it imports, when the configuration was
        /// loaded: with another content it is another tool. Empty if the configuration is one that was
        /// kept.
        digest: String,
        /// Timeout of a call, in milliseconds.
        timeout_ms: u64,
        /// Resource limits of each process of its host.
        #[serde(default, skip_serializing_if = "ProcessLimits::is_none")]
        limits: ProcessLimits,
    },
}

/// One export of a tool, with the project's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolExport {
    /// The second half of its full name.
    pub name: String,
    /// Description for the model; `None` for the tool's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of its arguments; `None`: that of the tool itself. A module's exports all have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<serde_json::Value>,
    /// True if an interrupted call may be repeated after a crash; `None` for the tool's own
    /// setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
}

/// A tool as a model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogEntry {
    /// The full name: `tool__export`.
    pub name: ToolName,
    /// Its purpose, and when to use it.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: serde_json::Value,
}

/// Everything a connector process works with.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConnectorAssignment {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The connection of this process.
    pub connection: ConnectionName,
    /// The connector within `@goondan/base`, as `webhook`; or its own name, if it is a program.
    pub connector: ResourceName,
    /// The program that is the connector; `None` if it is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ConnectorProgram>,
    /// The Project Root: where a built-in connector runs the programs that its settings name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_root: Option<PathBuf>,
    /// The connection's settings.
    #[serde(default)]
    pub config: JsonObject,
    /// The connection's secrets, by name. Never logged.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
    /// Rights of the programs that it starts.
    #[serde(default, skip_serializing_if = "SandboxPolicy::is_usual")]
    pub sandbox: SandboxPolicy,
    /// Proxy socket of its programs, if they may reach only some hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_socket: Option<PathBuf>,
    /// Directory in which its server's runner keeps downloaded packages, if it may download some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_cache: Option<PathBuf>,
    /// Sockets of the programs that it lets out, if it is the egress; empty for all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<EgressDoor>,
}

impl ConnectorAssignment {
    /// Confinement level of the program that it starts, as its connector or its server. `None` if
    /// it starts no programs.
    #[must_use]
    pub fn programs(&self) -> Option<Level> {
        connection_starts_programs(self.program.is_some(), &self.config)
            .then_some(self.sandbox.require)
    }
}

/// True if the process of a connection starts programs: its connector is a program, or its settings
/// name one.
#[must_use]
pub fn connection_starts_programs(is_program: bool, config: &JsonObject) -> bool {
    is_program || config.contains_key(COMMAND)
}

/// A program of the project that is a connector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConnectorProgram {
    /// The Project Root.
    pub project_root: PathBuf,
    /// The program's path within it.
    pub entry: PathBuf,
}

impl std::fmt::Debug for ConnectorAssignment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectorAssignment")
            .field("workspace_id", &self.workspace_id)
            .field("connection", &self.connection)
            .field("connector", &self.connector)
            .field("program", &self.program)
            .field("project_root", &self.project_root)
            .field("config", &self.config)
            .field("secrets", &self.secrets.keys().collect::<Vec<_>>())
            .finish()
    }
}

/// A model of a provider, as its connector process is given it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostedModel {
    /// The Model resource's name.
    pub name: ResourceName,
    /// Provider, which determines the protocol.
    pub provider: HostedProvider,
    /// API of the provider, if it has several.
    #[serde(default, skip_serializing_if = "OpenAiApi::is_usual")]
    pub api: OpenAiApi,
    /// Cloud platform that serves the model; `None` for the provider, or a server with its
    /// protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<CloudPlatform>,
    /// The provider's own name of the model.
    pub model: String,
    /// URL of the provider; `None` for its default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The key. Never logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// Parameters of each call; an agent's own come before them.
    #[serde(default, skip_serializing_if = "ModelParams::is_empty")]
    pub params: ModelParams,
    /// Timeouts.
    #[serde(default, skip_serializing_if = "ModelTimeouts::is_usual")]
    pub timeouts: ModelTimeouts,
    /// True to mark the start of a request for the provider's cache, if the protocol supports it.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub prompt_caching: bool,
    /// True to send the model's reasoning back as `reasoning_content`; `None` to do so only for
    /// servers that are known to need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_reasoning: Option<bool>,
    /// Additional fields that are put into each request unchanged.
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    pub options: JsonObject,
    /// Resource limits of its process.
    #[serde(default, skip_serializing_if = "ProcessLimits::is_none")]
    pub limits: ProcessLimits,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_yes(is: &bool) -> bool {
    *is
}

/// Parameters of a call to a model. Absent ones are left to the provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelParams {
    /// Sampling temperature: 0 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// From which share of the likely words it chooses: 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// The longest reply, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Texts at which the reply ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Reasoning effort: `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// Makes replies repeatable, as far as the provider goes along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl ModelParams {
    /// True if no parameter is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Fills unset parameters from `others`.
    #[must_use]
    pub fn or(self, others: &Self) -> Self {
        Self {
            temperature: self.temperature.or(others.temperature),
            top_p: self.top_p.or(others.top_p),
            max_tokens: self.max_tokens.or(others.max_tokens),
            stop: if self.stop.is_empty() {
                others.stop.clone()
            } else {
                self.stop
            },
            reasoning_effort: self
                .reasoning_effort
                .or_else(|| others.reasoning_effort.clone()),
            seed: self.seed.or(others.seed),
        }
    }
}

/// Timeouts of a model's connector, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelTimeouts {
    /// For a connection to the provider.
    pub connect_ms: u64,
    /// For the beginning of its answer, once it has the question.
    pub first_byte_ms: u64,
    /// For the next part of its answer.
    pub stall_ms: u64,
    /// Total timeout of the reply, regardless of its progress.
    #[serde(default = "usual_total_ms")]
    pub total_ms: u64,
}

/// The agent gives up after half an hour, tries and queueing included; this is less.
fn usual_total_ms() -> u64 {
    1_500_000
}

impl ModelTimeouts {
    /// True if these are the defaults.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for ModelTimeouts {
    fn default() -> Self {
        Self {
            connect_ms: 10_000,
            first_byte_ms: 300_000,
            stall_ms: 120_000,
            total_ms: usual_total_ms(),
        }
    }
}

impl HostedProvider {
    /// Default URL.
    #[must_use]
    pub fn usual_endpoint(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com/v1",
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Google => "https://generativelanguage.googleapis.com/v1beta",
        }
    }
}

impl HostedModel {
    /// Its URL, up to and including the version.
    #[must_use]
    pub fn address(&self) -> Cow<'_, str> {
        if let Some(endpoint) = &self.endpoint {
            return Cow::Borrowed(endpoint);
        }
        let platform = self.platform.as_ref();
        match platform.and_then(CloudPlatform::usual_endpoint) {
            Some(endpoint) => Cow::Owned(endpoint),
            None => Cow::Borrowed(self.provider.usual_endpoint()),
        }
    }

    /// Host and port of its server; `None` if its URL is invalid.
    #[must_use]
    pub fn server(&self) -> Option<(String, u16)> {
        let address = self.address();
        let (scheme, rest) = address.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next()?;
        let usual_port = if scheme == "http" { 80 } else { 443 };
        // An IPv6 address is in brackets, and contains colons.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            Some(_) | None => (authority, usual_port),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (!host.is_empty()).then(|| (host.to_owned(), port))
    }

    /// Name of the platform that serves it, or else of its provider.
    #[must_use]
    pub fn provider_name(&self) -> &'static str {
        match (&self.platform, self.provider) {
            (Some(CloudPlatform::Azure(_)), _) => "azure",
            (Some(CloudPlatform::Vertex(_)), _) => "vertex",
            (Some(CloudPlatform::Bedrock(_)), _) => "bedrock",
            (None, HostedProvider::Anthropic) => "anthropic",
            (None, HostedProvider::OpenAi) => "openai",
            (None, HostedProvider::Google) => "google",
        }
    }

    /// True if two models share cost and rate limits: the same key at the same URL.
    #[must_use]
    pub fn shares_credential_with(&self, other: &Self) -> bool {
        self.provider == other.provider
            && self.platform == other.platform
            && self.endpoint == other.endpoint
            && self.api_key == other.api_key
    }

    /// True if two models are served at the same URL, so that an outage affects both.
    #[must_use]
    pub fn shares_endpoint_with(&self, other: &Self) -> bool {
        let platform = |model: &Self| {
            let platform = model.platform.as_ref();
            platform.map(CloudPlatform::without_credentials)
        };
        let url = |model: &Self| {
            let url = model.endpoint.as_deref();
            url.map(|url| url.trim_end_matches('/').to_owned())
        };
        self.provider == other.provider
            && url(self) == url(other)
            && platform(self) == platform(other)
    }

    /// The same model without its credentials.
    #[must_use]
    pub fn without_credentials(&self) -> Self {
        let platform = self.platform.as_ref();
        Self {
            api_key: None,
            platform: platform.map(CloudPlatform::without_credentials),
            ..self.clone()
        }
    }
}

impl std::fmt::Debug for HostedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostedModel")
            .field("name", &self.name)
            .field("provider", &self.provider)
            .field("api", &self.api)
            .field("platform", &self.platform)
            .field("model", &self.model)
            .field("endpoint", &self.endpoint)
            .field("api_key", &self.api_key.as_ref().map(|_| "…"))
            .field("params", &self.params)
            .field("timeouts", &self.timeouts)
            .field("prompt_caching", &self.prompt_caching)
            .field("send_reasoning", &self.send_reasoning)
            .field("options", &self.options.keys().collect::<Vec<_>>())
            .field("limits", &self.limits)
            .finish()
    }
}

/// Protocol of a model's connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostedProvider {
    /// Anthropic's Messages API.
    Anthropic,
    /// The APIs of `OpenAI` ([`OpenAiApi`]).
    OpenAi,
    /// Google's Gemini API.
    Google,
}

/// API of the protocol of `OpenAI`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OpenAiApi {
    /// Chat Completions, which many other servers speak too.
    #[default]
    Chat,
    /// Responses.
    Responses,
}

impl OpenAiApi {
    /// True for the default.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// Everything the connector process of a model works with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelAssignment {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The model of this process.
    pub model: HostedModel,
}
