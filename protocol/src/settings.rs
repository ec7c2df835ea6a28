//! Schemas of the `config` of built-in tools and extensions, as data.
//!
//! The loader of `goondan.yaml` and the agent process both [`check`] against these schemas, and the
//! JSON Schemas are generated from them. `gdn validate` therefore refuses exactly what an agent
//! would refuse.

use std::fmt;

use serde_json::Value;

use crate::JsonObject;
use crate::base_package::{self, AGENT_TOOL};
use crate::extension_settings::bounds::{
    COMPACTION_SIZE_MAX, DEFAULT_KEEP_MESSAGES, DEFAULT_REMINDERS, DEFAULT_TOOL_RESULTS,
    MAX_REMINDERS, MAX_TOOL_RESULTS, MESSAGE_WINDOW_MAX, MESSAGE_WINDOW_MIN,
};
use crate::field::{Field, FieldDefault};
use crate::limits::{DEFAULT_REQUEST_TIMEOUT_MS, MAX_REQUEST_TIMEOUT_MS};
use crate::service::service_of;

/// Longest text value of a setting, in bytes.
pub const MAX_SETTING_TEXT_BYTES: usize = 64 * 1024;

/// Settings of a built-in tool or extension.
#[derive(Debug, Clone, Copy)]
pub struct SettingsSpec {
    /// Its settings.
    pub settings: &'static [Setting],
    /// Settings of which at least one must be set; empty if none is required.
    pub any_of: &'static [&'static str],
}

/// One setting.
pub type Setting = Field<SettingFormat>;

/// Allowed values of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingFormat {
    /// A text that is not blank and has at most [`MAX_SETTING_TEXT_BYTES`].
    Text,
    /// A non-empty list of such texts.
    Texts,
    /// An integer in this inclusive range.
    Number(u64, u64),
    /// `true` or `false`.
    Truth,
    /// A JSON Schema of an object.
    Schema,
}

impl SettingsSpec {
    const NONE: Self = Self::of(&[]);

    const fn of(settings: &'static [Setting]) -> Self {
        Self {
            settings,
            any_of: &[],
        }
    }

    /// True if a setting is required.
    #[must_use]
    pub fn demands_any(&self) -> bool {
        !self.any_of.is_empty() || self.settings.iter().any(|setting| setting.is_required)
    }

    /// The names of the settings.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.settings.iter().map(|setting| setting.name)
    }
}

/// The built-in tool that reads and writes files.
pub const FILE_SYSTEM: &str = "file-system";

/// Setting that names the connection of a tool.
pub const CONNECTION: &str = "connection";

static OF_OUTGOING_TOOLS: SettingsSpec = SettingsSpec::of(&[Setting::optional(
    CONNECTION,
    SettingFormat::Text,
    "The one Connection it works by, as `name` or `Connection/name`. Default: every Connection of its \
     connector.",
)]);

/// Setting of `file-system` that lists secret files which may be opened nevertheless.
pub const SECRET_FILES: &str = "secretFiles";

static OF_FILE_SYSTEM: SettingsSpec = SettingsSpec::of(&[Setting::optional(
    SECRET_FILES,
    SettingFormat::Texts,
    "Files that count as secret, such as `certs/public.pem`, but that this agent's file tools may \
     open. Paths are relative to the project or the work directory.",
)]);

/// Settings of the tool `agent`.
pub mod agent_tool {
    /// The other agent.
    pub const AGENT: &str = "agent";
    /// Description for the model.
    pub const DESCRIPTION: &str = "description";
    /// Schema of the arguments.
    pub const PARAMETERS: &str = "parameters";
    /// Longest wait for the reply.
    pub const TIMEOUT_MS: &str = "timeoutMs";
}

static OF_AGENT_TOOL: SettingsSpec = SettingsSpec::of(&[
    Setting::required(
        agent_tool::AGENT,
        SettingFormat::Text,
        "The agent that the tool asks, as `name` or `Agent/name`.",
    ),
    Setting::optional(
        agent_tool::DESCRIPTION,
        SettingFormat::Text,
        "Description for the model. Default: that of the agent.",
    ),
    Setting::optional(
        agent_tool::PARAMETERS,
        SettingFormat::Schema,
        "JSON Schema of the arguments, which the agent gets as JSON. Default: one text, `input`, which \
         it gets unchanged.",
    ),
    Setting::optional(
        agent_tool::TIMEOUT_MS,
        SettingFormat::Number(1, MAX_REQUEST_TIMEOUT_MS),
        "Longest wait for the reply, in milliseconds. After it, the reply arrives as a message.",
    )
    .or(FieldDefault::Number(DEFAULT_REQUEST_TIMEOUT_MS)),
]);

static OF_OTHER_TOOLS: SettingsSpec = SettingsSpec::NONE;

/// Settings of the built-in tool `name`; `None` if no such tool exists.
#[must_use]
pub fn of_tool(name: &str) -> Option<&'static SettingsSpec> {
    if service_of(name).is_some() {
        return Some(&OF_OUTGOING_TOOLS);
    }
    match name {
        FILE_SYSTEM => return Some(&OF_FILE_SYSTEM),
        AGENT_TOOL => return Some(&OF_AGENT_TOOL),
        _ => {}
    }
    let is_there = base_package::tool_names().any(|tool| tool == name);
    is_there.then_some(&OF_OTHER_TOOLS)
}

static OF_EXTENSIONS: &[(&str, SettingsSpec)] = &[
    (
        "context-message",
        SettingsSpec::of(&[Setting::required(
            "text",
            SettingFormat::Text,
            "The message. `${agentName}`, `${instanceKey}`, `${date}` and `${source}` are filled in.",
        )]),
    ),
    (
        "inter-agent-response-format",
        SettingsSpec::of(&[Setting::optional(
            "instructions",
            SettingFormat::Text,
            "Instructions for an agent that answers another agent's request; `${source}` is the requesting agent.",
        )]),
    ),
    (
        "logging",
        SettingsSpec::of(&[Setting::optional(
            "content",
            SettingFormat::Truth,
            "True to also log inputs, arguments, results and replies, each truncated to a line.",
        )
        .or(FieldDefault::Truth(false))]),
    ),
    (
        "message-compaction",
        SettingsSpec {
            settings: &[
                Setting::optional(
                    "maxMessages",
                    SettingFormat::Number(MESSAGE_WINDOW_MIN as u64, MESSAGE_WINDOW_MAX as u64),
                    "Number of messages above which the conversation is compacted.",
                ),
                Setting::optional(
                    "maxCharacters",
                    SettingFormat::Number(1_000, COMPACTION_SIZE_MAX),
                    "Number of characters above which the conversation is compacted.",
                ),
                Setting::optional(
                    "maxTokens",
                    SettingFormat::Number(1_000, COMPACTION_SIZE_MAX),
                    "Number of tokens of the latest reply, as reported by its provider, above \
                     which the conversation is compacted.",
                ),
                Setting::optional(
                    "keepMessages",
                    SettingFormat::Number(0, MESSAGE_WINDOW_MAX as u64),
                    "Number of the latest messages of earlier turns that are kept unchanged.",
                )
                .or(FieldDefault::Number(DEFAULT_KEEP_MESSAGES as u64)),
                Setting::optional(
                    "instructions",
                    SettingFormat::Text,
                    "Additional instructions for the model when it writes a summary.",
                ),
            ],
            any_of: &["maxMessages", "maxCharacters", "maxTokens"],
        },
    ),
    ("message-integrity", SettingsSpec::NONE),
    (
        "message-window",
        SettingsSpec::of(&[Setting::required(
            "maxMessages",
            SettingFormat::Number(MESSAGE_WINDOW_MIN as u64, MESSAGE_WINDOW_MAX as u64),
            "Maximum number of messages at the start of a turn.",
        )]),
    ),
    (
        "required-tools-guard",
        SettingsSpec::of(&[
            Setting::required(
                "tools",
                SettingFormat::Texts,
                "Full names of the tools that the agent must call before a turn can end.",
            ),
            Setting::optional(
                "maxReminders",
                SettingFormat::Number(0, MAX_REMINDERS as u64),
                "Number of reminders before the turn fails.",
            )
            .or(FieldDefault::Number(DEFAULT_REMINDERS as u64)),
            Setting::optional(
                "anyOf",
                SettingFormat::Truth,
                "True if a call of any one of the tools is enough.",
            )
            .or(FieldDefault::Truth(false)),
            Setting::optional(
                "message",
                SettingFormat::Text,
                "Text of the reminder, and of the error when the turn fails.",
            ),
        ]),
    ),
    (
        "tool-search",
        SettingsSpec::of(&[
            Setting::optional(
                "maxResults",
                SettingFormat::Number(1, MAX_TOOL_RESULTS as u64),
                "Maximum number of tools that a search returns.",
            )
            .or(FieldDefault::Number(DEFAULT_TOOL_RESULTS as u64)),
            Setting::optional(
                "alwaysOffered",
                SettingFormat::Texts,
                "Full names of tools that are offered without a search.",
            ),
            Setting::optional(
                "toolName",
                SettingFormat::Text,
                "Full name of the search tool.",
            )
            .or(FieldDefault::Text(TOOL_SEARCH_FIND)),
            Setting::optional(
                "minQueryLength",
                SettingFormat::Number(1, 1_000),
                "The shortest query, in characters.",
            )
            .or(FieldDefault::Number(1)),
            Setting::optional(
                "persistSelection",
                SettingFormat::Truth,
                "True if found tools stay available in later turns.",
            )
            .or(FieldDefault::Truth(true)),
        ]),
    ),
];

/// Full name of the tool that the extension `tool-search` adds to an agent.
pub const TOOL_SEARCH_FIND: &str = "tool-search__find";

/// Settings of the built-in extension `name`; `None` if no such extension exists.
#[must_use]
pub fn of_extension(name: &str) -> Option<&'static SettingsSpec> {
    let found = OF_EXTENSIONS
        .iter()
        .find(|(extension, _)| *extension == name);
    found.map(|(_, settings)| settings)
}

/// A problem in settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The setting does not exist.
    Unknown {
        /// Its name.
        name: String,
        /// The names of existing settings.
        known: Vec<&'static str>,
    },
    /// At least one of these settings is required, and none is set.
    Missing {
        /// Their names; usually one.
        names: Vec<&'static str>,
    },
    /// The value has the wrong type.
    WrongType {
        /// Position of the value.
        at: ValuePosition,
        /// The expected type, as text.
        expected: &'static str,
    },
    /// The value has the right type but is not allowed.
    WrongValue {
        /// Position of the value.
        at: ValuePosition,
        /// The expected value, as text.
        expected: String,
    },
}

/// Position of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValuePosition {
    /// The setting.
    pub name: &'static str,
    /// The item of its list, counted from 0.
    pub item: Option<usize>,
}

impl fmt::Display for ValuePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match self.item {
            Some(item) => write!(f, "[{item}]"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, known } if known.is_empty() => {
                write!(f, "unknown setting `{name}`; there are none")
            }
            Self::Unknown { name, known } => {
                write!(f, "unknown setting `{name}`; there is {}", quoted(known))
            }
            Self::Missing { names } => write!(f, "missing setting {}", quoted(names)),
            Self::WrongType { at, expected } => write!(f, "`{at}` must be {expected}"),
            Self::WrongValue { at, expected } => write!(f, "`{at}` must be {expected}"),
        }
    }
}

fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// All problems of `given`. A setting without a value counts as not set.
#[must_use]
pub fn check(settings: &SettingsSpec, given: &JsonObject) -> Vec<Problem> {
    let mut problems = check_written(settings, given);
    problems.extend(check_missing(settings, given));
    problems
}

/// Problems of the settings that are present, without checking for missing ones.
#[must_use]
pub fn check_written(settings: &SettingsSpec, given: &JsonObject) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, value) in given {
        match settings.settings.iter().find(|it| it.name == name) {
            None => problems.push(Problem::Unknown {
                name: name.clone(),
                known: settings.names().collect(),
            }),
            Some(_) if value.is_null() => {}
            Some(setting) => check_value(setting, value, &mut problems),
        }
    }
    problems
}

/// Required settings that are missing.
#[must_use]
pub fn check_missing(settings: &SettingsSpec, given: &JsonObject) -> Vec<Problem> {
    let is_set = |name: &str| given.get(name).is_some_and(|value| !value.is_null());
    let required = settings.settings.iter().filter(|it| it.is_required);
    let missing = required.filter(|it| !is_set(it.name));
    let mut problems: Vec<Problem> = missing
        .map(|it| Problem::Missing {
            names: vec![it.name],
        })
        .collect();
    if !settings.any_of.is_empty() && !settings.any_of.iter().any(|name| is_set(name)) {
        problems.push(Problem::Missing {
            names: settings.any_of.to_vec(),
        });
    }
    problems
}

fn check_value(setting: &Setting, value: &Value, problems: &mut Vec<Problem>) {
    let at = |item| ValuePosition {
        name: setting.name,
        item,
    };
    let wrong_type = |item, expected| Problem::WrongType {
        at: at(item),
        expected,
    };
    let wrong_value = |item, expected| Problem::WrongValue {
        at: at(item),
        expected,
    };
    let text = |item, value: &Value| match value.as_str() {
        None => Some(wrong_type(item, "text")),
        Some(text) if text.trim().is_empty() => {
            Some(wrong_value(item, "a text that is not blank".to_owned()))
        }
        Some(text) if text.len() > MAX_SETTING_TEXT_BYTES => {
            let expected = format!("a text of at most {MAX_SETTING_TEXT_BYTES} bytes");
            Some(wrong_value(item, expected))
        }
        Some(_) => None,
    };
    match (setting.content, value) {
        (SettingFormat::Text, value) => problems.extend(text(None, value)),
        (SettingFormat::Texts, Value::Array(items)) if items.is_empty() => {
            problems.push(wrong_value(None, "a list that is not empty".to_owned()));
        }
        (SettingFormat::Texts, Value::Array(items)) => {
            let items = items.iter().enumerate();
            problems.extend(items.filter_map(|(index, item)| text(Some(index), item)));
        }
        (SettingFormat::Texts, _) => problems.push(wrong_type(None, "a list")),
        (SettingFormat::Number(least, most), Value::Number(number)) => {
            let number = number.as_u64();
            if !number.is_some_and(|number| (least..=most).contains(&number)) {
                let expected = format!("a whole number from {least} to {most}");
                problems.push(wrong_value(None, expected));
            }
        }
        (SettingFormat::Number(..), _) => problems.push(wrong_type(None, "a whole number")),
        (SettingFormat::Truth, Value::Bool(_)) => {}
        (SettingFormat::Truth, _) => problems.push(wrong_type(None, "`true` or `false`")),
        (SettingFormat::Schema, Value::Object(schema)) => {
            if schema.get("type").and_then(Value::as_str) != Some("object") {
                let expected = "a JSON Schema with `type: object`".to_owned();
                problems.push(wrong_value(None, expected));
            }
        }
        (SettingFormat::Schema, _) => problems.push(wrong_type(None, "a JSON Schema")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base_package::{EXTENSIONS, tool_names};

    fn problems(settings: &SettingsSpec, given: &Value) -> Vec<String> {
        let given = given.as_object().unwrap();
        let problems = check(settings, given);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn everything_built_in_is_described() {
        for name in tool_names() {
            let takes_a_connection = service_of(name).is_some();
            let names: Vec<&str> = of_tool(name).unwrap().names().collect();
            assert_eq!(names == ["connection"], takes_a_connection, "{name}");
        }
        let described: Vec<&str> = OF_EXTENSIONS.iter().map(|(name, _)| *name).collect();
        assert_eq!(described, EXTENSIONS);
        assert!(of_tool("bsh").is_none() && of_extension("bash").is_none());
    }

    #[test]
    fn ipc_2_settings_of_an_agent_as_a_tool_are_checked() {
        let agent = of_tool("agent").unwrap();
        let schema = json!({"type": "object", "properties": {"topic": {"type": "string"}}});
        let given = json!({"agent": "lawyer", "parameters": schema, "timeoutMs": 5});
        assert!(problems(agent, &given).is_empty());
        let given = json!({"parameters": {"type": "string"}, "timeoutMs": 0});
        assert_eq!(
            problems(agent, &given),
            [
                "`parameters` must be a JSON Schema with `type: object`",
                "`timeoutMs` must be a whole number from 1 to 600000",
                "missing setting `agent`",
            ]
        );
        let given = json!({"agent": "lawyer", "parameters": "text"});
        assert_eq!(
            problems(agent, &given),
            ["`parameters` must be a JSON Schema"]
        );
    }

    #[test]
    fn invalid_declared_settings_are_reported() {
        let guard = of_extension("required-tools-guard").unwrap();
        let nothing: [&str; 0] = [];
        assert_eq!(problems(guard, &json!({"tools": ["a__b"]})), nothing);
        assert_eq!(
            problems(guard, &json!({"tols": 1, "maxReminders": 17})),
            [
                "unknown setting `tols`; there is `tools`, `maxReminders`, `anyOf`, `message`",
                "`maxReminders` must be a whole number from 0 to 16",
                "missing setting `tools`",
            ]
        );
        assert_eq!(
            problems(guard, &json!({"tools": ["a", 1, " "], "maxReminders": "1"})),
            [
                "`tools[1]` must be text",
                "`tools[2]` must be a text that is not blank",
                "`maxReminders` must be a whole number",
            ]
        );
        assert_eq!(
            problems(guard, &json!({"tools": []})),
            ["`tools` must be a list that is not empty"]
        );
        assert_eq!(
            problems(guard, &json!({"tools": null})),
            ["missing setting `tools`"]
        );
        assert_eq!(
            problems(of_tool("bash").unwrap(), &json!({"connection": "a"})),
            ["unknown setting `connection`; there are none"]
        );
        let long = "x".repeat(MAX_SETTING_TEXT_BYTES + 1);
        assert_eq!(
            problems(of_tool("slack").unwrap(), &json!({"connection": long})),
            ["`connection` must be a text of at most 65536 bytes"]
        );
        let logging = of_extension("logging").unwrap();
        assert_eq!(
            problems(logging, &json!({"content": "no"})),
            ["`content` must be `true` or `false`"]
        );
    }
}
