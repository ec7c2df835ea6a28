//! What the package `@goondan/base` holds: the agent process implements it, configuration is checked
//! by it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::service::SERVICES;

/// The package of everything that is built in.
pub const BASE_PACKAGE: &str = "@goondan/base";

/// Which contract of [`BASE_PACKAGE`] an agent is written for: what its tools answer, and what its modules
/// are given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BaseContract {
    /// That of this version.
    #[default]
    #[serde(rename = "own")]
    Own,
    /// That of 0.0.3 (`COMPAT-2`, `COMPAT-3`).
    #[serde(rename = "0.0.3")]
    V0_0_3,
}

impl BaseContract {
    /// Whether it is that of this version.
    #[must_use]
    pub fn is_own(&self) -> bool {
        *self == Self::Own
    }
}

/// The built-in tools that work by no connection, each with its exports in the order models see them.
const OWN_TOOLS: &[(&str, &[&str])] = &[
    ("agents", &["request", "send", "spawn", "list", "catalog"]),
    ("bash", &["exec"]),
    (
        "file-system",
        &["read", "write", "edit", "list", "glob", "grep"],
    ),
    ("json-query", &["query", "pointer"]),
    ("proposal", &["submit", "status"]),
    ("sandbox", &["prepare", "status"]),
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

/// The built-in tools by their names, each with its exports in the order models see them. `mcp` has none:
/// what a server offers is known when it runs.
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

/// The names of the built-in tools, in order.
pub fn tool_names() -> impl Iterator<Item = &'static str> {
    tools().into_keys()
}

/// The exports of a built-in tool; none if there is no such tool.
#[must_use]
pub fn tool_exports(tool: &str) -> Vec<&'static str> {
    tools().remove(tool).unwrap_or_default()
}
