//! Errors of backups.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why a backup cannot be made, checked or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("failed to {doing} `{}`", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{}` does not exist or is not a directory", path.display())]
    NoStateRoot { path: PathBuf },
    #[error("`{}` is not a directory with backups of goondan", path.display())]
    NotABackupDirectory { path: PathBuf },
    #[error("`{}` contains other files than backups of goondan", path.display())]
    Occupied { path: PathBuf },
    #[error("`{}` and the state root `{}` must not contain each other", path.display(), root.display())]
    Nested { path: PathBuf, root: PathBuf },
    #[error("another process writes to `{}`", path.display())]
    Busy { path: PathBuf },
    #[error("`{}` has the format {format}, which this version does not know", path.display())]
    NewerFormat { path: PathBuf, format: u64 },
    #[error("`{}` is damaged: {problem}", path.display())]
    Damaged { path: PathBuf, problem: String },
    #[error("`{}` contains no backup", path.display())]
    Empty { path: PathBuf },
    #[error("backup `{id}` does not exist in `{}`", path.display())]
    NotFound { path: PathBuf, id: String },
    #[error("backup `{id}` is encrypted for {}", recipients.join(", "))]
    IdentityNeeded { id: String, recipients: Vec<String> },
    #[error("backup `{id}` is encrypted for {}, and not for the given identity", recipients.join(", "))]
    OtherIdentity { id: String, recipients: Vec<String> },
    #[error("`{recipient}` is not an age recipient: expected `age1…`")]
    Recipient { recipient: String },
    #[error("`{}` contains no age identity: expected lines that begin with `AGE-SECRET-KEY-1`", path.display())]
    Identity { path: PathBuf },
    #[error("the list of {files} files and directories is too long for a backup")]
    TooLarge { files: usize },
    #[error("failed to encrypt the backup: {0}")]
    Encryption(String),
    #[error("`{}` exists and is not empty", path.display())]
    TargetExists { path: PathBuf },
    #[error("`{}` is a mount point, which a restore cannot replace", path.display())]
    MountPoint { path: PathBuf },
    #[error("the restored files need {needed} bytes, and `{}` has {free} bytes free", path.display())]
    NoSpace {
        path: PathBuf,
        needed: u64,
        free: u64,
    },
}

impl BackupError {
    pub(crate) fn damaged(path: &Path, problem: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            problem: problem.into(),
        }
    }
}

/// Adds the operation and the path to an I/O error.
pub(crate) trait During<T> {
    fn during(self, doing: &'static str, path: &Path) -> Result<T, BackupError>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, doing: &'static str, path: &Path) -> Result<T, BackupError> {
        self.map_err(|source| BackupError::Io {
            doing,
            path: path.to_owned(),
            source: source.into(),
        })
    }
}
