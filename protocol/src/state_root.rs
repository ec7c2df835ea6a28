//! Owner and mode of the state root's files, because a user who can write one of them controls the
//! agents (`SEC-4`).

use std::path::{Path, PathBuf};

/// Paths that must belong to the daemon's user alone, if they exist: the state root, and paths
/// below it.
const OWNED: [&str; 7] = [
    "",
    "run",
    "system",
    "system/identity.age",
    "config.json",
    "packages",
    "workspaces",
];

/// File below the state root that marks a restored one. Its daemon starts paused.
pub const RESTORE_MARK: &str = "system/restored.json";

/// Mode bits that let the group and others write.
const OTHERS_WRITE: u32 = 0o022;

/// Reason why a path of the state root is not exclusively the daemon's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateRootExposure {
    /// It belongs to another user.
    #[error("`{}` belongs to user id {theirs}, not to the daemon's ({ours})", path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
        /// Its owner.
        theirs: u32,
        /// The required owner.
        ours: u32,
    },
    /// Other users can write it.
    #[error("`{}` can be written by other users (mode {mode:03o})", path.display())]
    Writable {
        /// The path.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

impl StateRootExposure {
    /// A suggested fix.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Foreign { path, ours, .. } => format!(
                "check what is there, then `sudo chown -R {ours} '{}'`; or name another directory: `--state-root DIR`",
                path.display()
            ),
            Self::Writable { path, .. } => {
                format!(
                    "check what is there, then `chmod go-w '{}'`",
                    path.display()
                )
            }
        }
    }
}

/// Paths of a state root that must belong exclusively to its user, starting with the root itself.
pub fn owned(root: &Path) -> impl Iterator<Item = PathBuf> {
    let path = |name: &str| match name {
        "" => root.to_owned(),
        name => root.join(name),
    };
    OWNED.into_iter().map(path)
}

/// Checks the owner and mode of an existing path.
///
/// # Errors
///
/// [`StateRootExposure`] if another user owns the path or can write to it.
pub fn check(path: PathBuf, owner: u32, mode: u32, user: u32) -> Result<(), StateRootExposure> {
    if owner != user {
        return Err(StateRootExposure::Foreign {
            path,
            theirs: owner,
            ours: user,
        });
    }
    let mode = mode & 0o777;
    if mode & OTHERS_WRITE != 0 {
        return Err(StateRootExposure::Writable { path, mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_4_directory_owned_or_writable_by_others_is_refused() {
        let check = |owner, mode| check(PathBuf::from("/s/run"), owner, mode, 1000);
        assert_eq!(check(1000, 0o40700), Ok(()));
        assert_eq!(check(1000, 0o40755), Ok(()));
        for mode in [0o775, 0o757] {
            let refused = check(1000, mode).unwrap_err();
            assert!(
                refused.hint().ends_with("`chmod go-w '/s/run'`"),
                "{refused:?}"
            );
        }
        let refused = check(0, 0o700).unwrap_err();
        assert!(
            refused.hint().contains("sudo chown -R 1000 '/s/run'"),
            "{refused:?}"
        );
    }
}
