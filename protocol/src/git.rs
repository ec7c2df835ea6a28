//! How git is run, wherever goondan runs it: on files that nobody vouches for (`PKG-3`, `PROP-7`).
//!
//! It gets an empty environment with [`ENVIRONMENT`], and [`ARGUMENTS`] before its own. Then no setting of the machine,
//! of a user or of a repository says which program it starts, and it neither asks nor reaches for anything. Its caller
//! says which repository it works in, or that there is none.

/// Options before the command: nothing that a repository's own settings could name is started.
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

/// The environment, beside `PATH`.
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
