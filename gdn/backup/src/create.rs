//! Makes a backup.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use goondan_protocol::time::Timestamp;
use serde::Serialize;

use crate::cache::{self, Known};
use crate::directory::BackupDir;
use crate::error::{BackupError, During as _};
use crate::format::{
    CHUNK_BYTES, ChunkRef, Content, Entry, FORMAT, FileState, Header, PackKey, StoredPack,
};
use crate::index::{self, Entries, Index};
use crate::pack::PackWriter;
use crate::seal::{self, Key, Recipients};
use crate::source::{self, Found, FoundKind, Opener};

/// A file that was changed this short before it was read may have changed again within the
/// resolution of its times, in seconds.
const UNSURE_SECONDS: i64 = 2;

/// Number of attempts to read a file that changes meanwhile.
const READ_TRIES: usize = 3;

/// Number of random hexadecimal digits in a backup's id.
const ID_DIGITS: usize = 8;

/// Settings of a backup.
#[derive(Debug)]
pub struct SessionOptions {
    pub state_root: PathBuf,
    /// Without recipients, the backup is not encrypted.
    pub recipients: Recipients,
    /// Directory for the list of files of the latest backup.
    pub cache: Option<PathBuf>,
    /// Copies every file, even if an earlier backup has it.
    pub full: bool,
    pub now: Timestamp,
    /// Version of this goondan.
    pub goondan: String,
}

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Created {
    pub id: String,
    pub taken_at: Timestamp,
    pub recipients: Vec<String>,
    pub files: u64,
    pub bytes: u64,
    pub new_bytes: u64,
    /// Paths that are not in the backup, with the reason.
    pub skipped: Vec<(String, String)>,
    /// Files that changed while they were read, in spite of several attempts.
    pub unsteady: Vec<String>,
    /// Reason why the next backup has to copy everything again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_cache: Option<String>,
}

/// A backup in progress.
pub struct Session {
    dir: BackupDir,
    options: SessionOptions,
    state_root: PathBuf,
    id: String,
    key: Option<Key>,
    known_packs: Vec<StoredPack>,
    packs: Vec<PackKey>,
    /// Files as of the latest pass.
    entries: Entries,
    writer: PackWriter,
    skipped: BTreeMap<String, String>,
    unsteady: Vec<String>,
}

impl Session {
    /// Begins a backup. Removes what an interrupted one left.
    ///
    /// # Errors
    ///
    /// [`BackupError`] if the directory cannot be used.
    pub fn begin(dir: BackupDir, options: SessionOptions) -> Result<Self, BackupError> {
        let root = &options.state_root;
        let no_root = |_| BackupError::NoStateRoot { path: root.clone() };
        let state_root = root.canonicalize().map_err(no_root)?;
        if !state_root.is_dir() {
            return Err(BackupError::NoStateRoot { path: state_root });
        }
        check_apart(dir.path(), &state_root)?;
        match dir.remove_unused() {
            // The packs of that backup are unknown, so none is removed. The new backup needs none.
            Ok(_) | Err(BackupError::Damaged { .. } | BackupError::NewerFormat { .. }) => {}
            Err(error) => return Err(error),
        }
        let random = Key::random()?.to_hex();
        // With milliseconds, because the ids of backups are in the order of their times.
        let time = options.now.to_string().replace(':', "").replace('.', "-");
        let time = time.trim_end_matches('Z');
        let random: String = random.chars().take(ID_DIGITS).collect();
        let id = format!("{time}-{random}");
        let is_plain = options.recipients.is_empty();
        let key = (!is_plain).then(Key::random).transpose()?;
        let known = match &options.cache {
            Some(cache) if !options.full => cache::read(cache, &dir, &state_root),
            _ => Known::default(),
        };
        // Contents in the clear must not become part of an encrypted backup.
        let is_mixed = known
            .index
            .packs
            .iter()
            .any(|pack| pack.key.is_none() != is_plain);
        let known = if is_mixed { Known::default() } else { known };
        Ok(Self {
            writer: PackWriter::new(dir.path(), &id, key.clone()),
            dir,
            state_root,
            options,
            id,
            key,
            known_packs: known.packs,
            packs: known.index.packs,
            entries: known.index.entries,
            skipped: BTreeMap::new(),
            unsteady: Vec::new(),
        })
    }

    /// Copies what has changed since the latest pass, or since the latest backup.
    ///
    /// # Errors
    ///
    /// [`BackupError`] if a file cannot be read or written.
    pub fn pass(&mut self) -> Result<(), BackupError> {
        self.skipped.clear();
        self.unsteady.clear();
        let mut found = Entries::new();
        let root = self.state_root.clone();
        source::walk(&root, &mut |path: Found<'_>| {
            let name = path.path.to_vec();
            if let Some(entry) = self.entry(path)? {
                found.insert(name, entry);
            }
            Ok(())
        })?;
        // Their directory can be gone, or a path that is not copied.
        found = with_parents(found);
        self.entries = found;
        Ok(())
    }

    fn entry(&mut self, found: Found<'_>) -> Result<Option<Entry>, BackupError> {
        let Found { path, mode, kind } = found;
        let content = match kind {
            FoundKind::Directory { modified } => Content::Directory { modified },
            FoundKind::Link(target) => Content::Link(hex::encode(target)),
            FoundKind::Other(why) => {
                let path = String::from_utf8_lossy(path).into_owned();
                self.skipped.insert(path, why.to_owned());
                return Ok(None);
            }
            FoundKind::File { state, opener } => match self.file(path, state, &opener)? {
                Some(content) => content,
                None => return Ok(None),
            },
        };
        Ok(Some(Entry { mode, content }))
    }

    fn file(
        &mut self,
        path: &[u8],
        state: FileState,
        opener: &Opener<'_>,
    ) -> Result<Option<Content>, BackupError> {
        let known = self.entries.get(path).map(|entry| entry.content.clone());
        if let Some(known) = &known
            && is_unchanged(known, &state)
        {
            return Ok(Some(known.clone()));
        }
        let before = match known {
            Some(Content::File { chunks, .. }) => chunks,
            _ => Vec::new(),
        };
        let place = self.state_root.join(OsStr::from_bytes(path));
        for attempt in 1..=READ_TRIES {
            let read = now_seconds();
            let opened = match opener.open() {
                Ok(Some(opened)) => opened,
                Ok(None) => return Ok(None),
                Err(rustix::io::Errno::ACCESS) => {
                    let path = String::from_utf8_lossy(path).into_owned();
                    self.skipped.insert(path, source::UNREADABLE.to_owned());
                    return Ok(None);
                }
                Err(error) => return Err(error).during("open", &place),
            };
            let (file, mut state) = opened;
            let mut file = File::from(file);
            let chunks = self.store(&mut file, &before, state.size, &place)?;
            let size = chunks.iter().map(|chunk| u64::from(chunk.3)).sum();
            let after = source::state_of(&rustix::fs::fstat(&file).during("inspect", &place)?);
            let is_steady = after == state && size == state.size;
            if is_steady || attempt == READ_TRIES {
                if !is_steady {
                    self.unsteady
                        .push(String::from_utf8_lossy(path).into_owned());
                    state.size = size;
                    // It is read again by the next pass.
                    state.inode = 0;
                }
                return Ok(Some(Content::File {
                    state,
                    read,
                    chunks,
                }));
            }
        }
        Ok(None)
    }

    /// Stores the content of a file, except for the parts that it had before.
    fn store(
        &mut self,
        file: &mut File,
        before: &[ChunkRef],
        size: u64,
        place: &Path,
    ) -> Result<Vec<ChunkRef>, BackupError> {
        let mut chunks = Vec::new();
        let mut file = file.take(size);
        let mut part = Vec::new();
        loop {
            part.clear();
            let most = u64::try_from(CHUNK_BYTES).unwrap_or(u64::MAX);
            file.by_ref()
                .take(most)
                .read_to_end(&mut part)
                .during("read", place)?;
            if part.is_empty() {
                return Ok(chunks);
            }
            let sha256 = seal::sha256(&part);
            let same = before.get(chunks.len()).filter(|known| {
                known.4 == sha256 && usize::try_from(known.3).is_ok_and(|len| len == part.len())
            });
            chunks.push(match same {
                Some(same) => same.clone(),
                None => self.writer.add(&mut self.packs, &part, sha256)?,
            });
        }
    }

    /// Completes the backup with the state of the latest pass.
    ///
    /// # Errors
    ///
    /// [`BackupError`] if it cannot be written.
    pub fn finish(self) -> Result<Created, BackupError> {
        let made = self.writer.end()?;
        let new_bytes = made.iter().map(|(_, pack)| pack.bytes).sum();
        let mut stored: BTreeMap<String, StoredPack> = BTreeMap::new();
        let made = made.into_iter().map(|(_, pack)| pack);
        for pack in self.known_packs.into_iter().chain(made) {
            stored.insert(pack.name.clone(), pack);
        }
        let index = with_used_packs(self.packs, self.entries);
        let named = index
            .packs
            .iter()
            .map(|pack| stored.get(&pack.name).cloned());
        let packs: Option<Vec<StoredPack>> = named.collect();
        let packs = packs.ok_or_else(|| {
            BackupError::damaged(self.dir.path(), "a pack of this backup is unknown")
        })?;
        let files = index
            .entries
            .values()
            .filter_map(|entry| match &entry.content {
                Content::File { state, .. } => Some(state.size),
                Content::Directory { .. } | Content::Link(_) => None,
            });
        let sizes: Vec<u64> = files.collect();
        let wrapped = self
            .key
            .as_ref()
            .map(|key| self.options.recipients.wrap(key));
        let header = Header {
            format: FORMAT,
            id: self.id,
            taken_at: self.options.now,
            goondan: self.options.goondan,
            recipients: self.options.recipients.names(),
            key: wrapped.transpose()?,
            files: u64::try_from(sizes.len()).unwrap_or(u64::MAX),
            bytes: sizes.iter().sum(),
            new_bytes,
            packs,
        };
        let file = index::to_file(&header, self.key.as_ref(), &index)?;
        self.dir.publish(&header.id, &file)?;
        let kept = match &self.options.cache {
            Some(cache) => {
                let packs = header.packs.clone();
                cache::write(cache, &self.dir, &self.state_root, &index, packs)
                    .map_err(|error| error.to_string())
            }
            None => Err("this user has no cache directory".to_owned()),
        };
        Ok(Created {
            id: header.id,
            taken_at: header.taken_at,
            recipients: header.recipients,
            files: header.files,
            bytes: header.bytes,
            new_bytes,
            skipped: self.skipped.into_iter().collect(),
            unsteady: self.unsteady,
            no_cache: kept.err(),
        })
    }
}

fn now_seconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(0))
}

/// True if a file certainly has the content that was stored.
fn is_unchanged(known: &Content, now: &FileState) -> bool {
    let Content::File { state, read, .. } = known else {
        return false;
    };
    let changed = state.modified.0.max(state.changed.0);
    state == now && changed < read.saturating_sub(UNSURE_SECONDS)
}

/// Refuses a directory of backups below the state root, or above it.
fn check_apart(dir: &Path, state_root: &Path) -> Result<(), BackupError> {
    let dir = dir.canonicalize().during("resolve", dir)?;
    if dir.starts_with(state_root) || state_root.starts_with(&dir) {
        return Err(BackupError::Nested {
            path: dir,
            root: state_root.to_owned(),
        });
    }
    Ok(())
}

/// Entries whose directories are entries, too.
fn with_parents(found: Entries) -> Entries {
    let mut kept = Entries::new();
    for (path, entry) in found {
        let end = path.iter().rposition(|byte| *byte == b'/');
        let is_in_directory = end.is_none_or(|end| {
            let parent = path.get(..end).and_then(|parent| kept.get(parent));
            parent.is_some_and(|parent| matches!(parent.content, Content::Directory { .. }))
        });
        if is_in_directory {
            kept.insert(path, entry);
        }
    }
    kept
}

/// The list with only the packs that it refers to.
fn with_used_packs(packs: Vec<PackKey>, mut entries: Entries) -> Index {
    let mut places: BTreeMap<usize, usize> = BTreeMap::new();
    let chunks = entries
        .values()
        .filter_map(|entry| match &entry.content {
            Content::File { chunks, .. } => Some(chunks),
            Content::Directory { .. } | Content::Link(_) => None,
        })
        .flatten();
    for chunk in chunks {
        places.insert(chunk.0, 0);
    }
    for (place, index) in places.values_mut().enumerate() {
        *index = place;
    }
    for entry in entries.values_mut() {
        if let Content::File { chunks, .. } = &mut entry.content {
            for chunk in chunks {
                chunk.0 = places.get(&chunk.0).copied().unwrap_or(chunk.0);
            }
        }
    }
    let packs = packs.into_iter().enumerate();
    let used = packs.filter(|(index, _)| places.contains_key(index));
    Index {
        packs: used.map(|(_, pack)| pack).collect(),
        entries,
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}
