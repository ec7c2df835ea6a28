//! Individual restrictions that a kernel can enforce.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Level;

/// A restriction that a kernel can enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// Files outside the policy's paths cannot be opened or changed (Landlock, ABI 5).
    Files,
    /// Processes outside cannot be signaled (Landlock, ABI 6).
    Signals,
    /// Abstract sockets outside cannot be reached (Landlock, ABI 6).
    AbstractSockets,
    /// System calls can be filtered (seccomp).
    SystemCalls,
    /// The user may create a user namespace, which the following restrictions require.
    UserNamespaces,
    /// Only the policy's paths are visible (mount namespace).
    Mounts,
    /// Processes outside are not visible (PID namespace).
    Processes,
    /// Only a private loopback network is available (network namespace).
    Network,
    /// A profile restricts files, other processes and the network (macOS).
    Profile,
}

impl Right {
    /// Restrictions that the level `landlock` requires.
    pub const LANDLOCK: [Self; 4] = [
        Self::Files,
        Self::Signals,
        Self::AbstractSockets,
        Self::SystemCalls,
    ];

    /// Restrictions that the level `full` requires.
    pub const ALL: [Self; 8] = [
        Self::Files,
        Self::Signals,
        Self::AbstractSockets,
        Self::SystemCalls,
        Self::UserNamespaces,
        Self::Mounts,
        Self::Processes,
        Self::Network,
    ];

    /// Restrictions that a level requires.
    #[must_use]
    pub fn of(level: Level) -> &'static [Self] {
        match level {
            Level::Full => &Self::ALL,
            Level::Landlock => &Self::LANDLOCK,
            Level::Seatbelt => &[Self::Profile],
            Level::Off => &[],
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files => "files (Landlock, ABI 5, Linux 6.10)",
            Self::Signals => "signals (Landlock, ABI 6, Linux 6.12)",
            Self::AbstractSockets => "abstract sockets (Landlock, ABI 6, Linux 6.12)",
            Self::SystemCalls => "system calls (seccomp)",
            Self::UserNamespaces => "users (user namespaces)",
            Self::Mounts => "mounts (mount namespaces)",
            Self::Processes => "processes (PID namespaces and their own /proc)",
            Self::Network => "the network (network namespaces)",
            Self::Profile => "programs by a profile, as macOS does",
        })
    }
}

/// Restrictions that the running kernel enforces, as observed.
pub type Facts = BTreeSet<Right>;
