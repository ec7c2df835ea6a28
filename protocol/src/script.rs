//! The script of the `scripted` model: any agent behaviour, written down and replayed.
//!
//! A script is a list of rules. For every step the model looks at the conversation, takes the first
//! rule whose conditions all hold, and does what it says. `docs/scripted-model.md` explains it to
//! users; `agent-process` plays it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A script: rules, tried in order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Script {
    /// The rules, tried in order; the first that matches is played.
    pub rules: Vec<Rule>,
}

/// One rule: when it applies and what the model then does.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// When the rule applies. All conditions that are given must hold; none given always holds.
    #[serde(default, skip_serializing_if = "When::is_empty")]
    pub when: When,
    /// Text the model says. `${name}` is replaced by a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub say: Option<String>,
    /// Tools the model calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub call: Vec<ScriptedCall>,
    /// The model call fails with this text instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<String>,
    /// How long the model takes to answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
}

/// Conditions of a rule. The texts are regular expressions, searched for anywhere in what they are
/// held against (anchor with `^` and `$`); their named groups are captures for `say` and `call`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct When {
    /// Against the latest user message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The latest message is the result of this tool, by its full name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Against that result's text. Holds only if the latest message is a tool result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Whether that result is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<bool>,
    /// Against the system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Against every earlier message of the conversation, newest first: what the model remembers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
    /// The number of the step within its turn, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
}

impl When {
    /// Whether no condition is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The regular expressions of the conditions, with the field each stands in.
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
    /// Its arguments. `${name}` within any text is replaced by a capture.
    #[serde(default)]
    pub args: BTreeMap<String, Value>,
}
