//! Programs that are known: how they are started, resumed, given a model, a mode, a login and a key (`AGENT-1`).
//!
//! Flags and variables are those of the versions in `docs/coding-agents.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use goondan_protocol::sandbox::Level;
use goondan_protocol::task::{AgentFormat, PROMPT_PLACE, PromptChannel, SESSION_PLACE, ToolsBy};

/// The names of the presets, in the order of [`PRESETS`].
pub(crate) const PRESET_NAMES: [&str; 6] =
    ["claude", "codex", "gemini", "opencode", "qwen", "aider"];

/// A known program.
#[derive(Debug)]
pub(crate) struct Preset {
    /// The program and its own options.
    head: &'static [&'static str],
    /// Options without other confinement of the program.
    unconfined: &'static [&'static str],
    /// Options where goondan's sandbox confines it: its own sandbox cannot be nested in that.
    confined: &'static [&'static str],
    /// Words at the end of a run that begins a session.
    tail: &'static [&'static str],
    /// Words at the end of a run that resumes one; none if it cannot.
    resume: Option<&'static [&'static str]>,
    pub(crate) format: AgentFormat,
    pub(crate) prompt: PromptChannel,
    pub(crate) tools: ToolsBy,
    model: &'static str,
    mode: &'static str,
    /// True if a mode takes the place of `unconfined` and `confined`.
    is_mode_sandbox: bool,
    login: Option<Login>,
    key: ApiKeySource,
}

/// Configures a program's login directory.
#[derive(Debug)]
struct Login {
    variable: &'static str,
    /// The name of the directory below that which the variable names; empty if it names the directory itself.
    below: &'static str,
}

/// Variables that hold a program's key.
#[derive(Debug)]
enum ApiKeySource {
    Variables(&'static [&'static str]),
    /// The key of the model's provider.
    OfModel,
}

const CLAUDE: [&str; 9] = [
    "claude",
    "--print",
    "--verbose",
    "--output-format",
    "stream-json",
    "--input-format",
    "stream-json",
    "--permission-prompt-tool",
    "stdio",
];

/// The presets, in the order of their names.
static PRESETS: [Preset; PRESET_NAMES.len()] = [
    Preset {
        head: &CLAUDE,
        unconfined: &[],
        confined: &[],
        tail: &[],
        resume: Some(&["--resume", SESSION_PLACE]),
        format: AgentFormat::ClaudeStreamJson,
        prompt: PromptChannel::Stdin,
        tools: ToolsBy::ClaudeArguments,
        model: "--model",
        mode: "--permission-mode",
        is_mode_sandbox: false,
        login: Some(Login {
            variable: "CLAUDE_CONFIG_DIR",
            below: "",
        }),
        key: ApiKeySource::Variables(&["ANTHROPIC_API_KEY"]),
    },
    Preset {
        head: &["codex", "exec", "--json", "--skip-git-repo-check"],
        unconfined: &["--sandbox", "workspace-write"],
        confined: &["--sandbox", "danger-full-access"],
        tail: &["-"],
        resume: Some(&["resume", SESSION_PLACE, "-"]),
        format: AgentFormat::CodexJson,
        prompt: PromptChannel::Stdin,
        tools: ToolsBy::CodexArguments,
        model: "--model",
        mode: "--sandbox",
        is_mode_sandbox: true,
        login: Some(Login {
            variable: "CODEX_HOME",
            below: "",
        }),
        key: ApiKeySource::Variables(&["CODEX_API_KEY", "OPENAI_API_KEY"]),
    },
    Preset {
        head: &["gemini", "--acp", "--skip-trust"],
        unconfined: &[],
        confined: &[],
        tail: &[],
        resume: Some(&[]),
        format: AgentFormat::Acp,
        prompt: PromptChannel::Stdin,
        tools: ToolsBy::AcpSession,
        model: "--model",
        mode: "--approval-mode",
        is_mode_sandbox: false,
        login: Some(Login {
            variable: "GEMINI_CLI_HOME",
            below: ".gemini",
        }),
        key: ApiKeySource::Variables(&["GEMINI_API_KEY"]),
    },
    Preset {
        head: &["opencode", "run", "--format", "json"],
        unconfined: &[],
        confined: &["--auto"],
        tail: &["--", PROMPT_PLACE],
        resume: Some(&["--session", SESSION_PLACE, "--", PROMPT_PLACE]),
        format: AgentFormat::OpencodeJson,
        prompt: PromptChannel::Argument,
        tools: ToolsBy::OpencodeVariable,
        model: "--model",
        mode: "--agent",
        is_mode_sandbox: false,
        login: Some(Login {
            variable: "XDG_DATA_HOME",
            below: "opencode",
        }),
        key: ApiKeySource::OfModel,
    },
    Preset {
        head: &["qwen", "--acp"],
        unconfined: &[],
        confined: &[],
        tail: &[],
        resume: Some(&[]),
        format: AgentFormat::Acp,
        prompt: PromptChannel::Stdin,
        tools: ToolsBy::QwenArguments,
        model: "--model",
        mode: "--approval-mode",
        is_mode_sandbox: false,
        login: Some(Login {
            variable: "QWEN_HOME",
            below: "",
        }),
        key: ApiKeySource::Variables(&["OPENAI_API_KEY"]),
    },
    Preset {
        // Its own files must not be part of a proposal.
        head: &[
            "aider",
            "--yes-always",
            "--no-pretty",
            "--no-stream",
            "--no-gitignore",
            "--input-history-file",
            "/dev/null",
            "--chat-history-file",
            "/dev/null",
        ],
        unconfined: &[],
        confined: &[],
        tail: &["--message", PROMPT_PLACE],
        resume: None,
        format: AgentFormat::Aider,
        prompt: PromptChannel::Argument,
        tools: ToolsBy::Variable,
        model: "--model",
        mode: "--chat-mode",
        is_mode_sandbox: false,
        login: None,
        key: ApiKeySource::OfModel,
    },
];

/// The user's settings for a preset.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choices {
    pub(crate) model: Option<String>,
    pub(crate) mode: Option<String>,
    pub(crate) args: Vec<String>,
}

pub(crate) fn find_preset(name: &str) -> Option<&'static Preset> {
    let place = PRESET_NAMES.iter().position(|known| *known == name)?;
    PRESETS.get(place)
}

impl Preset {
    pub(crate) fn program(&self) -> &'static str {
        self.head.first().copied().unwrap_or_default()
    }

    /// The words of a run that begins a session, at a level of confinement.
    pub(crate) fn command(&self, choices: &Choices, level: Level) -> Vec<String> {
        self.words(choices, level, self.tail)
    }

    /// The words of a run that resumes one; none if the program cannot.
    pub(crate) fn resume(&self, choices: &Choices, level: Level) -> Vec<String> {
        let tail = self.resume.map(|tail| self.words(choices, level, tail));
        tail.unwrap_or_default()
    }

    fn words(&self, choices: &Choices, level: Level, tail: &[&str]) -> Vec<String> {
        let is_confined = level != Level::Off;
        let own: &[&str] = match &choices.mode {
            Some(_) if self.is_mode_sandbox => &[],
            _ if is_confined => self.confined,
            _ => self.unconfined,
        };
        let chosen = [(self.mode, &choices.mode), (self.model, &choices.model)];
        let chosen = chosen.into_iter().filter_map(|(flag, value)| {
            let value = value.as_ref()?;
            Some([flag.to_owned(), value.clone()])
        });
        let owned = |words: &[&str]| -> Vec<String> {
            words.iter().map(|word| (*word).to_owned()).collect()
        };
        let mut words = owned(self.head);
        words.extend(owned(own));
        words.extend(chosen.flatten());
        words.extend(choices.args.iter().cloned());
        words.extend(owned(tail));
        words
    }

    /// The variable that points the program to its login directory; none if it has no such directory.
    pub(crate) fn login(&self, directory: &Path) -> Option<(&'static str, PathBuf)> {
        let login = self.login.as_ref()?;
        let is_below = !login.below.is_empty() && directory.ends_with(login.below);
        let named = if is_below {
            directory.parent()?.to_owned()
        } else {
            directory.to_owned()
        };
        Some((login.variable, named))
    }

    /// The variables that hold the program's key, for a model.
    pub(crate) fn key(&self, model: Option<&str>) -> Vec<&'static str> {
        match self.key {
            ApiKeySource::Variables(names) => names.to_vec(),
            ApiKeySource::OfModel => vec![key_of_model(model.unwrap_or_default())],
        }
    }
}

/// The variables that goondan sets for any program, at a level of confinement.
pub(crate) fn environment(level: Level) -> BTreeMap<String, String> {
    // Otherwise `claude` and its derivatives refuse the mode without approvals when run as root.
    let confined = ("IS_SANDBOX", "1");
    // Landlock has no terminals of its own, and the user's are denied: `gemini` must run commands
    // without one ("forkpty(3) failed").
    let without_terminal = ("GEMINI_PTY_INFO", "child_process");
    let variables: &[(&str, &str)] = match level {
        Level::Off => &[],
        Level::Landlock => &[confined, without_terminal],
        Level::Full | Level::Seatbelt => &[confined],
    };
    let owned = variables.iter();
    let owned = owned.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    owned.collect()
}

/// The variable of the provider that a model's name names.
fn key_of_model(model: &str) -> &'static str {
    const PROVIDERS: [(&str, &str); 6] = [
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("claude", "ANTHROPIC_API_KEY"),
        ("gemini", "GEMINI_API_KEY"),
        ("google", "GEMINI_API_KEY"),
        ("deepseek", "DEEPSEEK_API_KEY"),
        ("openrouter", "OPENROUTER_API_KEY"),
    ];
    let mut providers = PROVIDERS.iter();
    let found = providers.find(|(provider, _)| model.starts_with(provider));
    found.map_or("OPENAI_API_KEY", |(_, variable)| variable)
}
