//! The latest list of files of a backup directory, on the machine that made it. With it, the next
//! backup copies only what has changed, without a key that decrypts earlier backups.
//!
//! A missing or unusable cache only makes the next backup complete.

use std::fs::{self, DirBuilder, File};
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::directory::{BackupDir, replace};
use crate::error::BackupError;
use crate::format::{INDEX_BYTES_MAX, StoredPack};
use crate::index::Index;
use crate::pack;

/// The cached list, and where it belongs.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    directory: String,
    state_root: PathBuf,
    packs: Vec<StoredPack>,
}

/// A list, and its packs as stored.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) index: Index,
    pub(crate) packs: Vec<StoredPack>,
}

fn file_of(cache: &Path, dir: &BackupDir) -> PathBuf {
    cache.join(dir.id())
}

/// Reads the list of the latest backup of a state root; empty without a usable one.
pub(crate) fn read(cache: &Path, dir: &BackupDir, state_root: &Path) -> Known {
    read_from(&file_of(cache, dir), dir, state_root).unwrap_or_default()
}

fn read_from(path: &Path, dir: &BackupDir, state_root: &Path) -> Option<Known> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(INDEX_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (head, list) = bytes.split_at_checked(end)?;
    let head: Head = serde_json::from_slice(head).ok()?;
    if head.directory != dir.id() || head.state_root != state_root {
        return None;
    }
    let index = Index::decode(list.get(1..)?).ok()?;
    let named = head.packs.iter().map(|pack| &pack.name);
    if !named.eq(index.packs.iter().map(|pack| &pack.name)) {
        return None;
    }
    // A pack that was removed or replaced would make the new backup unusable.
    let is_there = |stored: &StoredPack| {
        let file = pack::file_of(dir.path(), &stored.name);
        fs::symlink_metadata(file).is_ok_and(|found| found.is_file() && found.len() == stored.bytes)
    };
    head.packs.iter().all(is_there).then_some(Known {
        index,
        packs: head.packs,
    })
}

/// Stores the list of a backup.
pub(crate) fn write(
    cache: &Path,
    dir: &BackupDir,
    state_root: &Path,
    index: &Index,
    packs: Vec<StoredPack>,
) -> Result<(), BackupError> {
    let failed = |source| BackupError::Io {
        doing: "write",
        path: cache.to_owned(),
        source,
    };
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(cache).map_err(failed)?;
    let head = Head {
        directory: dir.id().to_owned(),
        state_root: state_root.to_owned(),
        packs,
    };
    let mut bytes = serde_json::to_vec(&head).map_err(|error| failed(error.into()))?;
    bytes.push(b'\n');
    bytes.extend(index.encode().map_err(failed)?);
    replace(&file_of(cache, dir), &bytes)
}
