//! Packs: files with the contents of many files.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ring::digest;

use crate::error::{BackupError, During as _};
use crate::format::{CHUNK_BYTES, ChunkRef, PACK_BYTES, PackKey, StoredPack};
use crate::seal::{self, Key};
use crate::stored_file::open_stored;

/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 1024 * 1024;

/// Number of packs that a reader keeps open.
const OPEN_PACKS_MAX: usize = 32;

/// Stored length of a chunk is at most this much longer than its content.
const OVERHEAD_BYTES: u32 = 64;

/// File of a pack.
pub(crate) fn file_of(dir: &Path, name: &str) -> PathBuf {
    dir.join("packs").join(format!("{name}.pack"))
}

struct OpenPack {
    name: String,
    path: PathBuf,
    file: File,
    key: Option<Key>,
    /// Index among all packs of the backup.
    index: usize,
    len: u64,
    digest: digest::Context,
    buffer: Vec<u8>,
}

/// Writes the packs of one backup.
pub(crate) struct PackWriter {
    dir: PathBuf,
    id: String,
    key: Option<Key>,
    open: Option<OpenPack>,
    /// Finished packs, with their indexes.
    finished: Vec<(usize, StoredPack)>,
    made: usize,
}

impl PackWriter {
    pub(crate) fn new(dir: &Path, id: &str, key: Option<Key>) -> Self {
        Self {
            dir: dir.to_owned(),
            id: id.to_owned(),
            key,
            open: None,
            finished: Vec::new(),
            made: 0,
        }
    }

    /// Stores a content. `packs` gets an entry for each new pack.
    pub(crate) fn add(
        &mut self,
        packs: &mut Vec<PackKey>,
        content: &[u8],
        sha256: String,
    ) -> Result<ChunkRef, BackupError> {
        let mut open = match self.open.take() {
            Some(open) if open.len < PACK_BYTES => open,
            Some(full) => {
                self.finish(full)?;
                self.begin(packs)?
            }
            None => self.begin(packs)?,
        };
        let at = open.len;
        let stored = seal::seal(open.key.as_ref(), at, open.name.as_bytes(), content)?;
        open.digest.update(&stored);
        open.len += u64::try_from(stored.len()).unwrap_or(0);
        open.buffer.extend_from_slice(&stored);
        if open.buffer.len() >= BUFFER_BYTES {
            open.file
                .write_all(&open.buffer)
                .during("write", &open.path)?;
            open.buffer.clear();
        }
        let len = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let chunk = ChunkRef(
            open.index,
            at,
            len(stored.len()),
            len(content.len()),
            sha256,
        );
        self.open = Some(open);
        Ok(chunk)
    }

    fn begin(&mut self, packs: &mut Vec<PackKey>) -> Result<OpenPack, BackupError> {
        self.made += 1;
        let name = format!("{}-{}", self.id, self.made);
        let path = file_of(&self.dir, &name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .during("create", &path)?;
        let key = self.key.as_ref().map(|key| key.derive(&name));
        let index = packs.len();
        packs.push(PackKey {
            name: name.clone(),
            key: key.as_ref().map(Key::to_hex),
        });
        Ok(OpenPack {
            name,
            path,
            file,
            key,
            index,
            len: 0,
            digest: digest::Context::new(&digest::SHA256),
            buffer: Vec::new(),
        })
    }

    fn finish(&mut self, mut open: OpenPack) -> Result<(), BackupError> {
        open.file
            .write_all(&open.buffer)
            .during("write", &open.path)?;
        open.file.sync_all().during("sync", &open.path)?;
        let pack = StoredPack {
            name: open.name,
            bytes: open.len,
            sha256: hex::encode(open.digest.finish()),
        };
        self.finished.push((open.index, pack));
        Ok(())
    }

    /// Makes all packs durable and returns them.
    pub(crate) fn end(mut self) -> Result<Vec<(usize, StoredPack)>, BackupError> {
        if let Some(open) = self.open.take() {
            self.finish(open)?;
        }
        Ok(self.finished)
    }
}

/// Reads contents from packs.
pub(crate) struct PackReader {
    dir: PathBuf,
    packs: Vec<(String, Option<Key>)>,
    open: HashMap<usize, File>,
}

impl PackReader {
    pub(crate) fn new(dir: &Path, packs: &[PackKey]) -> Self {
        let packs = packs.iter().map(|pack| {
            (
                pack.name.clone(),
                pack.key.as_deref().and_then(Key::from_hex),
            )
        });
        Self {
            dir: dir.to_owned(),
            packs: packs.collect(),
            open: HashMap::new(),
        }
    }

    /// Reads a content and compares it with its digest.
    pub(crate) fn read(&mut self, chunk: &ChunkRef) -> Result<Vec<u8>, BackupError> {
        let ChunkRef(index, at, stored_len, len, sha256) = chunk;
        let Some((name, key)) = self.packs.get(*index) else {
            return Err(BackupError::damaged(
                &self.dir,
                "it refers to an unknown pack",
            ));
        };
        let path = file_of(&self.dir, name);
        if !is_plausible(chunk) {
            return Err(BackupError::damaged(
                &path,
                "a part has an impossible length",
            ));
        }
        if !self.open.contains_key(index) {
            if self.open.len() >= OPEN_PACKS_MAX {
                self.open.clear();
            }
            self.open.insert(*index, open_stored(&path)?);
        }
        let Some(file) = self.open.get(index) else {
            return Err(BackupError::damaged(&path, "it cannot be opened"));
        };
        let mut stored = vec![0; usize::try_from(*stored_len).unwrap_or(0)];
        file.read_exact_at(&mut stored, *at)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => BackupError::damaged(&path, "it is too short"),
                _ => BackupError::Io {
                    doing: "read",
                    path: path.clone(),
                    source: error,
                },
            })?;
        let content = seal::open(key.as_ref(), *at, name.as_bytes(), stored, u64::from(*len))
            .map_err(|problem| BackupError::damaged(&path, problem))?;
        if content.len() != usize::try_from(*len).unwrap_or(usize::MAX)
            || seal::sha256(&content) != *sha256
        {
            return Err(BackupError::damaged(
                &path,
                "a part differs from its digest",
            ));
        }
        Ok(content)
    }
}

/// True if the lengths of a chunk are possible.
pub(crate) fn is_plausible(chunk: &ChunkRef) -> bool {
    let ChunkRef(_, at, stored_len, len, sha256) = chunk;
    let most = u32::try_from(CHUNK_BYTES).unwrap_or(u32::MAX);
    (1..=most).contains(len)
        && (1..=len.saturating_add(OVERHEAD_BYTES)).contains(stored_len)
        && at.checked_add(u64::from(*stored_len)).is_some()
        && sha256.len() == 64
}
