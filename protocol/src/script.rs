//! Script of the `scripted` model, which replays predefined agent behavior.
//!
//! A script is a list of rules. In each step the model checks the conversation against the rules
//! and executes the first one whose conditions all match. `docs/scripted-model.md` is the user
//! documentation; `agent-process` executes scripts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A script: rules, tried in order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Script {
    /// The rules, tried in order; the first match is executed.
    pub rules: Vec<ScriptRule>,
}

/// A rule: its conditions and the model's behavior.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScriptRule {
    /// The conditions. All given conditions must match; a rule without conditions always matches.
    #[serde(default, skip_serializing_if = "RuleConditions::is_empty")]
    pub when: RuleConditions,
    /// Text of the reply. `${name}` is replaced by a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub say: Option<String>,
    /// Tool calls of the reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub call: Vec<ScriptedCall>,
    /// The model call fails with this error text instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<String>,
    /// Delay of the reply, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
}

/// Conditions of a rule. The strings are regular expressions that may match anywhere in the text
/// (anchor with `^` and `$`). Their named groups are captures for `say` and `call`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleConditions {
    /// Pattern for the latest user message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Full name of the tool whose result is the latest message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Pattern for the text of that result. Only matches if the latest message is a tool result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// True if that result must be an error, false if it must not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<bool>,
    /// Pattern for the system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Pattern for every earlier message of the conversation, newest first; a match acts as the
    /// model's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
    /// The number of the step within its turn, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
}

impl RuleConditions {
    /// True if there are no conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The regular expressions of the conditions, with their field names.
    pub fn patterns(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("user", &self.user),
            ("result", &self.result),
            ("system", &self.system),
            ("history", &self.history),
        ]
        .into_iter()
        .filter_map(|(field, pattern)| Some((field, pattern.as_deref()?)))
    }
}

/// A tool call of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScriptedCall {
    /// The tool's full name, such as `bash__exec`.
    pub tool: String,
    /// Its arguments. `${name}` within any string is replaced by a capture.
    #[serde(default)]
    pub args: BTreeMap<String, Value>,
}
