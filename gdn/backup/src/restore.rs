//! Restores a state root.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{Seek as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use goondan_protocol::control::RestoredFrom;
use goondan_protocol::state_root::RESTORE_MARK;
use goondan_protocol::time::Timestamp;
use serde::Serialize;

use crate::directory::{BackupDir, replace, sync_dir};
use crate::error::{BackupError, During as _};
use crate::format::{CHUNK_BYTES, ChunkRef, Content, MODE_BITS, Time};
use crate::index::{BackupFile, Index};
use crate::pack::PackReader;
use crate::seal::{self, Identities, Key};

/// Number of random digits in the name of an unfinished state root.
const RANDOM_DIGITS: usize = 12;

/// Settings of a restore.
#[derive(Debug)]
pub struct RestoreOptions {
    /// Id of the backup; the latest if there is none.
    pub backup: Option<String>,
    pub identities: Identities,
    /// The state root, which must be missing or empty.
    pub target: PathBuf,
    pub now: Timestamp,
}

/// A restored state root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restored {
    pub id: String,
    pub taken_at: Timestamp,
    pub state_root: PathBuf,
    pub files: u64,
    pub bytes: u64,
}

/// Restores a backup completely, or changes nothing.
///
/// # Errors
///
/// [`BackupError`].
pub fn restore(dir: &BackupDir, options: &RestoreOptions) -> Result<Restored, BackupError> {
    let target = &options.target;
    check_is_free(target)?;
    let id = dir.select(options.backup.as_deref())?;
    let path = dir.file_of(&id);
    let file = BackupFile::read(&path)?;
    let (index, _) = file.index(&path, &options.identities)?;
    let sizes = index.entries.values().map(|entry| match &entry.content {
        Content::File { state, .. } => state.size,
        Content::Directory { .. } | Content::Link(_) => 0,
    });
    let bytes = sizes.fold(0, u64::saturating_add);
    let holes = Holes::new();
    let parent = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).during("create", parent)?;
    check_is_not_mounted(target, parent)?;
    check_space(parent, holes.stored_bytes(&index))?;
    let random: String = Key::random()?
        .to_hex()
        .chars()
        .take(RANDOM_DIGITS)
        .collect();
    let name = target.file_name().unwrap_or_else(|| OsStr::new("state"));
    let mut unfinished = name.to_owned();
    unfinished.push(format!(".restoring-{random}"));
    let unfinished = parent.join(unfinished);
    create_dir(&unfinished)?;
    let header = &file.header;
    let mark = RestoredFrom {
        backup_id: id.clone(),
        taken_at: header.taken_at,
        restored_at: options.now,
    };
    let written = write(dir, &index, &holes, &unfinished, &mark)
        .and_then(|()| put_in_place(&unfinished, target, parent));
    if let Err(error) = written {
        remove(&unfinished);
        return Err(error);
    }
    Ok(Restored {
        id,
        taken_at: header.taken_at,
        state_root: target.clone(),
        files: header.files,
        bytes,
    })
}

fn check_is_free(target: &Path) -> Result<(), BackupError> {
    let exists = || BackupError::TargetExists {
        path: target.to_owned(),
    };
    match fs::symlink_metadata(target) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).during("inspect", target),
        Ok(found) if !found.is_dir() => Err(exists()),
        Ok(_) => match fs::read_dir(target).during("list", target)?.next() {
            None => Ok(()),
            Some(_) => Err(exists()),
        },
    }
}

/// A rename cannot replace a mount point, which would only be found after everything was written.
fn check_is_not_mounted(target: &Path, parent: &Path) -> Result<(), BackupError> {
    let device = |path: &Path| -> Result<u64, BackupError> {
        Ok(fs::metadata(path).during("inspect", path)?.dev())
    };
    if target.exists() && device(target)? != device(parent)? {
        return Err(BackupError::MountPoint {
            path: target.to_owned(),
        });
    }
    Ok(())
}

fn check_space(parent: &Path, needed: u64) -> Result<(), BackupError> {
    let space = rustix::fs::statvfs(parent).during("inspect", parent)?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if needed > free {
        return Err(BackupError::NoSpace {
            path: parent.to_owned(),
            needed,
            free,
        });
    }
    Ok(())
}

fn create_dir(path: &Path) -> Result<(), BackupError> {
    DirBuilder::new()
        .mode(0o700)
        .create(path)
        .during("create", path)
}

/// Recognizes parts that are all zeros. They are restored as holes, because a program of an agent
/// can create sparse files that are larger than the disk.
struct Holes {
    sha256: String,
}

impl Holes {
    fn new() -> Self {
        Self {
            sha256: seal::sha256(&vec![0; CHUNK_BYTES]),
        }
    }

    fn contains(&self, chunk: &ChunkRef) -> bool {
        usize::try_from(chunk.3).is_ok_and(|len| len == CHUNK_BYTES) && chunk.4 == self.sha256
    }

    /// Size of all files without their holes.
    fn stored_bytes(&self, index: &Index) -> u64 {
        let chunks = index
            .entries
            .values()
            .flat_map(|entry| match &entry.content {
                Content::File { chunks, .. } => chunks.as_slice(),
                Content::Directory { .. } | Content::Link(_) => &[],
            });
        let stored = chunks.filter(|chunk| !self.contains(chunk));
        stored
            .map(|chunk| u64::from(chunk.3))
            .fold(0, u64::saturating_add)
    }
}

/// Writes everything below a new directory. Links come last, so that no path leads through one.
fn write(
    dir: &BackupDir,
    index: &Index,
    holes: &Holes,
    root: &Path,
    mark: &RestoredFrom,
) -> Result<(), BackupError> {
    let mut packs = PackReader::new(dir.path(), &index.packs);
    let place = |path: &[u8]| root.join(OsStr::from_bytes(path));
    for (path, entry) in &index.entries {
        let place = place(path);
        match &entry.content {
            Content::Directory { .. } => create_dir(&place)?,
            Content::Link(_) => {}
            Content::File { state, chunks, .. } => {
                let mut file = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&place)
                    .during("create", &place)?;
                for chunk in chunks {
                    if holes.contains(chunk) {
                        file.seek_relative(i64::from(chunk.3))
                            .during("write", &place)?;
                    } else {
                        let content = packs.read(chunk)?;
                        file.write_all(&content).during("write", &place)?;
                    }
                }
                // The file can end with a hole.
                file.set_len(state.size).during("write", &place)?;
                file.set_permissions(Permissions::from_mode(entry.mode & MODE_BITS))
                    .during("set the mode of", &place)?;
                set_modified(&file, state.modified, &place)?;
                sync_unless_together(&file, &place)?;
            }
        }
    }
    let text = serde_json::to_vec(mark).map_err(std::io::Error::from);
    let file = root.join(RESTORE_MARK);
    if let Some(system) = file.parent().filter(|system| !system.is_dir()) {
        create_dir(system)?;
    }
    replace(&file, &text.during("write", &file)?)?;
    for (path, entry) in &index.entries {
        if let Content::Link(target) = &entry.content {
            let target = hex::decode(target).unwrap_or_default();
            let place = place(path);
            symlink(OsStr::from_bytes(&target), &place).during("create", &place)?;
        }
    }
    // A directory without the right to write gets its mode after its contents.
    for (path, entry) in index.entries.iter().rev() {
        if let Content::Directory { modified } = entry.content {
            let place = place(path);
            let opened = File::open(&place).during("open", &place)?;
            opened
                .set_permissions(Permissions::from_mode(entry.mode & MODE_BITS))
                .during("set the mode of", &place)?;
            set_modified(&opened, modified, &place)?;
            sync_unless_together(&opened, &place)?;
        }
    }
    sync_together(root)
}

fn set_modified(file: &File, modified: Time, place: &Path) -> Result<(), BackupError> {
    let (seconds, nanoseconds) = modified;
    let since = Duration::new(seconds.unsigned_abs(), nanoseconds.min(999_999_999));
    let time = match seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(since),
        _ => SystemTime::UNIX_EPOCH.checked_sub(since),
    };
    match time {
        Some(time) => file.set_modified(time).during("set the time of", place),
        None => Ok(()),
    }
}

/// On Linux, one call makes all files durable.
fn sync_unless_together(file: &File, place: &Path) -> Result<(), BackupError> {
    if cfg!(target_os = "linux") {
        Ok(())
    } else {
        file.sync_all().during("sync", place)
    }
}

#[cfg(target_os = "linux")]
fn sync_together(root: &Path) -> Result<(), BackupError> {
    let dir = File::open(root).during("open", root)?;
    rustix::fs::syncfs(&dir).during("sync", root)
}

#[cfg(not(target_os = "linux"))]
fn sync_together(root: &Path) -> Result<(), BackupError> {
    sync_dir(root)
}

#[expect(
    clippy::disallowed_methods,
    reason = "no daemon owns a state root that does not exist yet"
)]
fn put_in_place(unfinished: &Path, target: &Path, parent: &Path) -> Result<(), BackupError> {
    check_is_free(target)?;
    // An empty directory is replaced by the rename.
    fs::rename(unfinished, target).during("rename", unfinished)?;
    sync_dir(parent)
}

/// Removes an unfinished state root, whose directories can have any mode.
fn remove(unfinished: &Path) {
    let opened = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o700)).is_ok();
    let mut dirs = vec![unfinished.to_owned()];
    while let Some(dir) = dirs.pop() {
        if !opened(&dir) {
            continue;
        }
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        dirs.extend(below.map(|entry| entry.path()));
    }
    // The error of the restore is reported; the leftover has a name that shows what it is.
    drop(fs::remove_dir_all(unfinished));
}
