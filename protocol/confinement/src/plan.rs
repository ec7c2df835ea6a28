//! Whether what was asked for can be had.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::policy::{Level, SandboxPath, SandboxPolicy};

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
        })
    }
}

/// What the running kernel was seen to hold.
pub type Facts = BTreeSet<Right>;

/// What is to be enforced; only [`plan`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub(crate) level: Level,
    pub(crate) read: Vec<SandboxPath>,
    pub(crate) write: Vec<SandboxPath>,
}

/// Rights that the policy requires and the kernel does not hold.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the sandbox level `{level}` cannot be had, since this kernel does not confine {}; use a kernel that \
     does, or write `require: {}`",
    .missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    .level.lesser()
)]
pub struct Unmet {
    level: Level,
    missing: Facts,
}

/// Decides what to enforce.
///
/// # Errors
///
/// [`Unmet`] if the kernel lacks anything that the required level needs.
pub fn plan(policy: SandboxPolicy, facts: &Facts) -> Result<Plan, Unmet> {
    let SandboxPolicy {
        require,
        read,
        write,
    } = policy;
    let needed = Right::of(require).iter().copied();
    let missing: Facts = needed.filter(|right| !facts.contains(right)).collect();
    if missing.is_empty() {
        Ok(Plan {
            level: require,
            read,
            write,
        })
    } else {
        Err(Unmet {
            level: require,
            missing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(require: Level) -> SandboxPolicy {
        SandboxPolicy {
            require,
            read: Vec::new(),
            write: Vec::new(),
        }
    }

    #[test]
    fn sec_3_a_level_is_refused_if_any_of_its_rights_is_missing() {
        for level in [Level::Full, Level::Landlock] {
            for missing in Right::of(level).iter().copied() {
                let facts = Right::ALL
                    .into_iter()
                    .filter(|right| *right != missing)
                    .collect();
                let unmet = plan(policy(level), &facts).unwrap_err();
                assert_eq!(
                    unmet,
                    Unmet {
                        level,
                        missing: [missing].into()
                    }
                );
                let told = unmet.to_string();
                assert!(told.contains(&missing.to_string()), "{told}");
                assert!(told.contains(&format!("`{level}`")), "{told}");
            }
        }
        assert!(plan(policy(Level::Full), &Right::ALL.into()).is_ok());
        assert!(plan(policy(Level::Landlock), &Right::LANDLOCK.into()).is_ok());
        assert!(plan(policy(Level::Off), &Facts::new()).is_ok());
    }
}
