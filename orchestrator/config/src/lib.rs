//! A project's `goondan.yaml`, loaded into a typed, resolved and validated [`ProjectConfig`] (`ROOT-4`,
//! `ROOT-5`).
//!
//! # From a project to a bundle
//!
//! files → tree of values with locations (`tree`) → documents (`document`) → one typed value for
//! each resource (`kinds`) → resolved references (`bundle`) → [`ProjectConfig`].
//!
//! The fields of a mapping are defined once, as a `Shape` beside its reader. The reader validates
//! against it; the JSON Schemas ([`schema()`]) and the list of effective values ([`effective()`])
//! are generated from it.
//!
//! # Invariants
//!
//! * Loading is a function of the Project Root's files, the [`Environment`], the secrets and the
//!   [`HostMachine`], and changes nothing (`ROOT-2`).
//! * A [`ProjectConfig`] is complete: every reference is resolved, every pattern compiles, and every file
//!   that it names has been read.
//! * Every problem is reported, once and with its location. A consequence of another problem is not
//!   reported.
//! * No message and no displayed line contains a secret (`SEC-2`).
//! * No file content makes loading panic or use more memory than [`limits`] allow.
//!
//! `docs/configuration.md` is the users' reference for everything that is read here.

mod advice;
mod approve;
mod arguments;
mod asked_token;
mod autofix;
mod bundle;
pub mod codes;
mod compat;
mod contract;
mod dependency;
mod diagnostic;
mod digest;
mod document;
mod documents;
mod edit;
mod effective;
mod environment;
mod fields;
mod file_list;
mod frame;
mod import;
mod imports;
mod inherit;
mod kind;
mod kinds;
mod last_good_files;
pub mod limits;
mod load;
mod loader;
mod machine;
mod migrate;
mod misplaced_fields;
mod node;
mod packages;
mod place;
mod project_files;
mod reference;
mod report;
mod schema;
mod secrets;
mod shape;
mod short_form;
mod similar;
mod skill;
mod sources;
mod successor;
mod syntax;
mod tool_connections;
mod tree;
mod unquoted_texts;
mod written;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use goondan_packages::{Registries, Requires};
use goondan_protocol::JsonObject;
use goondan_protocol::definition::connection_starts_programs;
use goondan_protocol::egress::AllowList;
use goondan_protocol::event_header::HeaderTemplate;
use goondan_protocol::event_join::JoinTimeout;
use goondan_protocol::ids::{AgentName, ConnectionName, InstanceKey, ResourceName};
use goondan_protocol::permissions::Permissions;
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::sandbox::{Level, SandboxPolicy};
use goondan_protocol::secret::IDENTITY_VAR;
use goondan_protocol::time::Timestamp;
use serde_json::Value;

use project_files::ProjectFiles;

pub use arguments::check_arguments;
pub use autofix::{AutofixChange, FixedFile};
pub use bundle::ProjectConfig;
pub use bundle::workspace_permissions::{PermissionRequest, PermissionState, is_within_project};
pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use effective::{Origin, Setting, SettingValue};
pub use goondan_connectors::{ApprovalChat, DecisionClass, DecisionKind};
pub use import::{ImportNote, ImportedProject, import};
pub use last_good_files::ProjectSnapshot;
pub use loader::{ExpandedProject, LoadResult, Loader};
pub use machine::{AnyMachine, HostMachine, LocalMachine, OpenBeneathFn, ReadablePathsFn};
pub use migrate::MigratedFile;
pub use schema::{schema, schema_names};
pub use secrets::Secrets;
pub use similar::nearest_name;
pub use skill::SKILL_FILE;
pub use sources::Sources;
pub use written::{is_resource_file, resources_of};

/// Loads and validates the project in `project_root`.
///
/// Reads `goondan.yaml`, the YAML files in `resources/`, the prompts and scripts they name, and
/// `.env.local` and `.env`. Blocks on the file system; every file's size is bounded ([`limits`]).
///
/// # Errors
///
/// Everything that is wrong with the project, not only the first thing.
pub fn load(project_root: &Path, env: &dyn Environment) -> Result<ProjectConfig, Diagnostics> {
    Loader::new(env).load(project_root).bundle
}

/// Like [`load()`], with what is not wrong but hardly meant.
pub fn check(project_root: &Path, env: &dyn Environment) -> ProjectCheck {
    Loader::new(env).check(project_root)
}

/// Returns every effective value of the project in `project_root`, in the order of its files.
///
/// # Errors
///
/// All problems of the project: an invalid project has no effective values.
pub fn effective(project_root: &Path, env: &dyn Environment) -> Result<Vec<Setting>, Diagnostics> {
    Loader::new(env).effective(project_root)
}

/// Mends what can be fixed without a person's judgement: each problem with a [`Diagnostic::fix`] that
/// is gone once the fix is made. Writes nothing.
///
/// # Errors
///
/// The Project Root cannot be opened.
pub fn autofix(project_root: &Path, env: &dyn Environment) -> Result<Vec<FixedFile>, Diagnostics> {
    Loader::new(env).autofix(project_root)
}

#[derive(Debug, Clone, PartialEq)]
pub struct ProjectCheck {
    /// The project, or everything that is wrong with it.
    pub bundle: Result<ProjectConfig, Diagnostics>,
    /// Warnings, ordered by file and line.
    pub warnings: Vec<Diagnostic>,
}

/// The project's package name, which is half of its workspace id (`ROOT-9`). `None` if
/// `goondan.yaml` has no Package document.
///
/// Cheap: reads only `goondan.yaml` and validates only the Package document.
///
/// # Errors
///
/// `goondan.yaml` is unreadable or not valid YAML, or its Package document is invalid.
pub fn package_name(project_root: &Path) -> Result<Option<String>, Diagnostics> {
    let mut report = report::ProblemReport::of(&misplaced_fields::VOCABULARY);
    let files = load::open(project_root, &mut report);
    Ok(load::package(files, report)?.map(|package| package.name))
}

/// The Package document of a project or of a package. `None` if `goondan.yaml` has none.
///
/// Cheap, as [`package_name`].
///
/// # Errors
///
/// As there.
pub fn package_of(root: &Path) -> Result<Option<Package>, Diagnostics> {
    let mut report = report::ProblemReport::of(&misplaced_fields::VOCABULARY);
    let files = load::open(root, &mut report).map(ProjectFiles::of_package);
    load::package(files, report)
}

/// Reads environment variables. Handed in, so that loading is a function of files and environment.
pub trait Environment {
    /// The variable's value; `None` if it is not set or is not Unicode text.
    fn get(&self, name: &str) -> Option<String>;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    /// The identity that opens all secrets must not be used as a value.
    fn get(&self, name: &str) -> Option<String> {
        let is_hidden = name == IDENTITY_VAR;
        std::env::var(name).ok().filter(|_| !is_hidden)
    }
}

/// Retention of unused conversations and processes (`INST-7`): `Swarm.spec.policy.lifecycle`, in
/// milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifecycle {
    /// A conversation expires so long after its last message; `None` keeps it for ever.
    pub ttl_ms: Option<u64>,
    /// An expired conversation is deleted so long after it expired.
    pub gc_grace_ms: u64,
    /// An agent process without work is stopped after so long; the next event starts it again.
    pub idle_ms: u64,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            ttl_ms: None,
            gc_grace_ms: limits::DEFAULT_GC_GRACE_SECONDS * 1_000,
            idle_ms: limits::DEFAULT_IDLE_SECONDS * 1_000,
        }
    }
}

/// Retention and time limits of tasks (`TASK-10`, `CKPT-4`): `Swarm.spec.policy.tasks`, in
/// milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskPolicy {
    /// A task is removed, with a backup, so long after it ended; `None` keeps it for ever.
    pub keep_ms: Option<u64>,
    /// The newest checkpoint of a task is restored for a trial so often; `None` for never.
    pub drill_ms: Option<u64>,
    /// A checkpoint is made so often while a run of a task is under way (`CKPT-5`); `None` for never.
    pub checkpoint_ms: Option<u64>,
}

impl Default for TaskPolicy {
    fn default() -> Self {
        Self {
            keep_ms: Some(limits::DEFAULT_TASK_KEEP_DAYS * limits::DAY_MS),
            drill_ms: None,
            checkpoint_ms: Some(limits::DEFAULT_TASK_CHECKPOINT_SECONDS * 1_000),
        }
    }
}

/// Tool calls that wait for a person (`STEER-3`): `Swarm.spec.policy.approvals`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ApprovalPolicy {
    /// Time after its request when an undecided call is denied, in
    /// milliseconds; `None` lets it wait.
    pub timeout_ms: Option<u64>,
}

impl ApprovalPolicy {
    /// Time at which a call asked about at `asked_at` is denied if it is still undecided.
    #[must_use]
    pub fn denied_at(self, asked_at: Timestamp) -> Option<Timestamp> {
        let timeout_ms = i64::try_from(self.timeout_ms?).unwrap_or(i64::MAX);
        let at = asked_at.as_unix_millis().saturating_add(timeout_ms);
        Some(Timestamp::from_unix_millis(at))
    }
}

/// Rules for changes by agents to their own configuration (`BUNDLE-7`):
/// `Swarm.spec.policy.changesets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangesetPolicy {
    pub prompts: ChangeRule,
    pub tools: ChangeRule,
    pub models: ChangeRule,
}

impl Default for ChangesetPolicy {
    fn default() -> Self {
        Self {
            prompts: ChangeRule::Automatic,
            tools: ChangeRule::Approval,
            models: ChangeRule::Approval,
        }
    }
}

/// Approval that a change needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeRule {
    Automatic,
    /// A person must approve it.
    Approval,
    /// Only a person can make it, in the project's own files.
    Never,
}

impl ChangeRule {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Automatic => "automatic",
            Self::Approval => "approval",
            Self::Never => "never",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name, such as `@goondan/sample-10`.
    pub name: String,
    pub version: Option<String>,
    /// The packages it requires, by name, without the one that is built in.
    pub requires: Requires,
    /// The registries that it names.
    pub registries: Registries,
    /// True if everyone may install it once it is published.
    pub is_public: bool,
    /// Requested permissions beyond those of every module.
    pub permissions: Permissions,
}

/// A Connection document with its connector resolved and environment values filled in.
#[derive(Clone, PartialEq)]
pub struct ConnectionDefinition {
    pub name: ConnectionName,
    /// The connector's name: within `@goondan/base`, as `webhook`, or that of the project's Connector
    /// with an `entry`.
    pub connector: ResourceName,
    /// The program that is the connector, by its path in the Project Root; `None` if it is built in.
    pub entry: Option<PathBuf>,
    /// SHA-256 of that program and its imports, as hex digits: an edited program is a different
    /// connector (`SUP-8`).
    pub entry_digest: Option<String>,
    /// Its settings. May hold values of environment variables.
    pub config: JsonObject,
    /// Its secrets, by name. Never logged (`SEC-2`).
    pub secrets: BTreeMap<String, String>,
    /// Routing rules for its events: tried in order, the first match wins (`IPC-3`). Never empty.
    pub rules: Vec<IngressRule>,
    /// Header of its events for models; `None` for none (`CONN-1`).
    pub header: Option<HeaderTemplate>,
    /// True if events keep what the service sent, for a tool of the agent (`CONN-1`).
    pub keeps_payload: bool,
    /// Resource limits of its process.
    pub limits: ProcessLimits,
    /// Restrictions of the programs that it starts.
    pub sandbox: SandboxPolicy,
    /// Allowed hosts of confined programs, if this is the egress of the workspace; empty for all
    /// others.
    pub egress: Vec<AllowList>,
}

impl ConnectionDefinition {
    /// Confinement level of the programs that it starts; `None` if it starts no programs.
    #[must_use]
    pub fn programs(&self) -> Option<Level> {
        connection_starts_programs(self.entry.is_some(), &self.config)
            .then_some(self.sandbox.require)
    }

    /// Command of the MCP server that it starts, if it starts one.
    #[must_use]
    pub fn server_command(&self) -> Option<Vec<String>> {
        if self.entry.is_some() || self.connector.as_str() != kinds::connection::MCP {
            return None;
        }
        let words = self.config.get("command")?.as_array()?.iter();
        let words = words.map(|word| word.as_str().map(str::to_owned));
        words.collect()
    }

    /// Chat in which it requests approval of tool calls, and the users who may approve; `None`
    /// without approvals. A program of the project never has them (`SEC-6`).
    #[must_use]
    pub fn approvals(&self) -> Option<ApprovalChat> {
        if self.entry.is_some() {
            return None;
        }
        ApprovalChat::of(self.connector.as_str(), &self.config)
    }
}

impl fmt::Debug for ConnectionDefinition {
    /// Shows the names of settings and secrets only: either may have come from the environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionDefinition")
            .field("name", &self.name)
            .field("connector", &self.connector)
            .field("entry", &self.entry)
            .field("config", &self.config.keys().collect::<Vec<_>>())
            .field("secrets", &self.secrets.keys().collect::<Vec<_>>())
            .field("rules", &self.rules)
            .field("header", &self.header)
            .field("keeps_payload", &self.keeps_payload)
            .field("limits", &self.limits)
            .field("sandbox", &self.sandbox)
            .field("egress", &self.egress)
            .finish()
    }
}

/// One rule of a connection: which events it takes, and to which conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct IngressRule {
    /// The event's name; `None` takes every event.
    pub event: Option<String>,
    /// Properties the event must have with equal values.
    pub properties: BTreeMap<String, Value>,
    /// The agent it goes to; `None` is the entry agent. Always one of [`ProjectConfig::agents`].
    pub agent: Option<AgentName>,
    /// The conversation it goes to.
    pub key: KeyRule,
    /// The join whose part the event is.
    pub join: Option<IngressJoin>,
}

/// A join of a rule, and the part that the rule's events are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressJoin {
    pub name: String,
    pub part: String,
    /// The property that distinguishes sets in one conversation.
    pub key_property: Option<String>,
    /// Names of all parts, sorted. At least two.
    pub all: Vec<String>,
    pub timeout_ms: u64,
    pub on_timeout: JoinTimeout,
}

/// Selects the conversation key of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRule {
    /// The event's own `instanceKey`.
    FromEvent {
        /// Put before the key.
        prefix: Option<String>,
    },
    Fixed(InstanceKey),
    /// The value of one of the event's properties.
    Property {
        name: String,
        /// Put before the value.
        prefix: Option<String>,
    },
}
