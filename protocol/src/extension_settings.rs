//! The settings of the built-in extensions: configuration is checked by them, and the agent process
//! works by them.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::JsonObject;

/// Fewest messages a window may leave: a question, its answer, and what stands between them.
pub const MESSAGE_WINDOW_MIN: usize = 4;
/// How often an agent is reminded of a required tool when its settings do not say.
pub const DEFAULT_REMINDERS: u32 = 2;
/// Most reminders of one turn.
pub const MAX_REMINDERS: u32 = 16;
/// Longest text of a setting, in bytes.
pub const MAX_SETTING_TEXT_BYTES: usize = 64 * 1024;

/// The settings of one built-in extension.
#[derive(Debug, Clone, PartialEq)]
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
        content: bool,
    },
    /// Tool calls and their results are kept in pairs.
    MessageIntegrity,
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
        max_reminders: u32,
    },
}

/// Why settings cannot be used, in words for the person who wrote them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSettings(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContextMessage {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InterAgentResponseFormat {
    instructions: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Logging {
    #[serde(default)]
    content: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageIntegrity {}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MessageWindow {
    max_messages: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RequiredToolsGuard {
    tools: Vec<String>,
    max_reminders: Option<u32>,
}

impl ExtensionSettings {
    /// Reads the settings of the built-in extension `builtin`.
    ///
    /// # Errors
    ///
    /// [`InvalidSettings`] if there is no such extension, or the settings do not fit it.
    pub fn read(builtin: &str, config: &JsonObject) -> Result<Self, InvalidSettings> {
        let settings = match builtin {
            "context-message" => {
                let ContextMessage { text } = of(config)?;
                Self::ContextMessage {
                    text: checked(text)?,
                }
            }
            "inter-agent-response-format" => {
                let InterAgentResponseFormat { instructions } = of(config)?;
                let instructions = instructions.map(checked).transpose()?;
                Self::InterAgentResponseFormat { instructions }
            }
            "logging" => {
                let Logging { content } = of(config)?;
                Self::Logging { content }
            }
            "message-integrity" => {
                let MessageIntegrity {} = of(config)?;
                Self::MessageIntegrity
            }
            "message-window" => {
                let MessageWindow { max_messages } = of(config)?;
                if max_messages < MESSAGE_WINDOW_MIN {
                    return Err(InvalidSettings(format!(
                        "`maxMessages` is {max_messages}; a window of less than \
                         {MESSAGE_WINDOW_MIN} messages would cut exchanges apart"
                    )));
                }
                Self::MessageWindow { max_messages }
            }
            "required-tools-guard" => {
                let RequiredToolsGuard {
                    tools,
                    max_reminders,
                } = of(config)?;
                let max_reminders = max_reminders.unwrap_or(DEFAULT_REMINDERS);
                if tools.is_empty() {
                    return Err(InvalidSettings("`tools` names no tool".to_owned()));
                }
                if max_reminders > MAX_REMINDERS {
                    return Err(InvalidSettings(format!(
                        "`maxReminders` is {max_reminders}; at most {MAX_REMINDERS} are allowed"
                    )));
                }
                Self::RequiredToolsGuard {
                    tools,
                    max_reminders,
                }
            }
            unknown => {
                let message = format!("there is no built-in extension `{unknown}`");
                return Err(InvalidSettings(message));
            }
        };
        Ok(settings)
    }
}

fn of<T: DeserializeOwned>(config: &JsonObject) -> Result<T, InvalidSettings> {
    serde_json::from_value(Value::Object(config.clone()))
        .map_err(|error| InvalidSettings(error.to_string()))
}

fn checked(text: String) -> Result<String, InvalidSettings> {
    if text.trim().is_empty() {
        return Err(InvalidSettings("a text is blank".to_owned()));
    }
    if text.len() > MAX_SETTING_TEXT_BYTES {
        return Err(InvalidSettings(format!(
            "a text has {} bytes; at most {MAX_SETTING_TEXT_BYTES} are allowed",
            text.len()
        )));
    }
    Ok(text)
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
            "message-integrity": {},
            "message-window": {"maxMessages": 40},
            "required-tools-guard": {"tools": ["bash__exec"]},
        });
        for name in EXTENSIONS {
            let found = read(name, fitting[name].clone());
            assert!(found.is_ok(), "{name}: {found:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        for (builtin, config, said) in [
            ("message-window", json!({}), "missing field `maxMessages`"),
            (
                "message-window",
                json!({"maxMessages": 1}),
                "would cut exchanges apart",
            ),
            ("message-integrity", json!({"x": 1}), "unknown field `x`"),
            ("context-message", json!({"text": " "}), "blank"),
            (
                "required-tools-guard",
                json!({"tools": []}),
                "names no tool",
            ),
            (
                "required-tools-guard",
                json!({"tools": ["a"], "maxReminders": 17}),
                "at most 16",
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
