//! Checks if the required confinement is available.

use goondan_protocol::sandbox::{Facts, Level, Network, Right, SandboxPath, SandboxPolicy};

/// Confinement to enforce; created only by [`plan`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfinementPlan {
    pub(crate) level: Level,
    pub(crate) read: Vec<SandboxPath>,
    pub(crate) write: Vec<SandboxPath>,
    pub(crate) network: Network,
}

/// The policy requires rights that the kernel does not support.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the sandbox level `{level}` is not available because this kernel cannot confine {}; use a \
     newer kernel, or write `require: {instead}`",
    .missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
)]
pub struct UnmetLevel {
    level: Level,
    missing: Facts,
    instead: Level,
}

/// Computes the confinement to enforce.
///
/// # Errors
///
/// [`UnmetLevel`] if the kernel lacks a right that the required level needs.
pub fn plan(policy: SandboxPolicy, facts: &Facts) -> Result<ConfinementPlan, UnmetLevel> {
    let SandboxPolicy {
        require,
        read,
        write,
        network,
    } = policy;
    let missing = lacked(require, facts);
    if missing.is_empty() {
        Ok(ConfinementPlan {
            level: require,
            read,
            write,
            network,
        })
    } else {
        Err(UnmetLevel {
            level: require,
            missing,
            instead: Level::strictest(|level| lacked(level, facts).is_empty()),
        })
    }
}

/// Rights that a level needs and the kernel lacks.
fn lacked(level: Level, facts: &Facts) -> Facts {
    let needed = Right::of(level).iter().copied();
    needed.filter(|right| !facts.contains(right)).collect()
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
        for (level, instead) in [
            (Level::Full, Level::Landlock),
            (Level::Landlock, Level::Off),
        ] {
            for missing in Right::of(level).iter().copied() {
                let facts = Right::ALL
                    .into_iter()
                    .filter(|right| *right != missing)
                    .collect();
                let unmet = plan(policy(level), &facts).unwrap_err();
                assert_eq!((unmet.level, &unmet.missing), (level, &[missing].into()));
                if !Right::LANDLOCK.contains(&missing) || level == Level::Landlock {
                    assert_eq!(unmet.instead, instead);
                }
                let text = unmet.to_string();
                assert!(text.contains(&missing.to_string()), "{text}");
                assert!(text.contains(&format!("`{level}`")), "{text}");
            }
        }
        assert!(plan(policy(Level::Full), &Right::ALL.into()).is_ok());
        assert!(plan(policy(Level::Landlock), &Right::LANDLOCK.into()).is_ok());
        assert!(plan(policy(Level::Off), &Facts::new()).is_ok());
    }

    #[test]
    fn sec_3_foreign_sandbox_kind_is_refused_naming_the_right_one() {
        let [linux, macos]: [Facts; 2] = [Right::ALL.into(), [Right::Profile].into()];
        let refused = |level, facts: &Facts| plan(policy(level), facts).unwrap_err().to_string();
        assert!(refused(Level::Seatbelt, &linux).ends_with("or write `require: full`"));
        for level in [Level::Full, Level::Landlock] {
            let told = refused(level, &macos);
            assert!(told.ends_with("or write `require: seatbelt`"), "{told}");
        }
        assert!(plan(policy(Level::Seatbelt), &macos).is_ok());
    }
}
