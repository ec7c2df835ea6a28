//! The directory of backups.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use goondan_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{BackupError, During as _};
use crate::format::{FORMAT, Header, is_plain_name};
use crate::index;
use crate::seal;

/// File that marks a directory of backups.
const MARK: &str = "goondan-backup.json";

/// Directory of the lists of files.
const BACKUPS: &str = "backups";

/// Directory of the contents.
const PACKS: &str = "packs";

/// Ends of file names.
const BACKUP_END: &str = ".backup";
const PACK_END: &str = ".pack";
const UNFINISHED_END: &str = ".unfinished";

/// Maximum size of the mark, in bytes.
const MARK_BYTES_MAX: u64 = 64 * 1024;

/// Number of random bytes in the id of a backup directory.
const ID_BYTES: usize = 16;

#[derive(Debug, Serialize, Deserialize)]
struct Mark {
    format: u64,
    id: String,
}

/// A directory of backups.
#[derive(Debug)]
pub struct BackupDir {
    path: PathBuf,
    id: String,
    /// Its lock, if this process writes.
    _lock: Option<File>,
}

/// A backup in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupSummary {
    pub id: String,
    pub taken_at: Timestamp,
    /// Version of the goondan that made it.
    pub goondan: String,
    /// Public keys that it is encrypted for; empty if it is not encrypted.
    pub recipients: Vec<String>,
    pub files: u64,
    pub bytes: u64,
    /// Bytes that it added to the directory.
    pub new_bytes: u64,
}

impl From<Header> for BackupSummary {
    fn from(header: Header) -> Self {
        Self {
            id: header.id,
            taken_at: header.taken_at,
            goondan: header.goondan,
            recipients: header.recipients,
            files: header.files,
            bytes: header.bytes,
            new_bytes: header.new_bytes,
        }
    }
}

/// Backups and bytes that were removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pruned {
    pub removed: Vec<String>,
    pub kept: Vec<String>,
    pub bytes: u64,
}

impl BackupDir {
    /// Opens an existing directory of backups for reading.
    ///
    /// # Errors
    ///
    /// [`BackupError::NotABackupDirectory`].
    pub fn open(path: &Path) -> Result<Self, BackupError> {
        let mark = read_mark(path)?.ok_or_else(|| BackupError::NotABackupDirectory {
            path: path.to_owned(),
        })?;
        Ok(Self {
            path: path.to_owned(),
            id: mark.id,
            _lock: None,
        })
    }

    /// Opens a directory of backups for writing, and creates it if it does not exist or is empty.
    ///
    /// # Errors
    ///
    /// [`BackupError::Occupied`] if it contains other files; [`BackupError::Busy`].
    pub fn open_or_create(path: &Path) -> Result<Self, BackupError> {
        create_dir(path)?;
        if read_mark(path)?.is_none() {
            let mut found = fs::read_dir(path).during("list", path)?;
            if found.next().is_some() {
                return Err(BackupError::Occupied {
                    path: path.to_owned(),
                });
            }
            let id = seal::Key::random()?.to_hex();
            let mark = Mark {
                format: FORMAT,
                id: id.chars().take(2 * ID_BYTES).collect(),
            };
            let text = serde_json::to_string(&mark).map_err(std::io::Error::from);
            let file = path.join(MARK);
            replace(&file, text.during("write", &file)?.as_bytes())?;
        }
        for name in [BACKUPS, PACKS] {
            create_dir(&path.join(name))?;
        }
        Self::open(path)?.locked()
    }

    /// Takes the lock for writing.
    ///
    /// # Errors
    ///
    /// [`BackupError::Busy`] if another process has it.
    pub fn locked(self) -> Result<Self, BackupError> {
        let file = self.path.join(MARK);
        let lock = File::open(&file).during("open", &file)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                _lock: Some(lock),
                ..self
            }),
            Err(TryLockError::WouldBlock) => Err(BackupError::Busy { path: self.path }),
            Err(TryLockError::Error(error)) => Err(error).during("lock", &file),
        }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn file_of(&self, id: &str) -> PathBuf {
        self.path.join(BACKUPS).join(format!("{id}{BACKUP_END}"))
    }

    pub(crate) fn packs_dir(&self) -> PathBuf {
        self.path.join(PACKS)
    }

    /// Ids of all backups, oldest first.
    pub(crate) fn ids(&self) -> Result<Vec<String>, BackupError> {
        names_in(&self.path.join(BACKUPS), BACKUP_END)
    }

    /// All backups, oldest first.
    ///
    /// # Errors
    ///
    /// [`BackupError::Damaged`] if a backup has no valid header.
    pub fn list(&self) -> Result<Vec<BackupSummary>, BackupError> {
        let ids = self.ids()?;
        let headers = ids.iter().map(|id| index::read_header(&self.file_of(id)));
        headers
            .map(|header| header.map(BackupSummary::from))
            .collect()
    }

    /// The named backup, or the latest.
    pub(crate) fn select(&self, named: Option<&str>) -> Result<String, BackupError> {
        let mut ids = self.ids()?;
        match named {
            Some(named) if ids.iter().any(|id| id == named) => Ok(named.to_owned()),
            Some(named) => Err(BackupError::NotFound {
                path: self.path.clone(),
                id: named.to_owned(),
            }),
            None => ids.pop().ok_or_else(|| BackupError::Empty {
                path: self.path.clone(),
            }),
        }
    }

    /// Removes all but the latest backups, and the contents that only they used.
    ///
    /// # Errors
    ///
    /// [`BackupError`]; a damaged header is an error, because the contents that it uses are unknown.
    pub fn prune(&self, keep: usize) -> Result<Pruned, BackupError> {
        let ids = self.ids()?;
        let surplus = ids.len().saturating_sub(keep);
        let (old, kept) = ids.split_at(surplus);
        for id in kept {
            index::read_header(&self.file_of(id))?;
        }
        for id in old {
            let file = self.file_of(id);
            fs::remove_file(&file).during("remove", &file)?;
        }
        sync_dir(&self.path.join(BACKUPS))?;
        Ok(Pruned {
            removed: old.to_vec(),
            kept: kept.to_vec(),
            bytes: self.remove_unused()?,
        })
    }

    /// Removes packs that no backup uses, such as those of an interrupted one, and returns their
    /// size in bytes.
    pub(crate) fn remove_unused(&self) -> Result<u64, BackupError> {
        let mut used = BTreeSet::new();
        for id in self.ids()? {
            let header = index::read_header(&self.file_of(&id))?;
            used.extend(header.packs.into_iter().map(|pack| pack.name));
        }
        let dir = self.packs_dir();
        let mut bytes = 0;
        for name in names_in(&dir, PACK_END)? {
            if !used.contains(&name) {
                let file = dir.join(format!("{name}{PACK_END}"));
                bytes += fs::symlink_metadata(&file).during("inspect", &file)?.len();
                fs::remove_file(&file).during("remove", &file)?;
            }
        }
        sync_dir(&dir)?;
        Ok(bytes)
    }

    /// Publishes a backup, whose packs are durable.
    pub(crate) fn publish(&self, id: &str, file: &[u8]) -> Result<(), BackupError> {
        sync_dir(&self.packs_dir())?;
        replace(&self.file_of(id), file)
    }
}

fn read_mark(dir: &Path) -> Result<Option<Mark>, BackupError> {
    let path = dir.join(MARK);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).during("open", &path),
    };
    let mut text = String::new();
    file.take(MARK_BYTES_MAX)
        .read_to_string(&mut text)
        .during("read", &path)?;
    let mark: Mark = serde_json::from_str(&text)
        .map_err(|error| BackupError::damaged(&path, error.to_string()))?;
    if mark.format != FORMAT {
        return Err(BackupError::NewerFormat {
            path,
            format: mark.format,
        });
    }
    if !is_plain_name(&mark.id) {
        return Err(BackupError::damaged(&path, "its id is not valid"));
    }
    Ok(Some(mark))
}

/// Names of the files in a directory that end in `end`, without it, in order.
fn names_in(dir: &Path, end: &str) -> Result<Vec<String>, BackupError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).during("list", dir)? {
        let name = entry.during("list", dir)?.file_name();
        let name = name.to_str().and_then(|name| name.strip_suffix(end));
        names.extend(name.filter(|name| is_plain_name(name)).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

fn create_dir(path: &Path) -> Result<(), BackupError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .during("create", path)
}

pub(crate) fn sync_dir(path: &Path) -> Result<(), BackupError> {
    let dir = File::open(path).during("open", path)?;
    dir.sync_all().during("sync", path)
}

/// Replaces a file durably.
#[expect(
    clippy::disallowed_methods,
    reason = "the daemon does not write to a directory of backups"
)]
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), BackupError> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED_END);
    let unfinished = PathBuf::from(unfinished);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)
        .during("create", &unfinished)?;
    file.write_all(content).during("write", &unfinished)?;
    file.sync_all().during("sync", &unfinished)?;
    fs::rename(&unfinished, path).during("rename", &unfinished)?;
    match path.parent() {
        Some(dir) => sync_dir(dir),
        None => Ok(()),
    }
}
