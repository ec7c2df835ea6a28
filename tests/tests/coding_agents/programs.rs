//! The programs, and how a project configures each of them for a scene.

use std::path::{Path, PathBuf};
use std::process::Command;

use goondan_tests::Home;
use goondan_tests::model_server::ModelServer;
use serde_json::{Value, json};

use crate::scenes::Scene;

/// Variable of the daemon that holds the key.
pub(crate) const KEY_VARIABLE: &str = "TEST_KEY";

/// Variable with the directory into which `tests/coding-agents` installs the programs.
const PREFIX_VAR: &str = "GOONDAN_TEST_CODING_AGENTS_PREFIX";

/// Settings of an agent that do not depend on its program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentSetting<'a> {
    /// Name of the agent, and of its scene at the model server.
    pub(crate) name: &'a str,
    pub(crate) level: &'a str,
    /// True if the program must ask for a permission.
    pub(crate) asks_permission: bool,
    /// True if it works on a copy of the project.
    pub(crate) has_project: bool,
    /// True if a program without tools runs a command that prints the requested secret.
    pub(crate) prints_secret: bool,
}

/// A coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    Claude,
    Codex,
    Gemini,
    Opencode,
    Qwen,
    Aider,
    ClaudeAgentAcp,
    CodexAcp,
}

impl Program {
    /// All programs, in the order of the table.
    pub(crate) const ALL: [Self; 8] = [
        Self::Claude,
        Self::Codex,
        Self::Gemini,
        Self::Opencode,
        Self::Qwen,
        Self::Aider,
        Self::ClaudeAgentAcp,
        Self::CodexAcp,
    ];

    /// Name of its executable file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Qwen => "qwen",
            Self::Aider => "aider",
            Self::ClaudeAgentAcp => "claude-agent-acp",
            Self::CodexAcp => "codex-acp",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.name() == name)
    }

    /// True if it reports the tokens of all of its requests; the table says what the others omit.
    pub(crate) fn reports_all_tokens(self) -> bool {
        !matches!(self, Self::Gemini | Self::Aider | Self::ClaudeAgentAcp)
    }

    /// True if it can resume a session.
    pub(crate) fn has_sessions(self) -> bool {
        self != Self::Aider
    }

    /// True if its model calls tools. The model of `aider` writes files as text.
    pub(crate) fn has_tools(self) -> bool {
        self != Self::Aider
    }

    /// Its version, as it prints it.
    pub(crate) fn version(self) -> String {
        let ran = Command::new(self.name()).arg("--version").output();
        let ran = ran.unwrap_or_else(|error| panic!("{}: {error}", self.name()));
        let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
        let is_version =
            |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
        let mut words = printed.split_whitespace();
        let version = words.find(is_version);
        version
            .unwrap_or_else(|| panic!("{ran:?}: no version"))
            .to_owned()
    }

    /// Its `runtime` for an agent.
    fn runtime(self, agent: AgentSetting<'_>, server: &ModelServer, home: &Home) -> Value {
        let url = server.url(agent.name);
        let openai = format!("{url}/v1");
        let key = json!({"valueFrom": {"env": KEY_VARIABLE}});
        let asks = agent.asks_permission;
        let anthropic = json!({"ANTHROPIC_BASE_URL": url, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                               "DISABLE_AUTOUPDATER": "1"});
        match self {
            Self::Claude if asks => {
                json!({"preset": "claude", "key": key, "environment": anthropic})
            }
            Self::Claude => {
                json!({"preset": "claude", "key": key, "environment": anthropic, "mode": "acceptEdits",
                                   "args": ["--allowedTools", "Bash"]})
            }
            Self::Codex => {
                let provider = format!(
                    "model_providers.fake={{name=\"Fake\",base_url=\"{openai}\",env_key=\"OPENAI_API_KEY\",\
                     wire_api=\"responses\"}}"
                );
                json!({"preset": "codex", "key": key, "model": "fake-model",
                       "args": ["-c", "model_provider=fake", "-c", provider]})
            }
            Self::Gemini => {
                json!({"preset": "gemini", "key": key, "mode": if asks { "default" } else { "yolo" },
                       "environment": {"GOOGLE_GEMINI_BASE_URL": url}})
            }
            Self::Opencode => {
                let permission = if asks { "ask" } else { "allow" };
                let models = json!({"fake-model": {"name": "Fake", "limit": {"context": 100_000, "output": 8_000},
                                                   "cost": {"input": 1, "output": 2}}});
                let provider = json!({"npm": "@ai-sdk/openai-compatible", "name": "Fake", "models": models,
                                      "options": {"baseURL": openai, "apiKey": "sk-test"}});
                let config = json!({"autoupdate": false, "share": "disabled", "model": "fake/fake-model",
                                    "small_model": "fake/fake-model", "provider": {"fake": provider},
                                    "agent": {"title": {"disable": true}},
                                    "permission": {"bash": permission, "edit": permission}});
                let environment = json!({"OPENCODE_CONFIG_CONTENT": config.to_string(),
                                         "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"});
                if asks {
                    // `opencode run` refuses what it would have to ask for.
                    json!({"command": ["opencode", "acp"], "format": "acp", "environment": environment})
                } else {
                    json!({"preset": "opencode", "environment": environment})
                }
            }
            Self::Qwen => {
                let file = format!("{}.json", agent.name);
                home.write(
                    &format!("qwen/{file}"),
                    &qwen_settings(agent.level).to_string(),
                );
                json!({"preset": "qwen", "key": key, "mode": if asks { "default" } else { "yolo" },
                       "environment": {"OPENAI_BASE_URL": openai, "OPENAI_MODEL": "fake-model",
                                       "QWEN_CODE_SYSTEM_SETTINGS_PATH": qwen_dir(home).join(file)}})
            }
            Self::Aider => {
                let mut args = vec![
                    "--no-show-model-warnings",
                    "--no-check-update",
                    "--analytics-disable",
                    // It would store the map of the repository in the copy, and so in the proposal.
                    "--map-tokens",
                    "0",
                ];
                if agent.prints_secret {
                    args.extend([
                        "--auto-test",
                        "--test-cmd",
                        "printenv PRICE_API_KEY > key.txt || true",
                    ]);
                }
                json!({"preset": "aider", "model": "openai/fake-model", "key": key, "args": args,
                       "environment": {"OPENAI_API_BASE": openai}})
            }
            Self::ClaudeAgentAcp => {
                let mut environment = anthropic;
                environment["ANTHROPIC_API_KEY"] = key;
                let mode = if asks { "default" } else { "acceptEdits" };
                json!({"command": ["claude-agent-acp"], "format": "acp", "mode": mode, "environment": environment})
            }
            Self::CodexAcp => {
                let directory = codex_home(home, agent.name);
                let provider = format!(
                    "model = \"fake-model\"\nmodel_provider = \"fake\"\n[model_providers.fake]\nname = \"Fake\"\n\
                     base_url = \"{openai}\"\nenv_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\n"
                );
                home.write(&format!("codex/{}/config.toml", agent.name), &provider);
                let mut runtime = json!({"command": ["codex-acp"], "format": "acp",
                    "environment": {"CODEX_HOME": directory, "OPENAI_API_KEY": key}});
                runtime["mode"] = json!(if asks {
                    "workspace-write"
                } else {
                    "agent-full-access"
                });
                runtime
            }
        }
    }

    /// Its agent for a scene, as a document of the project.
    pub(crate) fn agent_of_scene(self, scene: Scene, server: &ModelServer, home: &Home) -> String {
        let level = match self {
            // `opencode acp` calls its own server at 127.0.0.1, which is the machine's at the level
            // `full`, because the model server is listed there.
            Self::Opencode if scene.asks_permission() => "landlock",
            _ => scene.level(),
        };
        let setting = AgentSetting {
            name: scene.name(),
            level,
            asks_permission: scene.asks_permission(),
            has_project: scene == Scene::Proposal,
            prints_secret: scene == Scene::Phases,
        };
        self.agent(setting, server, home)
    }

    /// An agent, as a document of the project.
    pub(crate) fn agent(
        self,
        agent: AgentSetting<'_>,
        server: &ModelServer,
        home: &Home,
    ) -> String {
        let mut runtime = self.runtime(agent, server, home);
        runtime["kind"] = json!("cli");
        runtime["source"] = json!(if agent.has_project { "project" } else { "none" });
        let level = agent.level;
        let mut sandbox = json!({"require": level});
        if level != "off" {
            sandbox["read"] = json!(installed());
        }
        if level == "landlock" {
            sandbox["network"] = json!("any");
        }
        if level == "full" {
            sandbox["network"] = json!({"allow": [server.authority()]});
        }
        if self == Self::Qwen && level != "off" {
            let read = sandbox["read"].as_array_mut().unwrap();
            read.push(json!(qwen_dir(home)));
        }
        if self == Self::CodexAcp && level != "off" {
            sandbox["write"] = json!([codex_home(home, agent.name)]);
        }
        let document = json!({"apiVersion": "goondan.ai/v1", "kind": "Agent", "metadata": {"name": agent.name},
                              "spec": {"runtime": runtime, "sandbox": sandbox}});
        format!("{document}\n")
    }
}

/// Settings of `qwen` without requests that its `usage` leaves out, and without terminals where they
/// are refused: without one, it sometimes loses the output of a short command.
fn qwen_settings(level: &str) -> Value {
    json!({
        "tools": {"shell": {"enableInteractiveShell": level != "landlock"}},
        "ui": {"enableFollowupSuggestions": false},
        "memory": {"enableManagedAutoMemory": false, "enableManagedAutoDream": false,
                   "enableAutoSkill": false},
    })
}

/// Directory of the settings of `qwen`.
fn qwen_dir(home: &Home) -> PathBuf {
    home.path().join("qwen")
}

/// Directory of the settings and sessions of an agent's `codex-acp`.
pub(crate) fn codex_home(home: &Home, agent: &str) -> PathBuf {
    home.path().join("codex").join(agent)
}

/// Directories in which the programs and their runtimes are installed.
fn installed() -> Vec<PathBuf> {
    let prefix = std::env::var_os(PREFIX_VAR);
    let prefix =
        prefix.unwrap_or_else(|| panic!("run tests/coding-agents, which sets {PREFIX_VAR}"));
    let prefix = Path::new(&prefix);
    let places = ["node_modules", "acp/node_modules", "aider"].map(|place| prefix.join(place));
    let mut found: Vec<PathBuf> = places.into_iter().filter(|place| place.is_dir()).collect();
    // A virtual environment of Python links to its interpreter.
    if let Ok(python) = prefix.join("aider/bin/python").canonicalize()
        && let Some(base) = python.ancestors().nth(2)
        && base != Path::new("/usr")
    {
        found.push(base.to_owned());
    }
    found
}
