//! Replaces a file of the project atomically, unless it was changed in the meantime.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::exit::Exit;
use crate::failure::Failure;

/// Reason why a file was not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RewriteError {
    #[error("{} was changed by another process in the meantime", path.display())]
    ChangedMeanwhile { path: PathBuf },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl RewriteError {
    /// Converts to a failure of the command `again`.
    pub(super) fn failure(&self, again: &str) -> Failure {
        match self {
            Self::ChangedMeanwhile { .. } => {
                Failure::of(Exit::TryAgain, self, format!("run it again: `{again}`"))
            }
            Self::Write { .. } => Failure::of(
                Exit::Internal,
                self,
                "check that the project's directory is writable and its disk is not full",
            ),
        }
    }
}

/// Replaces a file that still holds `before`, or creates it.
pub(super) fn rewrite(
    path: &Path,
    before: Option<&[u8]>,
    after: &[u8],
) -> Result<(), RewriteError> {
    let failed = |source| RewriteError::Write {
        path: path.to_owned(),
        source,
    };
    let changed = || RewriteError::ChangedMeanwhile {
        path: path.to_owned(),
    };
    // Replaces the target of a symbolic link, not the link.
    let target = match before {
        Some(_) => path.canonicalize().map_err(failed)?,
        None => path.to_owned(),
    };
    let directory = target.parent().unwrap_or(Path::new("/"));
    let mut new = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    let permissions = match before {
        Some(before) if fs::read(&target).map_err(failed)? != before => return Err(changed()),
        Some(_) => fs::metadata(&target).map_err(failed)?.permissions(),
        None => std::os::unix::fs::PermissionsExt::from_mode(0o644),
    };
    new.write_all(after)
        .and_then(|()| new.as_file().set_permissions(permissions))
        .and_then(|()| new.as_file().sync_all())
        .map_err(failed)?;
    if before.is_some() {
        new.persist(&target).map_err(|error| failed(error.error))?;
        return Ok(());
    }
    match new.persist_noclobber(&target) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(changed()),
        Err(error) => Err(failed(error.error)),
    }
}
