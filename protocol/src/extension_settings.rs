//! The settings of the built-in extensions: configuration is checked by them, and the agent process
//! works by them.

use serde::Deserialize;
use serde_json::Value;

use crate::JsonObject;
use crate::settings;

pub mod bounds;

use bounds::{DEFAULT_KEEP_MESSAGES, DEFAULT_REMINDERS, DEFAULT_TOOL_RESULTS};

/// The settings of one built-in extension: a variant for each, in the extension's own name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum ExtensionSettings {
    /// A message of its own that the model sees in every turn.
    ContextMessage {
        /// Its text. `${agentName}`, `${instanceKey}`, `${date}` and `${source}` are filled in.
        text: String,
    },
    /// What an agent is told when another agent waits for its answer.
    InterAgentResponseFormat {
        /// The text; none: one that says who asks, and that the answer is read by a program.
        instructions: Option<String>,
    },
    /// A log line for each turn, step and tool call.
    Logging {
        /// Whether texts are logged too, cut to a line.
        #[serde(default)]
        content: bool,
    },
    /// The oldest messages give way to a summary when the conversation grows too long.
    MessageCompaction(CompactionSettings),
    /// Tool calls and their results are kept in pairs.
    MessageIntegrity {},
    /// The oldest messages leave the conversation when it grows too long.
    MessageWindow {
        /// Messages that stay at most when a turn begins.
        max_messages: usize,
    },
    /// No turn ends without a call of these tools.
    RequiredToolsGuard {
        /// Their full names.
        tools: Vec<String>,
        /// How often the agent is reminded before its turn fails.
        #[serde(default = "default_reminders")]
        max_reminders: u32,
        /// Whether a call of any one of them is enough.
        #[serde(default)]
        any_of: bool,
        /// What the agent is reminded with, and what its turn fails with.
        message: Option<String>,
    },
    /// Tools are offered once they were looked for.
    ToolSearch {
        /// How many tools one search finds at most.
        #[serde(default = "default_tool_results")]
        max_results: usize,
        /// The full names of those that are always offered.
        #[serde(default)]
        always_offered: Vec<String>,
        /// The full name of the tool that searches.
        #[serde(default = "default_search_tool")]
        tool_name: String,
        /// The shortest query, in characters.
        #[serde(default = "default_query_length")]
        min_query_length: usize,
        /// Whether what was found stays offered in later turns.
        #[serde(default = "default_persistence")]
        persist_selection: bool,
    },
}

/// When a conversation is summarized, and how.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionSettings {
    /// Messages there may be.
    pub max_messages: Option<u64>,
    /// Characters there may be.
    pub max_characters: Option<u64>,
    /// Tokens that the latest reply may have read and written.
    pub max_tokens: Option<u64>,
    /// Latest messages of earlier turns that stay as they are.
    #[serde(default = "default_keep_messages")]
    pub keep_messages: usize,
    /// What the model is told besides.
    pub instructions: Option<String>,
}

fn default_keep_messages() -> usize {
    DEFAULT_KEEP_MESSAGES
}

fn default_reminders() -> u32 {
    DEFAULT_REMINDERS
}

fn default_search_tool() -> String {
    settings::TOOL_SEARCH_FIND.to_owned()
}

fn default_query_length() -> usize {
    1
}

fn default_persistence() -> bool {
    true
}

fn default_tool_results() -> usize {
    DEFAULT_TOOL_RESULTS
}

/// Why settings cannot be used, in words for the person who wrote them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSettings(String);

impl ExtensionSettings {
    /// Reads the settings of the built-in extension `builtin`.
    ///
    /// # Errors
    ///
    /// [`InvalidSettings`] if there is no such extension, or the settings do not fit it.
    pub fn read(builtin: &str, config: &JsonObject) -> Result<Self, InvalidSettings> {
        let Some(settings) = settings::of_extension(builtin) else {
            let message = format!("there is no built-in extension `{builtin}`");
            return Err(InvalidSettings(message));
        };
        let problems = settings::check(settings, config);
        if !problems.is_empty() {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(InvalidSettings(problems.join("; ")));
        }
        // One without a value is not set.
        let set = config.iter().filter(|(_, value)| !value.is_null());
        let set: JsonObject = set
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let named = JsonObject::from_iter([(builtin.to_owned(), Value::Object(set))]);
        Self::deserialize(Value::Object(named)).map_err(|error| InvalidSettings(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base_package::EXTENSIONS;

    fn read(builtin: &str, config: Value) -> Result<ExtensionSettings, String> {
        let Value::Object(config) = config else {
            panic!("settings are an object")
        };
        ExtensionSettings::read(builtin, &config).map_err(|error| error.to_string())
    }

    #[test]
    fn every_built_in_extension_has_settings() {
        let fitting = json!({
            "context-message": {"text": "Today is ${date}."},
            "inter-agent-response-format": {},
            "logging": {"content": true},
            "message-compaction": {"maxMessages": 40, "maxCharacters": 5_000, "maxTokens": 9_000,
                                   "keepMessages": 0, "instructions": "Be brief."},
            "message-integrity": {},
            "message-window": {"maxMessages": 40},
            "required-tools-guard": {"tools": ["bash__exec"]},
            "tool-search": {"maxResults": 3, "alwaysOffered": ["bash__exec"]},
        });
        for name in EXTENSIONS {
            let found = read(name, fitting[name].clone());
            assert!(found.is_ok(), "{name}: {found:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        for (builtin, config, said) in [
            ("message-window", json!({}), "missing setting `maxMessages`"),
            ("message-window", json!({"maxMessages": 1}), "from 4 to"),
            ("message-integrity", json!({"x": 1}), "unknown setting `x`"),
            ("context-message", json!({"text": " "}), "blank"),
            ("required-tools-guard", json!({"tools": []}), "not empty"),
            (
                "required-tools-guard",
                json!({"tools": ["a"], "maxReminders": 17}),
                "from 0 to 16",
            ),
            (
                "summary",
                json!({}),
                "there is no built-in extension `summary`",
            ),
        ] {
            let error = read(builtin, config).unwrap_err();
            assert!(error.contains(said), "{builtin}: {error}");
        }
    }
}
