//! Self-confinement of agent and connector processes (`SEC-3`, `SEC-6`).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Level, Right};

/// Confinement that a child of the daemon applies to itself after its welcome, as far as the
/// programs that it starts allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnSandbox {
    /// Files, signals, abstract sockets and system calls, like the level `landlock` for programs.
    Landlock,
    /// A private root without any other files; signals and abstract sockets by Landlock; and no
    /// system calls other than those that the process and a `full` sandbox need. Landlock rules for
    /// files would forbid mounting in the process and its descendants; rules for signals and
    /// sockets do not.
    Mounts,
    /// None: a person configured its programs to have all rights of the user, or the system is not
    /// Linux.
    None,
}

impl OwnSandbox {
    /// The self-confinement of a process whose programs run at a level; `None` if it starts no
    /// programs.
    #[must_use]
    pub fn beside(programs: Option<Level>) -> Self {
        match programs {
            None | Some(Level::Landlock) => Self::Landlock,
            Some(Level::Full) => Self::Mounts,
            Some(Level::Seatbelt | Level::Off) => Self::None,
        }
    }

    /// Kernel rights it requires.
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
