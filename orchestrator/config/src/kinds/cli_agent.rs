//! An Agent of `runtime.kind: cli`: a program that works for tasks (`TASK-8`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use goondan_protocol::budget::Budget;
use goondan_protocol::git::RepositoryUrl;
use goondan_protocol::ids::AgentName;
use goondan_protocol::oauth::OAuthNeed;
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::sandbox::{Level, SandboxPath};
use goondan_protocol::task::{
    AgentAccount, AgentFormat, GitCredentials, PROMPT_PLACE, PromptChannel, RepositorySource,
    SESSION_PLACE, SecretVariables, TaskDelivery, TaskSource, ToolsBy,
};

use super::cli_presets::{Choices, PRESET_NAMES, Preset, find_preset};
use super::inheritance::{INHERIT_FIELD, TEMPLATE_FIELD, check_inheritance};
use super::notify::NotifySpec;
use super::process_limits::BYTES_PER_MIB;
use super::{Context, budgets, notify, process_limits, sandbox, value};
use crate::codes;
use crate::fields::{Fields, LocatedValue, WordOr, text};
use crate::kind::ResourceKind;
use crate::limits::{
    DEFAULT_AGENT_MEMORY_MIB, MAX_COMMAND_WORDS, MAX_ENVIRONMENT_VARIABLES, MAX_FALLBACK_AGENTS,
    MAX_PREAMBLE_BYTES, MAX_TASK_DISK_MIB,
};
use crate::project_files::ProjectFiles;
use crate::reference::Reference;
use crate::report::{Problem, SourceLocation};
use crate::shape::{Field, FieldConstraint, FieldDefault, FieldType, Shape};
use crate::tree::YamlValue;

const PLAIN: &str = "plain";
const CLAUDE_STREAM_JSON: &str = "claude-stream-json";
const CODEX_JSON: &str = "codex-json";
const GEMINI_STREAM_JSON: &str = "gemini-stream-json";
const OPENCODE_JSON: &str = "opencode-json";
const AIDER: &str = "aider";
const ACP: &str = "acp";
const STDIN: &str = "stdin";
const ARGUMENT: &str = "argument";
const PROJECT: &str = "project";
const NONE: &str = "none";
const APPLY: &str = "apply";
const PROPOSAL: &str = "proposal";
const BRANCH: &str = "branch";
const PULL_REQUEST: &str = "pull-request";

/// User for a repository's token: GitHub ignores it.
pub(crate) const TOKEN_USER: &str = "x-access-token";

/// Prefix of variable names that are reserved for goondan.
const OWN_PREFIX: &str = "GOONDAN_";

/// Longest name of a variable, in bytes.
const VARIABLE_NAME_BYTES_MAX: usize = 256;

/// Shape of the `spec` of an Agent that is a program.
pub(crate) static SPEC: Shape = Shape::of(
    "CliAgentSpec",
    "An agent that is a program and works on tasks.",
    &[
        Field::optional(
            "description",
            FieldType::Text,
            "The agent's purpose, for people and for agents that create tasks.",
        ),
        INHERIT_FIELD,
        TEMPLATE_FIELD,
        Field::required("runtime", FieldType::Mapping(&RUNTIME), "The program."),
        budgets::OF_AGENT,
        sandbox::OF_AGENT,
        notify::OF_AGENT,
    ],
);

static RUNTIME: Shape = Shape::of(
    "CliRuntime",
    "The program that works on a task.",
    &[
        super::runtime::RUNTIME_KIND,
        Field::optional(
            "preset",
            FieldType::Word(&PRESET_NAMES),
            "A program with a built-in command, output format and way to receive the prompt.",
        ),
        Field::optional(
            "model",
            FieldType::Text,
            "The program's model, by the program's own name. Requires a preset or the format `acp`.",
        ),
        Field::optional(
            "mode",
            FieldType::Text,
            "The program's permission mode, by the program's own name, such as `acceptEdits` or \
             `yolo`. Requires a preset or the format `acp`.",
        ),
        Field::optional(
            "args",
            FieldType::List(&FieldType::Text),
            "Additional arguments for a preset's program.",
        ),
        Field::optional(
            "login",
            FieldType::Text,
            "The directory with the login of a preset's program, such as `~/.claude`. The program \
             may read and change it.",
        ),
        Field::optional(
            "key",
            FieldType::Secret,
            "The provider key of a preset's program.",
        ),
        Field::optional(
            "command",
            FieldType::List(&FieldType::Text),
            "The program and its arguments, run without a shell. A relative program with a `/` is \
             a file of the project. `{prompt}` is replaced by the prompt.",
        ),
        Field::optional(
            "resume",
            FieldType::List(&FieldType::Text),
            "The command that resumes a session. `{session}` is replaced by the session's id.",
        ),
        Field::optional(
            "format",
            FieldType::Word(&[
                PLAIN,
                CLAUDE_STREAM_JSON,
                CODEX_JSON,
                GEMINI_STREAM_JSON,
                OPENCODE_JSON,
                AIDER,
                ACP,
            ]),
            "The format of its output.",
        )
        .or(FieldDefault::Meaning("`plain`, or the preset's format")),
        Field::optional(
            "prompt",
            FieldType::Word(&[STDIN, ARGUMENT]),
            "The way it receives its prompt: on standard input, or in its arguments in place of `{prompt}`.",
        )
        .or(FieldDefault::Meaning("`argument` if `{prompt}` is in the command, else `stdin`")),
        Field::optional(
            "environment",
            FieldType::Variables,
            "Its environment variables: text, or `valueFrom`.",
        ),
        Field::optional(
            "preamble",
            FieldType::Path,
            "A project file that replaces goondan's instructions on how to ask questions and \
             complete a task. The agent gets it after the task's description. `{phases}` is \
             replaced by the number of phases. An empty file adds nothing.",
        ),
        Field::optional(
            "guide",
            FieldType::Path,
            "A project directory to which each task's `guide` links.",
        ),
        Field::optional(
            "limits",
            FieldType::Mapping(&process_limits::LIMITS),
            "Limits of a run, including all processes it starts.",
        ),
        Field::optional(
            "diskMiB",
            FieldType::Number(1, MAX_TASK_DISK_MIB),
            "Maximum size of a task's work area in MiB, including its checkpoints and logs.",
        )
        .or(FieldDefault::Meaning("20480; `gdn task budget` overrides it for one task")),
        Field::optional(
            "source",
            FieldType::WordOr(&[PROJECT, NONE], &REPOSITORY),
            "Files that its tasks work on: a copy of the project in a sandbox, a clone of another git \
             repository, or only the work area.",
        )
        .or(FieldDefault::Meaning("`project` with a `preset`, else `none`; `gdn task new --source` overrides it for one task")),
        Field::optional(
            "deliver",
            FieldType::Word(&[APPLY, BRANCH, PULL_REQUEST, PROPOSAL]),
            "Action on a task's proposal once its last phase is approved: apply it to the project, \
             create a branch in the repository, open a pull request for the branch, or leave it for \
             `gdn proposal apply`.",
        )
        .or(FieldDefault::Meaning("`apply`; with a repository as `source`, `branch`")),
        Field::optional(
            "fallbacks",
            FieldType::List(&FieldType::Reference(ResourceKind::AGENT)),
            "Agents that are programs, and that continue a task, in order, while this agent's usage \
             limit is reached; `gdn task new --fallback` overrides it for one task.",
        ),
        Field::optional(
            "setup",
            FieldType::List(&FieldType::Text),
            "A command, with arguments, that prepares a task's copy of the project once, before the agent starts.",
        ),
        Field::optional(
            "verify",
            FieldType::List(&FieldType::Text),
            "A command, with arguments, that verifies the agent's work, such as the project's tests.",
        ),
    ],
)
.with(&[
    FieldConstraint::AnyOf(
        &["preset", "command"],
        "write `preset: claude`, or `command: [program, argument]`",
    ),
    FieldConstraint::NotBoth("preset", "command"),
    FieldConstraint::NotBoth("preset", "resume"),
    FieldConstraint::NotBoth("preset", "format"),
    FieldConstraint::NotBoth("preset", "prompt"),
    FieldConstraint::NotBoth("command", "args"),
    FieldConstraint::NotBoth("command", "login"),
    FieldConstraint::NotBoth("command", "key"),
]);

static REPOSITORY: Shape = Shape::of(
    "TaskRepository",
    "A git repository that tasks work on.",
    &[
        Field::required(
            "repository",
            FieldType::Text,
            "Its `https` URL, or its path: absolute, or relative to the project.",
        ),
        Field::optional("ref", FieldType::Text, "A branch, a tag or a commit.")
            .or(FieldDefault::Meaning("the repository's default branch")),
        Field::optional(
            "connection",
            FieldType::Reference(ResourceKind::CONNECTION),
            "A Connection of the connector `github`. It opens pull requests, and its `token` reads \
             and pushes.",
        ),
        Field::optional(
            "token",
            FieldType::Secret,
            "The token that reads and pushes, in place of the Connection's.",
        ),
        Field::optional("username", FieldType::Text, "The user of the token.")
            .or(FieldDefault::Text(TOKEN_USER)),
    ],
);

/// An Agent that is a program, as written.
#[derive(Debug)]
pub(crate) struct CliAgentSpec {
    pub(crate) name: AgentName,
    pub(crate) description: Option<String>,
    pub(crate) program: Program,
    /// Location of the program in the file.
    pub(crate) program_place: SourceLocation,
    pub(crate) environment: BTreeMap<String, String>,
    /// Variables whose values are taken from elsewhere, the key among them. Never shown.
    pub(crate) secrets: SecretVariables,
    /// The login directory. The program may change it.
    pub(crate) login: Option<SandboxPath>,
    /// The text of the project on how to work, if it has one.
    pub(crate) preamble: Option<String>,
    /// Absolute, and a directory of the project.
    pub(crate) guide: Option<LocatedValue<PathBuf>>,
    pub(crate) limits: ProcessLimits,
    pub(crate) disk_bytes: Option<u64>,
    pub(crate) of_project: TaskProjectSettings,
    /// Agents that continue its tasks.
    pub(crate) fallbacks: Vec<Reference>,
    pub(crate) account: AgentAccount,
    pub(crate) budgets: Vec<LocatedValue<Budget>>,
    pub(crate) sandbox: sandbox::SandboxSpec,
    pub(crate) notify: Vec<NotifySpec>,
}

/// Reads the `spec` of such an Agent.
pub(crate) fn read(
    name: Option<AgentName>,
    mut spec: Fields<'_>,
    cx: &mut Context<'_>,
) -> Option<CliAgentSpec> {
    check_inheritance(&mut spec, cx);
    let description = spec.text("description", &mut cx.report);
    let description = description.map(|text| text.value.to_owned());
    let place = spec.place;
    let runtime = spec.nested("runtime", &mut cx.report);
    let runtime = runtime.map(|runtime| read_runtime(runtime, place, cx));
    let budgets = budgets::read(&mut spec, name.as_ref(), &mut cx.report);
    let sandbox = sandbox::read(&mut spec, cx);
    let notify = notify::read(&mut spec, cx);
    spec.close();
    let Runtime {
        program,
        program_place,
        environment,
        secrets,
        login,
        preamble,
        guide,
        limits,
        disk_bytes,
        of_project,
        fallbacks,
        account,
    } = runtime?;
    Some(CliAgentSpec {
        name: name?,
        description,
        program: program?,
        program_place,
        environment,
        secrets,
        login,
        preamble,
        guide,
        limits,
        disk_bytes,
        of_project,
        fallbacks,
        account,
        budgets,
        sandbox,
        notify,
    })
}

struct Runtime {
    program: Option<Program>,
    program_place: SourceLocation,
    environment: BTreeMap<String, String>,
    secrets: SecretVariables,
    login: Option<SandboxPath>,
    preamble: Option<String>,
    guide: Option<LocatedValue<PathBuf>>,
    limits: ProcessLimits,
    disk_bytes: Option<u64>,
    of_project: TaskProjectSettings,
    fallbacks: Vec<Reference>,
    account: AgentAccount,
}

/// Settings for the project's files in its tasks.
#[derive(Debug)]
pub(crate) struct TaskProjectSettings {
    pub(crate) source: TaskSource,
    pub(crate) connection: Option<Reference>,
    pub(crate) credentials: Option<GitCredentials>,
    pub(crate) deliver: TaskDelivery,
    pub(crate) setup: Vec<String>,
    pub(crate) verify: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum Program {
    Preset(&'static Preset, Choices),
    Written(CliProgramSpec),
}

/// A program that is written out.
#[derive(Debug)]
pub(crate) struct CliProgramSpec {
    command: Vec<String>,
    resume: Vec<String>,
    format: AgentFormat,
    prompt: PromptChannel,
    model: Option<String>,
    mode: Option<String>,
}

impl Program {
    /// Command that starts a session.
    pub(crate) fn command(&self, level: Level) -> Vec<String> {
        match self {
            Self::Preset(preset, choices) => preset.command(choices, level),
            Self::Written(written) => written.command.clone(),
        }
    }

    /// Command that resumes a session; empty if the program does not support that.
    pub(crate) fn resume(&self, level: Level) -> Vec<String> {
        match self {
            Self::Preset(preset, choices) => preset.resume(choices, level),
            Self::Written(written) => written.resume.clone(),
        }
    }

    pub(crate) fn format(&self) -> AgentFormat {
        match self {
            Self::Preset(preset, _) => preset.format,
            Self::Written(written) => written.format,
        }
    }

    /// Way in which the program receives its prompt.
    pub(crate) fn prompt(&self) -> PromptChannel {
        match self {
            Self::Preset(preset, _) => preset.prompt,
            Self::Written(written) => written.prompt,
        }
    }

    /// Way in which the program is given goondan's tools.
    pub(crate) fn tools(&self) -> ToolsBy {
        match self {
            Self::Preset(preset, _) => preset.tools,
            Self::Written(written) if written.format == AgentFormat::Acp => ToolsBy::AcpSession,
            Self::Written(_) => ToolsBy::Variable,
        }
    }

    /// The model and the mode that it is asked for within its protocol.
    pub(crate) fn session_settings(&self) -> (Option<String>, Option<String>) {
        match self {
            Self::Preset(..) => (None, None),
            Self::Written(written) => (written.model.clone(), written.mode.clone()),
        }
    }
}

fn read_runtime(mut runtime: Fields<'_>, spec: SourceLocation, cx: &mut Context<'_>) -> Runtime {
    runtime.word("kind", &mut cx.report);
    let place_of_program = runtime
        .place_of("command")
        .or(runtime.place_of("preset"))
        .unwrap_or(spec);
    let preset = runtime.word("preset", &mut cx.report);
    let known = preset.and_then(|name| find_preset(name.value));
    let model = read_choice("model", &mut runtime, cx);
    let mode = read_choice("mode", &mut runtime, cx);
    let args = read_args(&mut runtime, cx);
    let choices = Choices { model, mode, args };
    let mut secrets = BTreeMap::new();
    let login = read_login(known, &mut runtime, cx);
    let key = read_key(&mut runtime, cx);
    let mut environment = read_environment(&mut runtime, &mut secrets, cx);
    if let (Some(known), Some(key)) = (known, key) {
        for name in known.key(choices.model.as_deref()) {
            secrets.insert(name.to_owned(), key.clone());
        }
    }
    if let Some(login) = &login
        && let Some((name, directory)) = known.and_then(|known| known.login(login.as_path()))
    {
        let directory = directory.to_string_lossy().into_owned();
        environment.entry(name.to_owned()).or_insert(directory);
    }
    let written = read_program(&mut runtime, &choices, cx);
    let program = match known {
        None => written.map(Program::Written),
        Some(known) => Some(Program::Preset(known, choices)),
    };
    let name = program.as_ref().and_then(|program| match program {
        Program::Preset(known, _) => Some(known.program().to_owned()),
        Program::Written(written) => written.command.first().cloned(),
    });
    if let Some(name) = &name {
        check_is_there(name, place_of_program, cx);
    }
    let account = account_of(name.as_deref(), login.as_ref(), &mut runtime);
    let fallbacks = read_fallbacks(&mut runtime, cx);
    let preamble = runtime.text("preamble", &mut cx.report);
    let preamble = preamble.and_then(|path| read_preamble(&path, cx));
    let guide = runtime.text("guide", &mut cx.report);
    let guide = guide.and_then(|path| read_guide(&path, cx));
    let limits = process_limits::read(&mut runtime, DEFAULT_AGENT_MEMORY_MIB, cx);
    let disk = runtime.number("diskMiB", &mut cx.report);
    let disk_bytes = disk.map(|mib| mib.saturating_mul(BYTES_PER_MIB));
    let of_project = read_of_project(&mut runtime, known.is_some(), cx);
    runtime.close();
    Runtime {
        program,
        program_place: place_of_program,
        environment,
        secrets: SecretVariables(secrets),
        login,
        preamble,
        guide,
        limits,
        disk_bytes,
        of_project,
        fallbacks,
        account,
    }
}

/// The account of a program: its login directory, and the names of its secrets.
fn account_of(
    program: Option<&str>,
    login: Option<&SandboxPath>,
    runtime: &mut Fields<'_>,
) -> AgentAccount {
    let mut secrets: BTreeSet<String> = BTreeSet::new();
    let key = runtime.get("key");
    secrets.extend(key.and_then(|key| source_name(&key.node.value)));
    if let Some(YamlValue::Mapping(variables)) =
        runtime.get("environment").map(|entry| &entry.node.value)
    {
        let names = variables.iter();
        secrets.extend(names.filter_map(|variable| source_name(&variable.node.value)));
    }
    let program = Path::new(program.unwrap_or_default());
    let program = program.file_name().unwrap_or_default();
    AgentAccount {
        program: program.to_string_lossy().into_owned(),
        login: login.map(|login| login.as_path().to_owned()),
        secrets: secrets.into_iter().collect(),
    }
}

/// Name of the secret or variable that a `valueFrom` reads; `None` for a literal value.
fn source_name(value: &YamlValue) -> Option<String> {
    let member = |value: &YamlValue, name: &str| match value {
        YamlValue::Mapping(entries) => {
            let mut entries = entries.iter();
            let found = entries.find(|entry| entry.key == name);
            found.map(|entry| entry.node.value.clone())
        }
        _ => None,
    };
    let text = |value: &YamlValue, name: &str| match member(value, name)? {
        YamlValue::Text(text) => Some(text),
        YamlValue::Mapping(_) => match member(&member(value, name)?, "name")? {
            YamlValue::Text(text) => Some(format!("Secret/{text}")),
            _ => None,
        },
        _ => None,
    };
    let source = member(value, "valueFrom")?;
    if let Some(variable) = text(&source, "env") {
        return Some(variable);
    }
    let secret = member(&source, "secretRef")?;
    let (of, key) = (text(&secret, "ref")?, text(&secret, "key")?);
    Some(format!("{of} {key}"))
}

/// Reads the agents that continue this agent's tasks; unreadable ones are skipped.
fn read_fallbacks(runtime: &mut Fields<'_>, cx: &mut Context<'_>) -> Vec<Reference> {
    let place = runtime.place_of("fallbacks");
    let items = runtime.items("fallbacks", &mut cx.report);
    if let Some(place) = place.filter(|_| items.len() > MAX_FALLBACK_AGENTS) {
        let message = format!(
            "`fallbacks` has {} entries; at most {MAX_FALLBACK_AGENTS} are allowed",
            items.len()
        );
        cx.report
            .add(Problem::new(codes::INVALID_VALUE, place, message).help("remove some"));
    }
    let items = items.into_iter();
    let references = items.filter_map(|(node, label, _)| {
        Reference::read(node, &label, ResourceKind::AGENT, &mut cx.report)
    });
    references.collect()
}

fn read_choice(
    name: &'static str,
    runtime: &mut Fields<'_>,
    cx: &mut Context<'_>,
) -> Option<String> {
    let written = runtime.text(name, &mut cx.report)?;
    let is_word = !written.value.is_empty() && !written.value.starts_with('-');
    if !is_word || written.value.contains('\0') {
        let message = format!(
            "`{name}` is `{}`, which the program would parse as an option",
            written.value
        );
        let problem = Problem::new(codes::INVALID_VALUE, written.place, message);
        cx.report
            .add(problem.help("write a name that the program knows"));
        return None;
    }
    Some(written.value.to_owned())
}

fn read_args(runtime: &mut Fields<'_>, cx: &mut Context<'_>) -> Vec<String> {
    let place = runtime.place_of("args");
    let args = runtime.texts("args", &mut cx.report);
    let is_bad = args.len() > MAX_COMMAND_WORDS || args.iter().any(|arg| arg.value.contains('\0'));
    if let (true, Some(place)) = (is_bad, place) {
        let message =
            format!("`args` has more than {MAX_COMMAND_WORDS} words, or a word with a zero byte");
        cx.report
            .add(Problem::new(codes::INVALID_VALUE, place, message));
    }
    args.iter().map(|arg| arg.value.to_owned()).collect()
}

fn read_key(runtime: &mut Fields<'_>, cx: &mut Context<'_>) -> Option<String> {
    let place = runtime.place_of("key");
    let key = value::read_secret(runtime, "key", cx)?;
    if let (Some(_), Some(place)) = (OAuthNeed::of_placeholder(&key), place) {
        let message =
            "`key` is a token of an authorization server, which a task's program cannot renew";
        let problem = Problem::new(codes::INVALID_VALUE, place, message);
        cx.report
            .add(problem.help("use a secret or an environment variable"));
        return None;
    }
    Some(key)
}

/// Reads the login directory of a program that has one.
fn read_login(
    known: Option<&'static Preset>,
    runtime: &mut Fields<'_>,
    cx: &mut Context<'_>,
) -> Option<SandboxPath> {
    let written = runtime.text("login", &mut cx.report)?;
    let known = known?;
    let found = sandbox::find(written.value, &cx.files.place_of(Path::new("")), cx.machine);
    let found = found.and_then(|path| match known.login(path.as_path()) {
        Some(_) => Ok(path),
        None => Err((
            "cannot be the login directory, because the program has none",
            "set a key: `key: {valueFrom: …}`",
        )),
    });
    match found {
        Ok(path) => Some(path),
        Err((why, help)) => {
            let message = format!("`{}` {why}", written.value);
            let problem = Problem::new(codes::SANDBOX_PATH, written.place, message);
            cx.report.add(problem.help(help));
            None
        }
    }
}

/// A program of a preset is a coding agent: its tasks work on the project.
fn read_of_project(
    runtime: &mut Fields<'_>,
    is_preset: bool,
    cx: &mut Context<'_>,
) -> TaskProjectSettings {
    let (mut connection, mut credentials) = (None, None);
    let source = match runtime.word_or_mapping("source", &mut cx.report) {
        Some(WordOr::Word(word)) if word.value == PROJECT => TaskSource::Project,
        Some(WordOr::Word(_)) => TaskSource::None,
        Some(WordOr::Mapping(mut fields)) => {
            connection = fields.reference("connection", &mut cx.report);
            credentials = read_credentials(&mut fields, cx);
            let source = read_repository(&mut fields, cx);
            fields.close();
            source.map_or(TaskSource::None, TaskSource::Repository)
        }
        None if is_preset => TaskSource::Project,
        None => TaskSource::None,
    };
    let deliver_place = runtime.place_of("deliver");
    let deliver = runtime.word("deliver", &mut cx.report);
    let is_repository = source.repository().is_some();
    let deliver = match deliver.map(|word| word.value) {
        Some(PROPOSAL) => TaskDelivery::Proposal,
        Some(BRANCH) => TaskDelivery::Branch,
        Some(PULL_REQUEST) => TaskDelivery::PullRequest,
        None if is_repository => TaskDelivery::Branch,
        _ => TaskDelivery::Apply,
    };
    if let Some(place) = deliver_place {
        check_delivery(deliver, &source, connection.is_some(), place, cx);
    }
    TaskProjectSettings {
        source,
        connection,
        credentials,
        deliver,
        setup: read_check("setup", runtime, cx),
        verify: read_check("verify", runtime, cx),
    }
}

/// Checks that the source supports the delivery.
fn check_delivery(
    deliver: TaskDelivery,
    source: &TaskSource,
    is_connected: bool,
    place: SourceLocation,
    cx: &mut Context<'_>,
) {
    let repository = source.repository();
    let name = repository.and_then(RepositorySource::url);
    let name = name.as_ref().and_then(RepositoryUrl::owner_and_name);
    let (message, help) = match deliver {
        TaskDelivery::Apply if repository.is_some() => (
            "`apply` changes the project, but `source` is another repository",
            "write `deliver: branch`, `pull-request` or `proposal`",
        ),
        TaskDelivery::PullRequest if !is_connected => (
            "`pull-request` needs a repository with a Connection",
            "write `source: {repository: https://github.com/OWNER/NAME, connection: Connection/NAME}`",
        ),
        TaskDelivery::PullRequest if name.is_none() => (
            "`pull-request` needs a repository on GitHub",
            "write its URL: `repository: https://github.com/OWNER/NAME`",
        ),
        _ => return,
    };
    let problem = Problem::new(codes::INVALID_VALUE, place, message);
    cx.report.add(problem.help(help));
}

fn read_repository(fields: &mut Fields<'_>, cx: &mut Context<'_>) -> Option<RepositorySource> {
    let written = fields.text("repository", &mut cx.report);
    let reference = fields.text("ref", &mut cx.report);
    let written = written?;
    let is_relative = written.value.starts_with("./") || written.value.starts_with("../");
    let repository = match is_relative {
        true => {
            let path = cx.files.place_of(Path::new(written.value));
            path.to_string_lossy().into_owned()
        }
        false => written.value.to_owned(),
    };
    let source = RepositorySource {
        repository,
        reference: reference.map(|reference| reference.value.to_owned()),
    };
    match source.address() {
        Ok(_) => Some(source),
        Err(message) => {
            let problem = Problem::new(codes::INVALID_VALUE, written.place, message);
            cx.report.add(
                problem.help("write `repository: https://HOST/PATH` or a path, and `ref: BRANCH`"),
            );
            None
        }
    }
}

fn read_credentials(fields: &mut Fields<'_>, cx: &mut Context<'_>) -> Option<GitCredentials> {
    let place = fields.place_of("token");
    let token = value::read_secret(fields, "token", cx);
    let username = fields.text("username", &mut cx.report);
    let invalid = |message: &str, place| Problem::new(codes::INVALID_VALUE, place, message);
    if let Some(username) = &username
        && username.value.contains([':', '\n', '\r', '\0'])
    {
        let message = "`username` contains a colon or a control character";
        cx.report.add(invalid(message, username.place));
        return None;
    }
    let (token, place) = (token?, place?);
    if OAuthNeed::of_placeholder(&token).is_some() {
        let message = "`token` is a token of an authorization server, which git cannot renew";
        let problem = invalid(message, place);
        cx.report
            .add(problem.help("use a secret or an environment variable"));
        return None;
    }
    Some(GitCredentials {
        username: username
            .map_or(TOKEN_USER, |username| username.value)
            .to_owned(),
        token,
    })
}

/// A program with a `/` in it is one of the task's copy, which may not be there yet.
fn read_check(name: &'static str, runtime: &mut Fields<'_>, cx: &mut Context<'_>) -> Vec<String> {
    let place = runtime.place_of(name);
    let words = read_words(name, runtime, cx).unwrap_or_default();
    if let (Some(program), Some(place)) = (words.first(), place)
        && !program.contains('/')
    {
        check_is_there(program, place, cx);
    }
    words
}

/// Reads a written-out program, as a preset would define it.
fn read_program(
    runtime: &mut Fields<'_>,
    choices: &Choices,
    cx: &mut Context<'_>,
) -> Option<CliProgramSpec> {
    let format = runtime.word("format", &mut cx.report);
    let format = match format.map(|word| word.value) {
        Some(CLAUDE_STREAM_JSON) => AgentFormat::ClaudeStreamJson,
        Some(CODEX_JSON) => AgentFormat::CodexJson,
        Some(GEMINI_STREAM_JSON) => AgentFormat::GeminiStreamJson,
        Some(OPENCODE_JSON) => AgentFormat::OpencodeJson,
        Some(AIDER) => AgentFormat::Aider,
        Some(ACP) => AgentFormat::Acp,
        _ => AgentFormat::Plain,
    };
    let prompt_place = runtime.place_of("prompt");
    let prompt = runtime.word("prompt", &mut cx.report);
    let prompt = prompt.map(|word| match word.value {
        ARGUMENT => PromptChannel::Argument,
        _ => PromptChannel::Stdin,
    });
    let command_place = runtime.place_of("command");
    let command = read_words("command", runtime, cx);
    let resume_place = runtime.place_of("resume");
    let resume = read_words("resume", runtime, cx);
    let (command, command_place) = (command?, command_place?);
    let named = holds(&command, PROMPT_PLACE);
    let prompt = prompt.unwrap_or(if named {
        PromptChannel::Argument
    } else {
        PromptChannel::Stdin
    });
    // Programs of `acp` load a session within the protocol.
    let resumed = match format {
        AgentFormat::Acp => command.clone(),
        _ => Vec::new(),
    };
    let program = CliProgramSpec {
        command,
        resume: resume.unwrap_or(resumed),
        format,
        prompt,
        model: choices.model.clone(),
        mode: choices.mode.clone(),
    };
    if format != AgentFormat::Acp
        && let Some(name) = [("model", &program.model), ("mode", &program.mode)]
            .into_iter()
            .find_map(|(name, chosen)| chosen.as_ref().map(|_| name))
    {
        let message = format!("`{name}` has no effect with `command`");
        let problem = Problem::warning(codes::NO_EFFECT, command_place, message);
        cx.report.add(problem.help("write it into `command`"));
    }
    let places = CliFieldLocations {
        command: command_place,
        resume: resume_place.unwrap_or(command_place),
        prompt: prompt_place.unwrap_or(command_place),
    };
    check_prompt(&program, &places, cx);
    check_session(&program, &places, cx);
    let of_project = |words: Vec<String>| words_of_project(words, cx.files);
    Some(CliProgramSpec {
        command: of_project(program.command),
        resume: of_project(program.resume),
        ..program
    })
}

/// Locations of a program's parts in the file.
struct CliFieldLocations {
    command: SourceLocation,
    resume: SourceLocation,
    prompt: SourceLocation,
}

/// Checks that the prompt has its place, and one only.
fn check_prompt(program: &CliProgramSpec, places: &CliFieldLocations, cx: &mut Context<'_>) {
    let resume = &program.resume;
    let is_named = holds(&program.command, PROMPT_PLACE);
    let is_named_to_resume = holds(resume, PROMPT_PLACE);
    let (place, message, help) = match program.prompt {
        PromptChannel::Argument if program.format == AgentFormat::Acp => (
            places.prompt,
            "a program of the format `acp` receives its prompt through that protocol, not as an argument",
            "remove `{prompt}` and the field `prompt`",
        ),
        PromptChannel::Argument if !is_named => (
            places.command,
            "`prompt` is `argument`, but `command` does not contain `{prompt}`",
            "add `{prompt}` to `command`, or write `prompt: stdin`",
        ),
        PromptChannel::Argument if !resume.is_empty() && !is_named_to_resume => (
            places.resume,
            "`prompt` is `argument`, but `resume` does not contain `{prompt}`",
            "add `{prompt}` to `resume`",
        ),
        PromptChannel::Stdin if is_named || is_named_to_resume => (
            places.prompt,
            "`prompt` is `stdin`, but `{prompt}` is an argument",
            "remove `{prompt}`, or write `prompt: argument`",
        ),
        PromptChannel::Argument | PromptChannel::Stdin => return,
    };
    cx.report
        .add(Problem::new(codes::INVALID_VALUE, place, message).help(help));
}

/// Checks that the command that resumes a session contains the session id.
fn check_session(program: &CliProgramSpec, places: &CliFieldLocations, cx: &mut Context<'_>) {
    if program.resume.is_empty() {
        return;
    }
    let place = places.resume;
    match program.format {
        AgentFormat::Plain | AgentFormat::Aider => {
            let message = "`resume` has no effect: a program of this format reports no session";
            let problem = Problem::warning(codes::NO_EFFECT, place, message);
            cx.report.add(problem.help("remove it, or set `format`"));
        }
        AgentFormat::Acp => {}
        _ if !holds(&program.resume, SESSION_PLACE) => {
            let message = "`resume` does not contain `{session}`";
            let problem = Problem::new(codes::INVALID_VALUE, place, message);
            cx.report
                .add(problem.help("add `{session}` in place of the session's id"));
        }
        _ => {}
    }
}

fn holds(words: &[String], place: &str) -> bool {
    words.iter().any(|word| word.contains(place))
}

/// A program with a `/` in it is one of the project.
fn words_of_project(mut words: Vec<String>, files: &ProjectFiles) -> Vec<String> {
    if let Some(program) = words.first_mut()
        && program.contains('/')
        && !program.starts_with('/')
    {
        let clean: PathBuf = Path::new(&*program).components().collect();
        let full = files.place_of(clean.strip_prefix("./").unwrap_or(&clean));
        *program = full.to_string_lossy().into_owned();
    }
    words
}

fn read_words(
    name: &'static str,
    runtime: &mut Fields<'_>,
    cx: &mut Context<'_>,
) -> Option<Vec<String>> {
    let place = runtime.place_of(name);
    let is_list = runtime.is_list(name);
    let words = runtime.texts(name, &mut cx.report);
    let place = place.filter(|_| is_list)?;
    let (message, help) = match words.as_slice() {
        [] => (
            format!("`{name}` has no program"),
            "write the program and its arguments: `[program, argument]`",
        ),
        words if words.len() > MAX_COMMAND_WORDS => (
            format!(
                "`{name}` has {} words; at most {MAX_COMMAND_WORDS} are allowed",
                words.len()
            ),
            "move the command into a script of the project",
        ),
        [program, ..] if program.value.is_empty() => (
            format!("`{name}` begins with an empty word; expected a program"),
            "write the program first",
        ),
        words if words.iter().any(|word| word.value.contains('\0')) => {
            (format!("`{name}` contains a zero byte"), "remove it")
        }
        words => return Some(words.iter().map(|word| word.value.to_owned()).collect()),
    };
    cx.report
        .add(Problem::new(codes::INVALID_VALUE, place, message).help(help));
    None
}

fn check_is_there(program: &str, place: SourceLocation, cx: &mut Context<'_>) {
    if !cx.machine.has_program(program, cx.files.root()) {
        let (message, help) = if program.contains('/') {
            (
                format!("the program `{program}` does not exist or is not executable"),
                "correct the path, or make the file executable: `chmod +x FILE`",
            )
        } else {
            (
                format!("no program `{program}` in PATH"),
                "install it, or write the program's path",
            )
        };
        cx.report
            .add(Problem::new(codes::NO_RUNTIME, place, message).help(help));
    }
}

fn read_environment(
    runtime: &mut Fields<'_>,
    secrets: &mut BTreeMap<String, String>,
    cx: &mut Context<'_>,
) -> BTreeMap<String, String> {
    let label = runtime.label.field("environment");
    let entries = runtime.entries("environment", &mut cx.report);
    let mut environment = BTreeMap::new();
    for entry in entries {
        let of_entry = label.field(&entry.key);
        let is_taken = matches!(&entry.node.value, YamlValue::Mapping(_));
        let value = if is_taken {
            value::read_named_secret(entry, of_entry, cx).map(|secret| LocatedValue {
                value: secret,
                place: entry.key_place,
            })
        } else {
            let written = text(&entry.node, &of_entry, &mut cx.report);
            written.map(|written| LocatedValue {
                value: written.value.to_owned(),
                place: written.place,
            })
        };
        let Some(value) = value else {
            continue;
        };
        let wrong = if !is_variable(&entry.key) {
            Some(
                "is not a valid variable name: use letters, digits and `_`, not starting with a digit",
            )
        } else if entry.key.starts_with(OWN_PREFIX) {
            Some("is reserved: goondan sets it")
        } else if value.value.contains('\0') {
            Some("has a value with a zero byte")
        } else if is_taken && OAuthNeed::of_placeholder(&value.value).is_some() {
            Some("is a token of an authorization server, which a task's program cannot renew")
        } else {
            None
        };
        match wrong {
            Some(wrong) => {
                let message = format!("`{}` {wrong}", entry.key);
                cx.report
                    .add(Problem::new(codes::INVALID_VALUE, entry.key_place, message));
            }
            None if is_taken => {
                secrets.insert(entry.key.clone(), value.value);
            }
            None => {
                environment.insert(entry.key.clone(), value.value);
            }
        }
    }
    if let (true, Some(place)) = (
        environment.len() + secrets.len() > MAX_ENVIRONMENT_VARIABLES,
        runtime.place_of("environment"),
    ) {
        let message = format!(
            "{label} sets {} variables; at most {MAX_ENVIRONMENT_VARIABLES} are allowed",
            environment.len() + secrets.len()
        );
        cx.report
            .add(Problem::new(codes::INVALID_VALUE, place, message));
    }
    environment
}

fn is_variable(name: &str) -> bool {
    name.len() <= VARIABLE_NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn read_preamble(path: &LocatedValue<&str>, cx: &mut Context<'_>) -> Option<String> {
    let read = ProjectFiles::check_text(path.value)
        .and_then(|clean| cx.files.read(&clean, MAX_PREAMBLE_BYTES));
    match read {
        Ok(text) => Some(text),
        Err(failure) => {
            cx.report.add(failure.at(path.place));
            None
        }
    }
}

fn read_guide(path: &LocatedValue<&str>, cx: &mut Context<'_>) -> Option<LocatedValue<PathBuf>> {
    let found = ProjectFiles::check_text(path.value)
        .and_then(|clean| cx.files.check_is_directory(&clean).map(|()| clean));
    match found {
        Ok(clean) => Some(LocatedValue {
            value: cx.files.place_of(&clean),
            place: path.place,
        }),
        Err(failure) => {
            cx.report.add(failure.at(path.place));
            None
        }
    }
}
