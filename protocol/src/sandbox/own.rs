//! How the processes of agents and connectors are confined themselves (`SEC-3`, `SEC-6`).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Level, Right};

/// What a child of the daemon holds itself to from its welcome on, as far as the programs that it starts can
/// live with that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnSandbox {
    /// Files, signals, abstract sockets and system calls: what the level `landlock` gives programs.
    Landlock,
    /// A root of its own, on which no other files are, signals and abstract sockets by Landlock, and system calls that
    /// neither it nor a sandbox of the level `full` needs. Whose files Landlock holds may not mount, nor may anybody
    /// whom it starts; whose signals and sockets it holds may.
    Mounts,
    /// Nothing: a person wants its programs to have all rights of the user, or the system is not Linux.
    None,
}

impl OwnSandbox {
    /// Of a process that starts programs in sandboxes of a level; none if it starts no programs.
    #[must_use]
    pub fn beside(programs: Option<Level>) -> Self {
        match programs {
            None | Some(Level::Landlock) => Self::Landlock,
            Some(Level::Full) => Self::Mounts,
            Some(Level::Seatbelt | Level::Off) => Self::None,
        }
    }

    /// What it needs of the kernel.
    #[must_use]
    pub fn rights(self) -> &'static [Right] {
        match self {
            Self::Landlock => &Right::LANDLOCK,
            Self::Mounts => &[
                Right::Signals,
                Right::AbstractSockets,
                Right::SystemCalls,
                Right::UserNamespaces,
                Right::Mounts,
            ],
            Self::None => &[],
        }
    }
}

impl fmt::Display for OwnSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Landlock => "landlock",
            Self::Mounts => "mounts",
            Self::None => "none",
        })
    }
}
