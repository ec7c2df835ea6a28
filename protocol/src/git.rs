//! Invocation of git on untrusted files (`PKG-3`, `PROP-7`).
//!
//! git receives an empty environment plus [`ENVIRONMENT`], and [`ARGUMENTS`] before its own
//! arguments. No setting of the machine, a user or a repository can then choose a program for it to
//! start, and it neither prompts nor uses the network. The caller sets the repository, or declares
//! that there is none.

/// Options before the command. They prevent a repository's settings from starting programs.
pub const ARGUMENTS: [&str; 12] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.attributesFile=/dev/null",
    "-c",
    "credential.helper=",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
];

/// Environment variables besides `PATH`.
pub const ENVIRONMENT: [(&str, &str); 8] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "/bin/false"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_ALLOW_PROTOCOL", ""),
    ("LC_ALL", "C"),
];
