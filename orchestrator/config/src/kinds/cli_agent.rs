//! An Agent of `runtime.kind: cli`: a program that works for tasks (`TASK-8`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use goondan_protocol::budget::Budget;
use goondan_protocol::ids::AgentName;
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::task::{AgentFormat, PROMPT_PLACE, PromptBy, SESSION_PLACE};

use super::notify::NotifySpec;
use super::process_limits::BYTES_PER_MIB;
use super::{Context, budgets, notify, process_limits, sandbox};
use crate::codes;
use crate::fields::{Fields, Located, text};
use crate::limits::{
    DEFAULT_AGENT_MEMORY_MIB, MAX_COMMAND_WORDS, MAX_ENVIRONMENT_VARIABLES, MAX_TASK_DISK_MIB,
};
use crate::project_files::ProjectFiles;
use crate::report::{Place, Problem};
use crate::shape::{Content, Default, Field, Rule, Shape};

const PLAIN: &str = "plain";
const CLAUDE_STREAM_JSON: &str = "claude-stream-json";
const CODEX_JSON: &str = "codex-json";
const ACP: &str = "acp";
const STDIN: &str = "stdin";
const ARGUMENT: &str = "argument";

/// What a variable must not be called: goondan's own are that.
const OWN_PREFIX: &str = "GOONDAN_";

/// Longest name of a variable, in bytes.
const VARIABLE_NAME_BYTES_MAX: usize = 256;

/// What an Agent's `spec` holds if a program works for it.
pub(crate) static SPEC: Shape = Shape::of(
    "CliAgentSpec",
    "An agent that is a program, and works for tasks.",
    &[
        Field::optional(
            "description",
            Content::Text,
            "What it is for: for people, and for agents that create tasks.",
        ),
        Field::required("runtime", Content::Mapping(&RUNTIME), "The program."),
        budgets::OF_AGENT,
        sandbox::OF_AGENT,
        notify::OF_AGENT,
    ],
);

static RUNTIME: Shape = Shape::of(
    "CliRuntime",
    "The program that works for a task.",
    &[
        super::runtime::RUNTIME_KIND,
        Field::optional(
            "preset",
            Content::Word(&PRESET_NAMES),
            "A program whose command, form of output and way to take a prompt are known.",
        ),
        Field::optional(
            "command",
            Content::List(&Content::Text),
            "The program and its arguments, without a shell. A program with a `/` in it is one of the project, \
             unless it is absolute. `{prompt}` stands for what it is told.",
        ),
        Field::optional(
            "resume",
            Content::List(&Content::Text),
            "The same, to go on with a session, for whose id `{session}` stands.",
        ),
        Field::optional(
            "format",
            Content::Word(&[PLAIN, CLAUDE_STREAM_JSON, CODEX_JSON, ACP]),
            "What it writes.",
        )
        .or(Default::Meaning("`plain`, or that of the preset")),
        Field::optional(
            "prompt",
            Content::Word(&[STDIN, ARGUMENT]),
            "How it is told what to do: on its standard input, or in place of `{prompt}` in its arguments.",
        )
        .or(Default::Meaning("`argument` if `{prompt}` is in the command, else `stdin`")),
        Field::optional(
            "environment",
            Content::Entries(&Content::Text),
            "Variables of its environment. No secrets: those are provided to each task.",
        ),
        Field::optional(
            "guide",
            Content::Path,
            "A directory of the project that each task's `guide` leads to.",
        ),
        Field::optional(
            "limits",
            Content::Mapping(&process_limits::LIMITS),
            "What a run may take at most, with all it starts.",
        ),
        Field::optional(
            "diskMiB",
            Content::Number(1, MAX_TASK_DISK_MIB),
            "Most MiB of a task's work area, its checkpoints and logs among them.",
        )
        .or(Default::Meaning("20480; `gdn task budget` says otherwise for one task")),
    ],
)
.with(&[
    Rule::AnyOf(
        &["preset", "command"],
        "write `preset: claude`, or `command: [program, argument]`",
    ),
    Rule::NotBoth("preset", "command"),
    Rule::NotBoth("preset", "resume"),
    Rule::NotBoth("preset", "format"),
    Rule::NotBoth("preset", "prompt"),
]);

/// A program that is known.
struct Preset {
    command: &'static [&'static str],
    resume: &'static [&'static str],
    format: AgentFormat,
    prompt: PromptBy,
}

const PRESET_NAMES: [&str; 4] = ["claude", "codex", "gemini", "aider"];

/// The presets, in the order of their names.
const PRESETS: [Preset; PRESET_NAMES.len()] = [
    Preset {
        command: &[
            "claude",
            "--print",
            "--verbose",
            "--output-format",
            "stream-json",
            "--input-format",
            "stream-json",
            "--permission-prompt-tool",
            "stdio",
        ],
        resume: &[
            "claude",
            "--print",
            "--verbose",
            "--output-format",
            "stream-json",
            "--input-format",
            "stream-json",
            "--permission-prompt-tool",
            "stdio",
            "--resume",
            SESSION_PLACE,
        ],
        format: AgentFormat::ClaudeStreamJson,
        prompt: PromptBy::Stdin,
    },
    Preset {
        command: &[
            "codex",
            "exec",
            "--json",
            "--skip-git-repo-check",
            "--sandbox",
            "workspace-write",
            "-",
        ],
        resume: &[
            "codex",
            "exec",
            "--json",
            "--skip-git-repo-check",
            "--sandbox",
            "workspace-write",
            "resume",
            SESSION_PLACE,
            "-",
        ],
        format: AgentFormat::CodexJson,
        prompt: PromptBy::Stdin,
    },
    Preset {
        command: &["gemini", "--experimental-acp"],
        resume: &[],
        format: AgentFormat::Acp,
        prompt: PromptBy::Stdin,
    },
    Preset {
        command: &[
            "aider",
            "--yes-always",
            "--no-pretty",
            "--no-stream",
            "--message",
            PROMPT_PLACE,
        ],
        resume: &[],
        format: AgentFormat::Plain,
        prompt: PromptBy::Argument,
    },
];

fn find_preset(name: &str) -> Option<&'static Preset> {
    let place = PRESET_NAMES.iter().position(|known| *known == name)?;
    PRESETS.get(place)
}

/// Such an Agent as written.
#[derive(Debug)]
pub(crate) struct CliAgentSpec {
    pub(crate) name: AgentName,
    pub(crate) description: Option<String>,
    pub(crate) command: Vec<String>,
    pub(crate) resume: Vec<String>,
    pub(crate) format: AgentFormat,
    pub(crate) prompt: PromptBy,
    pub(crate) environment: BTreeMap<String, String>,
    /// Absolute, and a directory of the project.
    pub(crate) guide: Option<Located<PathBuf>>,
    pub(crate) limits: ProcessLimits,
    pub(crate) disk_bytes: Option<u64>,
    /// What its tasks may take.
    pub(crate) budgets: Vec<Located<Budget>>,
    pub(crate) sandbox: sandbox::Written,
    pub(crate) notify: Vec<NotifySpec>,
}

/// Reads the `spec` of such an Agent.
pub(crate) fn read(
    name: Option<AgentName>,
    mut spec: Fields<'_>,
    cx: &mut Context<'_>,
) -> Option<CliAgentSpec> {
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
        environment,
        guide,
        limits,
        disk_bytes,
    } = runtime?;
    let Program {
        command,
        resume,
        format,
        prompt,
    } = program?;
    Some(CliAgentSpec {
        name: name?,
        description,
        command,
        resume,
        format,
        prompt,
        environment,
        guide,
        limits,
        disk_bytes,
        budgets,
        sandbox,
        notify,
    })
}

struct Runtime {
    program: Option<Program>,
    environment: BTreeMap<String, String>,
    guide: Option<Located<PathBuf>>,
    limits: ProcessLimits,
    disk_bytes: Option<u64>,
}

struct Program {
    command: Vec<String>,
    resume: Vec<String>,
    format: AgentFormat,
    prompt: PromptBy,
}

fn read_runtime(mut runtime: Fields<'_>, spec: Place, cx: &mut Context<'_>) -> Runtime {
    runtime.word("kind", &mut cx.report);
    let place_of_program = runtime
        .place_of("command")
        .or(runtime.place_of("preset"))
        .unwrap_or(spec);
    let preset = runtime.word("preset", &mut cx.report);
    let known = preset.and_then(|name| find_preset(name.value));
    let written = read_program(&mut runtime, cx);
    let program = match known {
        None => written,
        Some(known) => {
            let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
            Some(Program {
                command: words(known.command),
                resume: words(known.resume),
                format: known.format,
                prompt: known.prompt,
            })
        }
    };
    if let Some(program) = program.as_ref().and_then(|program| program.command.first()) {
        check_is_there(program, place_of_program, cx);
    }
    let environment = read_environment(&mut runtime, cx);
    let guide = runtime.text("guide", &mut cx.report);
    let guide = guide.and_then(|path| read_guide(&path, cx));
    let limits = process_limits::read(&mut runtime, DEFAULT_AGENT_MEMORY_MIB, cx);
    let disk = runtime.number("diskMiB", &mut cx.report);
    let disk_bytes = disk.map(|mib| mib.saturating_mul(BYTES_PER_MIB));
    runtime.close();
    Runtime {
        program,
        environment,
        guide,
        limits,
        disk_bytes,
    }
}

/// Reads what a preset stands for if it is written out.
fn read_program(runtime: &mut Fields<'_>, cx: &mut Context<'_>) -> Option<Program> {
    let format = runtime.word("format", &mut cx.report);
    let format = match format.map(|word| word.value) {
        Some(CLAUDE_STREAM_JSON) => AgentFormat::ClaudeStreamJson,
        Some(CODEX_JSON) => AgentFormat::CodexJson,
        Some(ACP) => AgentFormat::Acp,
        _ => AgentFormat::Plain,
    };
    let prompt_place = runtime.place_of("prompt");
    let prompt = runtime.word("prompt", &mut cx.report);
    let prompt = prompt.map(|word| match word.value {
        ARGUMENT => PromptBy::Argument,
        _ => PromptBy::Stdin,
    });
    let command_place = runtime.place_of("command");
    let command = read_words("command", runtime, cx);
    let resume_place = runtime.place_of("resume");
    let resume = read_words("resume", runtime, cx);
    let (command, command_place) = (command?, command_place?);
    let named = holds(&command, PROMPT_PLACE);
    let prompt = prompt.unwrap_or(if named {
        PromptBy::Argument
    } else {
        PromptBy::Stdin
    });
    let program = Program {
        command,
        resume: resume.unwrap_or_default(),
        format,
        prompt,
    };
    let places = Places {
        command: command_place,
        resume: resume_place.unwrap_or(command_place),
        prompt: prompt_place.unwrap_or(command_place),
    };
    check_prompt(&program, &places, cx);
    check_session(&program, &places, cx);
    let Program {
        command, resume, ..
    } = program;
    let of_project = |words: Vec<String>| words_of_project(words, cx.files);
    Some(Program {
        command: of_project(command),
        resume: of_project(resume),
        format,
        prompt,
    })
}

/// Where the parts of a program are written.
struct Places {
    command: Place,
    resume: Place,
    prompt: Place,
}

/// Checks that the prompt has its place, and one only.
fn check_prompt(program: &Program, places: &Places, cx: &mut Context<'_>) {
    let resume = &program.resume;
    let is_named = holds(&program.command, PROMPT_PLACE);
    let is_named_to_resume = holds(resume, PROMPT_PLACE);
    let (place, message, help) = match program.prompt {
        PromptBy::Argument if program.format == AgentFormat::Acp => (
            places.prompt,
            "a program of the format `acp` is told its prompt by that protocol, not as an argument",
            "take `{prompt}` out, and write no `prompt`",
        ),
        PromptBy::Argument if !is_named => (
            places.command,
            "`command` does not say where the prompt goes, which is to be an argument",
            "put `{prompt}` where the prompt stands, or write `prompt: stdin`",
        ),
        PromptBy::Argument if !resume.is_empty() && !is_named_to_resume => (
            places.resume,
            "`resume` does not say where the prompt goes, which is an argument",
            "put `{prompt}` where the prompt stands",
        ),
        PromptBy::Stdin if is_named || is_named_to_resume => (
            places.prompt,
            "the prompt is to come on the standard input, and `{prompt}` is an argument",
            "take `{prompt}` out, or write `prompt: argument`",
        ),
        PromptBy::Argument | PromptBy::Stdin => return,
    };
    cx.report
        .add(Problem::new(codes::INVALID_VALUE, place, message).help(help));
}

/// Checks that a program that goes on with a session is told which.
fn check_session(program: &Program, places: &Places, cx: &mut Context<'_>) {
    if program.resume.is_empty() {
        return;
    }
    let place = places.resume;
    match program.format {
        AgentFormat::Plain => {
            let message =
                "`resume` has no effect: a program of the format `plain` tells no session";
            let problem = Problem::warning(codes::NO_EFFECT, place, message);
            cx.report
                .add(problem.help("remove it, or name its `format`"));
        }
        AgentFormat::ClaudeStreamJson | AgentFormat::CodexJson
            if !holds(&program.resume, SESSION_PLACE) =>
        {
            let message = "`resume` does not say where the id of the session goes";
            let problem = Problem::new(codes::INVALID_VALUE, place, message);
            cx.report
                .add(problem.help("put `{session}` where it stands"));
        }
        AgentFormat::Acp | AgentFormat::ClaudeStreamJson | AgentFormat::CodexJson => {}
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
            format!("`{name}` names no program"),
            "write the program and its arguments, as `[program, argument]`",
        ),
        words if words.len() > MAX_COMMAND_WORDS => (
            format!(
                "`{name}` has {} words; at most {MAX_COMMAND_WORDS} are allowed",
                words.len()
            ),
            "put the command into a script of the project",
        ),
        [program, ..] if program.value.is_empty() => (
            format!("`{name}` begins with an empty word, which is no program"),
            "write the program first",
        ),
        words if words.iter().any(|word| word.value.contains('\0')) => (
            format!("`{name}` holds a zero byte, which no argument can"),
            "take it out",
        ),
        words => return Some(words.iter().map(|word| word.value.to_owned()).collect()),
    };
    cx.report
        .add(Problem::new(codes::INVALID_VALUE, place, message).help(help));
    None
}

fn check_is_there(program: &str, place: Place, cx: &mut Context<'_>) {
    if !cx.machine.has_program(program, cx.files.root()) {
        let (message, help) = if program.contains('/') {
            (
                format!("`{program}` is no program: it is not there, or cannot be executed"),
                "correct the path, or make the file executable (chmod +x)",
            )
        } else {
            (
                format!("there is no program `{program}` in PATH"),
                "install it, or name the program by its path",
            )
        };
        cx.report
            .add(Problem::new(codes::NO_RUNTIME, place, message).help(help));
    }
}

fn read_environment(runtime: &mut Fields<'_>, cx: &mut Context<'_>) -> BTreeMap<String, String> {
    let label = runtime.label.field("environment");
    let entries = runtime.entries("environment", &mut cx.report);
    let mut environment = BTreeMap::new();
    for entry in entries {
        let Some(value) = text(&entry.node, &label.field(&entry.key), &mut cx.report) else {
            continue;
        };
        let wrong = if !is_variable(&entry.key) {
            Some("is no name of a variable: letters, digits and `_`, not beginning with a digit")
        } else if entry.key.starts_with(OWN_PREFIX) {
            Some("has a name that goondan sets itself")
        } else if value.value.contains('\0') {
            Some("has a value with a zero byte, which no variable can have")
        } else {
            None
        };
        match wrong {
            Some(wrong) => {
                let message = format!("`{}` {wrong}", entry.key);
                cx.report
                    .add(Problem::new(codes::INVALID_VALUE, entry.key_place, message));
            }
            None => {
                environment.insert(entry.key.clone(), value.value.to_owned());
            }
        }
    }
    if let (true, Some(place)) = (
        environment.len() > MAX_ENVIRONMENT_VARIABLES,
        runtime.place_of("environment"),
    ) {
        let message = format!(
            "{label} sets {} variables; at most {MAX_ENVIRONMENT_VARIABLES} are allowed",
            environment.len()
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

fn read_guide(path: &Located<&str>, cx: &mut Context<'_>) -> Option<Located<PathBuf>> {
    let found = ProjectFiles::check_text(path.value)
        .and_then(|clean| cx.files.check_is_directory(&clean).map(|()| clean));
    match found {
        Ok(clean) => Some(Located {
            value: cx.files.place_of(&clean),
            place: path.place,
        }),
        Err(failure) => {
            cx.report.add(failure.at(path.place));
            None
        }
    }
}
