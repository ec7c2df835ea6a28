//! What the package `@goondan/base` holds: the agent process implements it, configuration is checked
//! by it.

/// The package of everything that is built in.
pub const BASE_PACKAGE: &str = "@goondan/base";

/// The built-in tools, each with its exports in the order models see them.
pub const TOOLS: &[(&str, &[&str])] = &[
    ("agents", &["request", "send", "spawn", "list", "catalog"]),
    ("bash", &["exec"]),
    ("discord", &["send", "edit", "delete", "react"]),
    (
        "file-system",
        &["read", "write", "edit", "list", "glob", "grep"],
    ),
    ("github", &["comment", "edit", "react"]),
    ("http-fetch", &["get", "request"]),
    ("json-query", &["query", "pointer"]),
    // What a server offers is known when it runs.
    ("mcp", &[]),
    ("self-restart", &["request"]),
    ("slack", &["send", "edit", "delete", "react"]),
    ("telegram", &["send", "edit", "delete", "react", "typing"]),
    (
        "text-transform",
        &[
            "replace", "case", "trim", "split", "join", "lines", "slice", "count",
        ],
    ),
    ("wait", &["for"]),
];

/// The built-in tools that work by a connection, each with the connector of it and the secret without
/// which it can do nothing. Those without one need none, or not always.
pub const OUTGOING: &[OutgoingTool] = &[
    OutgoingTool {
        tool: "discord",
        connector: "discord",
        secret: None,
    },
    OutgoingTool {
        tool: "github",
        connector: "github",
        secret: Some("token"),
    },
    OutgoingTool {
        tool: "http-fetch",
        connector: "http",
        secret: None,
    },
    OutgoingTool {
        tool: "mcp",
        connector: "mcp",
        secret: None,
    },
    OutgoingTool {
        tool: "slack",
        connector: "slack",
        secret: Some("botToken"),
    },
    OutgoingTool {
        tool: "telegram",
        connector: "telegram",
        secret: Some("botToken"),
    },
];

/// A built-in tool that works by a connection: the connector process does what the tool is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutgoingTool {
    /// The tool.
    pub tool: &'static str,
    /// The connector whose connections it works by.
    pub connector: &'static str,
    /// The connection's secret that it cannot do without.
    pub secret: Option<&'static str>,
}

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

/// The names of the built-in tools.
pub fn tool_names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|(name, _)| *name)
}

/// How a built-in tool works by a connection, if it does.
#[must_use]
pub fn outgoing(tool: &str) -> Option<&'static OutgoingTool> {
    OUTGOING.iter().find(|outgoing| outgoing.tool == tool)
}

/// The exports of a built-in tool; none if there is no such tool.
#[must_use]
pub fn tool_exports(tool: &str) -> &'static [&'static str] {
    let found = TOOLS.iter().find(|(name, _)| *name == tool);
    found.map_or(&[], |(_, exports)| exports)
}
