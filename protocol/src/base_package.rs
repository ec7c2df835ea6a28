//! What the package `@goondan/base` holds: the agent process implements it, configuration is checked
//! by it.

/// The package of everything that is built in.
pub const BASE_PACKAGE: &str = "@goondan/base";

/// The built-in tools, each with its exports in the order models see them.
pub const TOOLS: &[(&str, &[&str])] = &[
    ("agents", &["request", "send", "spawn", "list", "catalog"]),
    ("bash", &["exec"]),
    (
        "file-system",
        &["read", "write", "edit", "list", "glob", "grep"],
    ),
    ("json-query", &["query", "pointer"]),
    (
        "text-transform",
        &["replace", "case", "trim", "split", "join", "lines", "count"],
    ),
    ("wait", &["for"]),
];

/// The built-in extensions.
pub const EXTENSIONS: &[&str] = &[
    "context-message",
    "inter-agent-response-format",
    "logging",
    "message-integrity",
    "message-window",
    "required-tools-guard",
];

/// The names of the built-in tools.
pub fn tool_names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|(name, _)| *name)
}

/// The exports of a built-in tool; none if there is no such tool.
#[must_use]
pub fn tool_exports(tool: &str) -> &'static [&'static str] {
    let found = TOOLS.iter().find(|(name, _)| *name == tool);
    found.map_or(&[], |(_, exports)| exports)
}
