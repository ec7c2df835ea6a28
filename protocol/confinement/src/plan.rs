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
}

impl Right {
    /// All of them: the level `landlock` needs each.
    pub const ALL: [Self; 4] = [
        Self::Files,
        Self::Signals,
        Self::AbstractSockets,
        Self::SystemCalls,
    ];
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files => "files (Landlock, ABI 5, Linux 6.10)",
            Self::Signals => "signals (Landlock, ABI 6, Linux 6.12)",
            Self::AbstractSockets => "abstract sockets (Landlock, ABI 6, Linux 6.12)",
            Self::SystemCalls => "system calls (seccomp)",
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
    "the sandbox level `landlock` cannot be had, since this kernel does not confine {}; use a kernel that \
     does, or write `require: off` to run without a sandbox",
    .missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
)]
pub struct Unmet {
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
    let missing: Facts = match require {
        Level::Landlock => Right::ALL
            .into_iter()
            .filter(|right| !facts.contains(right))
            .collect(),
        Level::Off => Facts::new(),
    };
    if missing.is_empty() {
        Ok(Plan {
            level: require,
            read,
            write,
        })
    } else {
        Err(Unmet { missing })
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
        for missing in Right::ALL {
            let facts = Right::ALL
                .into_iter()
                .filter(|right| *right != missing)
                .collect();
            let unmet = plan(policy(Level::Landlock), &facts).unwrap_err();
            assert_eq!(
                unmet,
                Unmet {
                    missing: [missing].into()
                }
            );
            assert!(unmet.to_string().contains(&missing.to_string()), "{unmet}");
        }
        assert!(plan(policy(Level::Landlock), &Right::ALL.into()).is_ok());
        assert!(plan(policy(Level::Off), &Facts::new()).is_ok());
    }
}
