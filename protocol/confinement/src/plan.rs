//! Whether what was asked for can be had.

use goondan_protocol::sandbox::{Facts, Level, Network, Right, SandboxPath, SandboxPolicy};

/// What is to be enforced; only [`plan`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub(crate) level: Level,
    pub(crate) read: Vec<SandboxPath>,
    pub(crate) write: Vec<SandboxPath>,
    pub(crate) network: Network,
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
        network,
    } = policy;
    let needed = Right::of(require).iter().copied();
    let missing: Facts = needed.filter(|right| !facts.contains(right)).collect();
    if missing.is_empty() {
        Ok(Plan {
            level: require,
            read,
            write,
            network,
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
            network: Network::None,
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
