//! Settings of the built-in extensions, used to validate configuration and by the agent process.

use serde::Deserialize;
use serde_json::Value;

use crate::JsonObject;
use crate::settings;

pub mod bounds;

use bounds::{DEFAULT_KEEP_MESSAGES, DEFAULT_REMINDERS, DEFAULT_TOOL_RESULTS};

/// Settings of one built-in extension, with a variant for each extension's name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum ExtensionSettings {
    /// A fixed message that the model sees in every turn.
    ContextMessage {
        /// Its text, in which `${agentName}`, `${instanceKey}`, `${date}` and `${source}` are
        /// replaced.
        text: String,
    },
    /// Instructions for an agent when another agent waits for its answer.
    InterAgentResponseFormat {
        /// The text. The default names the requester and explains that a program reads the answer.
        instructions: Option<String>,
    },
    /// A log line for each turn, step and tool call.
    Logging {
        /// True to also log texts, truncated to one line.
        #[serde(default)]
        content: bool,
    },
    /// Replaces the oldest messages by a summary when the conversation grows too long.
    MessageCompaction(CompactionSettings),
    /// Keeps tool calls and their results in pairs.
    MessageIntegrity {},
    /// Removes the oldest messages when the conversation grows too long.
    MessageWindow {
        /// Largest number of messages that remain when a turn begins.
        max_messages: usize,
    },
    /// Requires that every turn calls these tools.
    RequiredToolsGuard {
        /// Their full names.
        tools: Vec<String>,
        /// Number of reminders before the turn fails.
        #[serde(default = "default_reminders")]
        max_reminders: u32,
        /// True if calling one of the tools is sufficient.
        #[serde(default)]
        any_of: bool,
        /// Text of the reminder and of the turn's error.
        message: Option<String>,
    },
    /// Offers tools only after a search.
    ToolSearch {
        /// Largest number of results per search.
        #[serde(default = "default_tool_results")]
        max_results: usize,
        /// Full names of tools that are always offered.
        #[serde(default)]
        always_offered: Vec<String>,
        /// Full name of the search tool.
        #[serde(default = "default_search_tool")]
        tool_name: String,
        /// The shortest query, in characters.
        #[serde(default = "default_query_length")]
        min_query_length: usize,
        /// True if found tools remain offered in later turns.
        #[serde(default = "default_persistence")]
        persist_selection: bool,
    },
}

/// Thresholds and parameters of summaries.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionSettings {
    /// Largest number of messages.
    pub max_messages: Option<u64>,
    /// Largest number of characters.
    pub max_characters: Option<u64>,
    /// Largest number of input and output tokens of the latest reply.
    pub max_tokens: Option<u64>,
    /// Number of latest messages of earlier turns that are never summarized.
    #[serde(default = "default_keep_messages")]
    pub keep_messages: usize,
    /// Additional instructions for the model.
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

/// Reason why settings are invalid, for the person who wrote them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSettings(String);

impl ExtensionSettings {
    /// Parses the settings of the built-in extension `builtin`.
    ///
    /// # Errors
    ///
    /// [`InvalidSettings`] if no such extension exists or the settings do not match it.
    pub fn read(builtin: &str, config: &JsonObject) -> Result<Self, InvalidSettings> {
        let Some(settings) = settings::of_extension(builtin) else {
            let message = format!("unknown built-in extension `{builtin}`");
            return Err(InvalidSettings(message));
        };
        let problems = settings::check(settings, config);
        if !problems.is_empty() {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(InvalidSettings(problems.join("; ")));
        }
        // A setting without a value counts as not set.
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
    fn invalid_extension_settings_are_reported() {
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
            ("summary", json!({}), "unknown built-in extension `summary`"),
        ] {
            let error = read(builtin, config).unwrap_err();
            assert!(error.contains(said), "{builtin}: {error}");
        }
    }
}
