//! Owner and mode of the files of the state root, because a user who can write one of them controls the agents (`SEC-4`).

use std::path::{Path, PathBuf};

/// What must belong to the daemon's user alone, where it is there: the state root, and paths below it.
const OWNED: [&str; 7] = [
    "",
    "run",
    "system",
    "system/identity.age",
    "config.json",
    "packages",
    "workspaces",
];

/// What of a file's mode lets its group and all others write.
const OTHERS_WRITE: u32 = 0o022;

/// Why a path of the state root is not the daemon's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Exposed {
    /// It belongs to another user.
    #[error("`{}` belongs to user id {theirs}, not to the daemon's ({ours})", path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
        /// Whose it is.
        theirs: u32,
        /// Whose it must be.
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

impl Exposed {
    /// What to do about it.
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

/// The paths of a state root that must be its user's own, the root itself first.
pub fn owned(root: &Path) -> impl Iterator<Item = PathBuf> {
    let path = |name: &str| match name {
        "" => root.to_owned(),
        name => root.join(name),
    };
    OWNED.into_iter().map(path)
}

/// Checks a path that exists, by its owner and its mode.
///
/// # Errors
///
/// [`Exposed`] if another user owns it or can write it.
pub fn check(path: PathBuf, owner: u32, mode: u32, user: u32) -> Result<(), Exposed> {
    if owner != user {
        return Err(Exposed::Foreign {
            path,
            theirs: owner,
            ours: user,
        });
    }
    let mode = mode & 0o777;
    if mode & OTHERS_WRITE != 0 {
        return Err(Exposed::Writable { path, mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_4_what_others_own_or_can_write_is_refused() {
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
