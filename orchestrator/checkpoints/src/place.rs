//! Paths of checkpoints in a work area, and selection of the saved files.

use std::path::{Path, PathBuf};

use goondan_durable::disk::{DiskFile, Folder, append_all, read_all};
use goondan_protocol::secret_file::holds_secrets;
use goondan_trees::{Excludes, RelativePath, remove_all};

use crate::error::{CheckpointError, IoContext as _};
use crate::id::CheckpointId;

/// Folder of the checkpoints in a work area or a conversation. Opening a [`Store`](crate::Store) creates it.
pub const CHECKPOINTS: &str = ".checkpoints";
/// The files of a checkpoint.
pub(crate) const SNAPSHOT: &str = "snapshot.tar.gz";
/// Description of a checkpoint.
pub(crate) const METADATA: &str = "metadata.json";
/// Name of the newest checkpoint, in [`CHECKPOINTS`].
pub(crate) const LATEST: &str = "latest.json";
/// Cached facts about the files of the newest checkpoint, in [`CHECKPOINTS`].
pub(crate) const INDEX: &str = "index";
/// A restore in progress, in [`CHECKPOINTS`].
pub(crate) const RESTORING: &str = "restoring";
/// The archive that a drill has unpacked, in [`CHECKPOINTS`].
pub(crate) const DRILL: &str = "drill";
/// The unpacked conversation of a rewind in progress, in [`CHECKPOINTS`].
pub(crate) const REWINDING: &str = "rewinding";
/// Prefix of the names of checkpoints that are being made.
pub(crate) const PARTIAL: &str = ".making-";
/// Prefix of the names of checkpoints that are being removed.
pub(crate) const REMOVING: &str = ".removing-";
/// Ends the names of files that are being written.
pub(crate) const TEMPORARY: &str = ".tmp";
/// Begins the name of the directory in the work area that is there for the time of a restore.
pub(crate) const STAGING: &str = ".goondan-restore";
/// goondan's own files about the task. They are saved and never restored, because history must not
/// be rewritten.
pub(crate) const OWN: &str = ".metadata";

/// Paths that no snapshot contains (`CKPT-3`) and no restore changes.
const LEFT_OUT: [&str; 6] = [
    "/.checkpoints",
    "/.cache",
    "/.logs",
    "/.metadata/secrets*",
    // Temporary files of atomic replacements by the daemon.
    "/.metadata/**/*.tmp",
    "/.goondan-restore*",
];

/// The same of a copy of the project.
const LEFT_OUT_OF_COPIES: [&str; 1] = ["/.goondan-restore*"];

pub(crate) fn below(name: impl AsRef<Path>) -> PathBuf {
    Path::new(CHECKPOINTS).join(name)
}

pub(crate) fn folder_of(id: CheckpointId) -> PathBuf {
    below(id.to_string())
}

/// Owner of the checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A task's: all of its work area.
    Task,
    /// A task's that works on a copy of the project: all of that, which lies outside of the work area (`REPO-1`).
    Copy,
    /// A conversation's: its work directory, and of its own files those that it is made of (`CKPT-6`).
    Conversation,
}

/// The confirmed messages of a conversation, below its directory.
pub(crate) const BASE: &str = "messages/base.jsonl";
/// Directory in which the tools work.
const WORK: &str = "work";
/// Files of a conversation besides [`BASE`].
const CONVERSATION: [&str; 3] = [BASE, "messages/base.sums.jsonl", "extensions"];

impl Scope {
    /// Paths that are excluded from snapshots.
    pub(crate) fn excludes(self) -> Result<Excludes, CheckpointError> {
        let left_out = match self {
            // Its names are the project's own.
            Self::Copy => &LEFT_OUT_OF_COPIES[..],
            Self::Task | Self::Conversation => &LEFT_OUT[..],
        };
        let excludes =
            Excludes::new(left_out).map_err(|error| CheckpointError::invalid(error.to_string()))?;
        let excludes = excludes.rule(holds_secrets, "it looks like a file with secrets");
        if self != Self::Conversation {
            return Ok(excludes);
        }
        let paths = |names: &[&str]| -> Result<Vec<RelativePath>, CheckpointError> {
            let paths = names.iter().map(|name| RelativePath::new(name.as_bytes()));
            let paths: Result<Vec<_>, _> = paths.collect();
            paths.map_err(|error| CheckpointError::invalid(error.to_string()))
        };
        let own = paths(&CONVERSATION)?;
        let held = own.iter().cloned().chain(paths(&[WORK])?);
        // The state of an extension is saved regardless of the extension's name.
        Ok(excludes.only(held).except(own))
    }

    /// True if goondan itself writes a path: it is saved, but no restore of files changes it.
    pub(crate) fn is_own(self, path: &RelativePath) -> bool {
        match self {
            Self::Task => is_or_below(path, OWN),
            Self::Copy => false,
            Self::Conversation => !is_or_below(path, WORK),
        }
    }

    /// True if a path may change while a checkpoint of an idle work area is made.
    pub(crate) fn may_move(self) -> fn(&RelativePath) -> bool {
        match self {
            Self::Task => |path| is_or_below(path, OWN),
            Self::Copy | Self::Conversation => |_| false,
        }
    }
}

fn is_or_below(path: &RelativePath, name: &str) -> bool {
    let rest = path.as_bytes().strip_prefix(name.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Writes a new file, synced.
pub(crate) fn write_new(
    folder: &dyn Folder,
    path: &Path,
    content: &[u8],
) -> Result<(), CheckpointError> {
    let mut file = folder.create(path, 0o600).during("create", path)?;
    append_all(file.as_mut(), content).during("write", path)?;
    file.sync().during("sync", path)
}

/// Replaces a file without syncing it, because its content may be lost.
pub(crate) fn replace_unsynced(
    folder: &dyn Folder,
    path: &Path,
    content: &[u8],
) -> Result<(), CheckpointError> {
    remove_all(folder, path)?;
    let mut file = folder.create(path, 0o600).during("create", path)?;
    append_all(file.as_mut(), content).during("write", path)
}

/// Replaces a file durably.
pub(crate) fn replace(
    folder: &dyn Folder,
    path: &Path,
    content: &[u8],
) -> Result<(), CheckpointError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY);
    let temporary = Path::new(&temporary);
    remove_all(folder, temporary)?;
    write_new(folder, temporary, content)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    if folder.look(path).during("inspect", path)?.is_some() {
        folder.exchange(temporary, path).during("exchange", path)?;
        folder.sync_dir(directory).during("sync", directory)?;
        remove_all(folder, temporary)?;
    } else {
        folder.rename_new(temporary, path).during("rename", path)?;
    }
    folder.sync_dir(directory).during("sync", directory)
}

/// Reads a file; `None` if it does not exist.
pub(crate) fn read_file(
    folder: &dyn Folder,
    path: &Path,
    most: usize,
) -> Result<Option<Vec<u8>>, CheckpointError> {
    if folder.look(path).during("inspect", path)?.is_none() {
        return Ok(None);
    }
    let mut file = folder.read(path).during("open", path)?;
    read_all(file.as_mut(), most).during("read", path).map(Some)
}

/// A file of a folder as a stream.
pub(crate) struct Stream {
    file: Box<dyn DiskFile>,
    offset: u64,
}

impl Stream {
    pub(crate) fn new(file: Box<dyn DiskFile>) -> Self {
        Self { file, offset: 0 }
    }
}

impl std::io::Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read_at(buf, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}
