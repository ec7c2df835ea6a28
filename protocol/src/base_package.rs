//! Content of the package `@goondan/base`, which the agent process implements and configurations
//! are checked against.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::service::SERVICES;

/// Name of the package of all built-in resources.
pub const BASE_PACKAGE: &str = "@goondan/base";

/// Contract of [`BASE_PACKAGE`] that an agent uses. It determines the results of tools and the
/// arguments of modules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BaseContract {
    /// The contract of this version.
    #[default]
    #[serde(rename = "own")]
    Own,
    /// The contract of 0.0.3 (`COMPAT-2`, `COMPAT-3`).
    #[serde(rename = "0.0.3")]
    V0_0_3,
}

impl BaseContract {
    /// True for the contract of this version.
    #[must_use]
    pub fn is_own(&self) -> bool {
        *self == Self::Own
    }
}

/// The built-in tool that reads the payload of an event.
pub const EVENT_TOOL: &str = "event";

/// The built-in tool that asks one other agent.
pub const AGENT_TOOL: &str = "agent";

/// Its only export.
pub const AGENT_TOOL_EXPORT: &str = "ask";

/// Built-in tools that use no connection, each with its exports in the order shown to models.
const OWN_TOOLS: &[(&str, &[&str])] = &[
    (AGENT_TOOL, &[AGENT_TOOL_EXPORT]),
    ("agents", &["request", "send", "spawn", "list", "catalog"]),
    ("bash", &["exec"]),
    (EVENT_TOOL, &["read", "list"]),
    (
        "file-system",
        &["read", "write", "edit", "list", "glob", "grep"],
    ),
    ("json-query", &["query", "pointer"]),
    ("proposal", &["submit", "status"]),
    ("proposal-review", &["diff", "check", "apply"]),
    ("sandbox", &["prepare", "status"]),
    ("schedule", &["once", "cron", "list", "remove"]),
    ("self-restart", &["request"]),
    (
        "swarm-bundle",
        &["open", "write", "diff", "commit", "status", "revert"],
    ),
    ("tasks", &["create", "status", "wait"]),
    (
        "text-transform",
        &[
            "replace", "case", "trim", "split", "join", "lines", "slice", "count",
        ],
    ),
    ("wait", &["for"]),
];

/// The built-in extensions.
pub const EXTENSIONS: &[&str] = &[
    "context-message",
    "inter-agent-response-format",
    "logging",
    "message-compaction",
    "message-integrity",
    "message-window",
    "required-tools-guard",
    "tool-search",
];

/// Built-in tools by name, each with its exports in the order shown to models. `mcp` has no exports
/// here because its tools are only known at run time.
#[must_use]
pub fn tools() -> BTreeMap<&'static str, Vec<&'static str>> {
    let own = OWN_TOOLS
        .iter()
        .map(|(name, exports)| (*name, exports.to_vec()));
    let of_services = SERVICES.iter().map(|service| {
        let exports = service.actions.iter().map(|action| action.name);
        (service.tool, exports.collect())
    });
    own.chain(of_services).collect()
}

/// Names of the built-in tools, sorted.
pub fn tool_names() -> impl Iterator<Item = &'static str> {
    tools().into_keys()
}

/// Exports of a built-in tool; empty if the tool does not exist.
#[must_use]
pub fn tool_exports(tool: &str) -> Vec<&'static str> {
    tools().remove(tool).unwrap_or_default()
}
