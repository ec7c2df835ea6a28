//! What a kernel can hold a program to, one by one.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Level;

/// Something that a kernel can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// Files outside of the policy's paths cannot be opened or changed (Landlock, ABI 5).
    Files,
    /// Processes outside get no signals (Landlock, ABI 6).
    Signals,
    /// Abstract sockets outside cannot be reached (Landlock, ABI 6).
    AbstractSockets,
    /// System calls can be refused (seccomp).
    SystemCalls,
    /// This user may have a user namespace, in which the rights below can be had.
    UserNamespaces,
    /// Nothing but the policy's paths is there (mount namespace).
    Mounts,
    /// Processes outside are not there (PID namespace).
    Processes,
    /// There is no way out but a loopback of its own (network namespace).
    Network,
    /// Files, other processes and the network by a profile (macOS).
    Profile,
}

impl Right {
    /// The level `landlock` needs each of these.
    pub const LANDLOCK: [Self; 4] = [
        Self::Files,
        Self::Signals,
        Self::AbstractSockets,
        Self::SystemCalls,
    ];

    /// The level `full` needs each of them.
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

    /// What a level needs.
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

/// What the running kernel was seen to hold.
pub type Facts = BTreeSet<Right>;
