//! Journal of an upgrade: the versions involved and the direction, so that an interrupted upgrade can be resumed
//! (`REL-1`).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::limits::JOURNAL_BYTES_MAX;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::installation::{Installation, VersionName, sync_dir};

/// Format version of this file.
const FORM: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "goes")]
pub(super) enum UpgradeDirection {
    Forward,
    /// Back to the previous version, for this reason.
    Back {
        why: String,
    },
}

/// State of the daemon before the upgrade, which is restored afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum PriorDaemonState {
    Not,
    /// In the background, as `gdn run` starts it.
    InBackground,
    AsService,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum UpgradeStep {
    /// Stop the daemon after its turns in progress.
    Drain,
    /// Point `current` to the new version.
    Swap,
    Start,
    /// Check that it is healthy.
    Check,
    /// Finish: the new version is current.
    Finish,
    /// Stop the new daemon in any state.
    EndNew,
    /// Point `current` to the previous version.
    SwapBack,
    /// Start the previous version's daemon.
    StartOld,
    /// Finish: the previous state is restored.
    FinishBack,
}

/// An upgrade in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Journal {
    /// Format version of this file.
    pub(super) form: u32,
    pub(super) from: VersionName,
    pub(super) to: VersionName,
    pub(super) state_root: PathBuf,
    /// State of the daemon before the upgrade.
    pub(super) ran: PriorDaemonState,
    /// Workspaces that were unhealthy before the upgrade.
    pub(super) ill_before: BTreeSet<String>,
    pub(super) way: UpgradeDirection,
    /// Step begun last, for display only: the next step is derived from the observed state.
    pub(super) step: Option<UpgradeStep>,
}

/// Error while reading or writing a journal.
#[derive(Debug, thiserror::Error)]
pub(super) enum JournalError {
    #[error("cannot read or write {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not a valid journal of an upgrade", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("{} has form {form}, which a newer goondan wrote", path.display())]
    Newer { path: PathBuf, form: u32 },
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        let (exit, hint) = match &error {
            JournalError::Io { path, .. } => (
                Exit::Internal,
                format!("check its permissions: `ls -ld {}`", path.display()),
            ),
            JournalError::Unreadable { path, .. } => (
                Exit::Damaged,
                format!(
                    "check the current version: `gdn daemon upgrade --list`; then `rm '{}'`",
                    path.display()
                ),
            ),
            JournalError::Newer { .. } => (
                Exit::VersionMismatch,
                "continue with the gdn of the newest version in `versions`".to_owned(),
            ),
        };
        Self::of(exit, &error, hint)
    }
}

impl Journal {
    pub(super) fn new(
        from: VersionName,
        to: VersionName,
        state_root: &Path,
        ran: PriorDaemonState,
    ) -> Self {
        Self {
            form: FORM,
            from,
            to,
            state_root: state_root.to_owned(),
            ran,
            ill_before: BTreeSet::new(),
            way: UpgradeDirection::Forward,
            step: None,
        }
    }

    /// Reads the journal of an upgrade that is in progress or was interrupted; none if there is none.
    pub(super) fn read(installation: &Installation) -> Result<Option<Self>, JournalError> {
        let path = installation.journal_file();
        let mut text = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(JOURNAL_BYTES_MAX).read_to_end(&mut text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => Err(error),
        }
        .map_err(|source| JournalError::Io {
            path: path.clone(),
            source,
        })?;
        let unreadable = |source| JournalError::Unreadable {
            path: path.clone(),
            source,
        };
        let form: Form = serde_json::from_slice(&text).map_err(unreadable)?;
        if form.form > FORM {
            let form = form.form;
            return Err(JournalError::Newer { path, form });
        }
        serde_json::from_slice(&text).map(Some).map_err(unreadable)
    }

    /// Writes the journal atomically and syncs it.
    pub(super) fn write(&self, installation: &Installation) -> Result<(), JournalError> {
        let path = installation.journal_file();
        let failed = |source| JournalError::Io {
            path: path.clone(),
            source,
        };
        let text = serde_json::to_string(self).map_err(|error| failed(error.into()))?;
        let prefix = installation.prefix();
        let mut file = tempfile::NamedTempFile::new_in(prefix).map_err(failed)?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.write_all(b"\n"))
            .and_then(|()| file.as_file().sync_all())
            .map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        sync_dir(prefix).map_err(failed)
    }

    /// Removes the journal at the end of the upgrade.
    pub(super) fn remove(installation: &Installation) -> Result<(), JournalError> {
        let path = installation.journal_file();
        let removed = match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        removed
            .and_then(|()| sync_dir(installation.prefix()))
            .map_err(|source| JournalError::Io { path, source })
    }

    /// `from 0.1.0-… to 0.2.0-…`.
    pub(super) fn versions_text(&self) -> String {
        format!("from {} to {}", self.from, self.to)
    }
}

/// Field that journals of every format version have.
#[derive(Deserialize)]
struct Form {
    form: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rel_1_journal_is_whole_or_missing_and_a_newer_one_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let there = Installation::at(dir.path().to_owned());
        assert_eq!(Journal::read(&there).unwrap(), None);
        let name = |build: &str| VersionName::new("0.1.0", build).unwrap();
        let (from, to) = (name(&"a".repeat(12)), name(&"b".repeat(12)));
        let mut journal = Journal::new(from, to, Path::new("/s"), PriorDaemonState::InBackground);
        for way in [
            UpgradeDirection::Forward,
            UpgradeDirection::Back {
                why: "x".to_owned(),
            },
        ] {
            journal.way = way;
            journal.step = Some(UpgradeStep::Drain);
            journal.write(&there).unwrap();
            assert_eq!(Journal::read(&there).unwrap().as_ref(), Some(&journal));
        }
        journal.form = FORM + 1;
        journal.write(&there).unwrap();
        let newer = Journal::read(&there).unwrap_err();
        assert!(matches!(newer, JournalError::Newer { form: 2, .. }));
        Journal::remove(&there).unwrap();
        Journal::remove(&there).unwrap();
        assert_eq!(Journal::read(&there).unwrap(), None);
    }
}
