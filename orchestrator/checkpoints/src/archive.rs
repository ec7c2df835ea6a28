//! Writes `snapshot.tar.gz`: a tar archive of gzip members, one for each group of entries
//! (`CKPT-3`).

use std::collections::HashMap;
use std::io;
use std::path::Path;

use goondan_durable::disk::{DiskFile, Folder, NodeKind, read_full};
use goondan_trees::tar_entry::{padding, push_header, seconds};
use goondan_trees::{
    Digest, Manifest, ManifestBuilder, Names, RelativePath, SurveyedPath, TreeEntry, TreeError,
};
use sha2::{Digest as _, Sha256};

use crate::error::{CheckpointError, IoContext as _};
use crate::index::{Index, IndexedFile, Member};
use crate::limits::{ARCHIVE_WRITE_BYTES, FILE_READ_ATTEMPTS, GROUP_BYTES_MAX, tree_limits};
use crate::output::Output;
use crate::record::Consistency;

/// Two zero blocks end an archive.
const END: [u8; 1024] = [0; 1024];

/// Maximum size of a file that is read at once. Larger files are read in pieces.
const WHOLE_BYTES_MAX: u64 = 2 * GROUP_BYTES_MAX;

/// Name of the archive in errors.
const ARCHIVE: &str = crate::place::SNAPSHOT;

pub(crate) struct ArchiveParams<'w> {
    pub(crate) source: &'w dyn Folder,
    /// Index of the newest checkpoint, and its archive.
    pub(crate) base: Option<(&'w Index, Box<dyn DiskFile>)>,
    pub(crate) consistency: Consistency,
    /// Time of the file system before the first file was inspected.
    pub(crate) begun: i128,
    /// True if goondan itself may be writing this file.
    pub(crate) may_move: fn(&RelativePath) -> bool,
}

/// A written archive that is not synced.
pub(crate) struct UnsyncedArchive {
    pub(crate) manifest: Manifest,
    pub(crate) checksum: Digest,
    pub(crate) bytes: u64,
    pub(crate) files: HashMap<RelativePath, IndexedFile>,
    pub(crate) members: HashMap<Digest, Member>,
    pub(crate) files_read: usize,
    /// Files that the user has no right to read, which are left out.
    pub(crate) unreadable: Vec<RelativePath>,
}

/// Writes an archive of entries, which are sorted by path.
pub(crate) fn write(
    writing: ArchiveParams<'_>,
    entries: &[SurveyedPath],
    into: &mut dyn DiskFile,
) -> Result<UnsyncedArchive, CheckpointError> {
    let mut work = ArchiveWriter {
        writing,
        out: Output::new(into),
        builder: ManifestBuilder::new(tree_limits(), Names::Local),
        files: HashMap::with_capacity(entries.len()),
        members: HashMap::new(),
        files_read: 0,
        unreadable: Vec::new(),
    };
    for group in crate::groups::groups(entries) {
        work.group(entries.get(group).unwrap_or_default())?;
    }
    let ArchiveWriter {
        mut out,
        builder,
        files,
        members,
        files_read,
        unreadable,
        ..
    } = work;
    out.member(&END).during("write", Path::new(ARCHIVE))?;
    let (checksum, bytes) = out.finish().during("write", Path::new(ARCHIVE))?;
    Ok(UnsyncedArchive {
        manifest: builder.finish(),
        checksum,
        bytes,
        files,
        members,
        files_read,
        unreadable,
    })
}

struct ArchiveWriter<'w, 'o> {
    writing: ArchiveParams<'w>,
    out: Output<'o>,
    builder: ManifestBuilder,
    files: HashMap<RelativePath, IndexedFile>,
    members: HashMap<Digest, Member>,
    files_read: usize,
    unreadable: Vec<RelativePath>,
}

/// Entries in the order of the archive.
type Entries<'e> = Vec<(&'e SurveyedPath, TreeEntry)>;

impl ArchiveWriter<'_, '_> {
    fn group(&mut self, group: &[SurveyedPath]) -> Result<(), CheckpointError> {
        let known: Option<Entries<'_>> = group
            .iter()
            .map(|found| Some((found, self.known(found)?)))
            .collect();
        if let Some(known) = known {
            let key = key_of(&known);
            if self.take(&key)? {
                for (found, entry) in known {
                    self.remember(found, &entry);
                    self.builder.add(found.path.clone(), entry)?;
                }
                return Ok(());
            }
        }
        match group {
            [long] if long.stat.kind == NodeKind::File && long.stat.len > WHOLE_BYTES_MAX => {
                self.long_file(long)
            }
            _ => self.read_group(group),
        }
    }

    /// The entry, if it is known without reading the file.
    fn known(&self, found: &SurveyedPath) -> Option<TreeEntry> {
        Some(match found.stat.kind {
            NodeKind::Directory => TreeEntry::Directory {
                mode: found.stat.mode,
            },
            NodeKind::Link => TreeEntry::Link {
                target: found.target.clone()?,
            },
            NodeKind::File => {
                let (index, _) = self.writing.base.as_ref()?;
                TreeEntry::File {
                    mode: found.stat.mode,
                    bytes: found.stat.len,
                    sha256: index.digest_of(&found.path, &found.stat)?,
                }
            }
            NodeKind::Special => return None,
        })
    }

    /// Copies a group from the newest checkpoint; false if it is missing or damaged.
    fn take(&mut self, key: &Digest) -> Result<bool, CheckpointError> {
        let Some((index, archive)) = &mut self.writing.base else {
            return Ok(false);
        };
        let Some(member) = index.members.get(key) else {
            return Ok(false);
        };
        let copied = self.out.copied(archive.as_mut(), member);
        let Some(member) = copied.during("copy", Path::new(ARCHIVE))? else {
            return Ok(false);
        };
        self.members.insert(*key, member);
        Ok(true)
    }

    /// Records a file that does not have to be read the next time, unless a concurrent write could
    /// go unnoticed.
    fn remember(&mut self, found: &SurveyedPath, entry: &TreeEntry) {
        let [.., changed] = found.stat.version;
        if let TreeEntry::File { sha256, .. } = entry
            && changed < self.writing.begun
        {
            let (stat, sha256) = (found.stat, *sha256);
            self.files
                .insert(found.path.clone(), IndexedFile { stat, sha256 });
        }
    }

    fn read_group(&mut self, group: &[SurveyedPath]) -> Result<(), CheckpointError> {
        let mut tar = Vec::new();
        let mut entries: Entries<'_> = Vec::with_capacity(group.len());
        for found in group {
            let (entry, content) = match found.stat.kind {
                NodeKind::File => match self.read(found)? {
                    Some(read) => read,
                    // The file was removed concurrently, or cannot be read.
                    None => continue,
                },
                _ => match self.known(found) {
                    Some(entry) => (entry, Vec::new()),
                    None => continue,
                },
            };
            push_header(&mut tar, &found.path, &found.stat, &entry);
            tar.extend_from_slice(&content);
            tar.extend_from_slice(padding(content.len() as u64));
            entries.push((found, entry));
        }
        let key = key_of(&entries);
        if !tar.is_empty() && !self.take(&key)? {
            let member = self.out.member(&tar);
            let member = member.during("write", Path::new(ARCHIVE))?;
            self.members.insert(key, member);
        }
        for (found, entry) in entries {
            self.builder.add(found.path.clone(), entry)?;
        }
        Ok(())
    }

    fn may_be_written(&self, path: &RelativePath) -> bool {
        self.writing.consistency == Consistency::Live || (self.writing.may_move)(path)
    }

    /// Reads a file and retries if it is being written. `None` if the file is gone.
    fn read(
        &mut self,
        found: &SurveyedPath,
    ) -> Result<Option<(TreeEntry, Vec<u8>)>, CheckpointError> {
        let at = found.path.as_path();
        let may_be_written = self.may_be_written(&found.path);
        let mut before = found.stat;
        let mut last = None;
        for _ in 0..FILE_READ_ATTEMPTS {
            let content = match self.contents(at, before.len) {
                Err(error) if is_gone(&error) && may_be_written => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.unreadable.push(found.path.clone());
                    return Ok(None);
                }
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => None,
                other => Some(other.during("read", at)?),
            };
            let after = self.writing.source.look(at).during("inspect", at)?;
            if let Some(content) = content {
                self.files_read += 1;
                let entry = TreeEntry::File {
                    mode: before.mode,
                    bytes: content.len() as u64,
                    sha256: Digest::of(&content),
                };
                if after == Some(before) {
                    let read = SurveyedPath {
                        stat: before,
                        ..found.clone()
                    };
                    self.remember(&read, &entry);
                    return Ok(Some((entry, content)));
                }
                last = Some((entry, content));
            }
            match after {
                Some(after) if after.kind == NodeKind::File => before = after,
                _ => break,
            }
        }
        match last {
            Some(last) if may_be_written => Ok(Some(last)),
            _ => Err(changing(found)),
        }
    }

    /// Reads a file that has not grown much.
    fn contents(&self, at: &Path, len: u64) -> io::Result<Vec<u8>> {
        let mut file = self.writing.source.read(at)?;
        let most = usize::try_from(len.saturating_add(WHOLE_BYTES_MAX)).unwrap_or(usize::MAX);
        goondan_durable::disk::read_all(file.as_mut(), most)
    }

    /// Reads and compresses a file in pieces.
    fn long_file(&mut self, found: &SurveyedPath) -> Result<(), CheckpointError> {
        let (at, archive) = (found.path.as_path(), Path::new(ARCHIVE));
        let may_be_written = self.may_be_written(&found.path);
        let mut file = match self.writing.source.read(at) {
            Err(error) if is_gone(&error) && may_be_written => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.unreadable.push(found.path.clone());
                return Ok(());
            }
            other => other.during("open", at)?,
        };
        self.files_read += 1;
        let (mode, bytes) = (found.stat.mode, found.stat.len);
        let sized = |sha256| TreeEntry::File {
            mode,
            bytes,
            sha256,
        };
        let mut header = Vec::new();
        let unread = sized(Digest::of(b""));
        push_header(&mut header, &found.path, &found.stat, &unread);
        let mut member = self.out.begin();
        member.put(&header).during("write", archive)?;
        let (mut offset, mut hasher) = (0, Sha256::new());
        let mut chunk = vec![0; ARCHIVE_WRITE_BYTES];
        while offset < bytes {
            let read = read_full(file.as_mut(), &mut chunk, offset).during("read", at)?;
            let left = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
            let piece = chunk.get(..read.min(left)).unwrap_or_default();
            if piece.is_empty() {
                return Err(changing(found));
            }
            hasher.update(piece);
            member.put(piece).during("write", archive)?;
            offset += piece.len() as u64;
        }
        member.put(padding(bytes)).during("write", archive)?;
        let member = member.finish().during("write", archive)?;
        let entry = sized(Digest::finish(hasher));
        let after = self.writing.source.look(at).during("inspect", at)?;
        if after == Some(found.stat) {
            self.remember(found, &entry);
        } else if !may_be_written {
            return Err(changing(found));
        }
        let entries = vec![(found, entry)];
        self.members.insert(key_of(&entries), member);
        for (found, entry) in entries {
            self.builder.add(found.path.clone(), entry)?;
        }
        Ok(())
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidInput)
}

fn changing(found: &SurveyedPath) -> CheckpointError {
    TreeError::Changing {
        path: found.path.clone(),
    }
    .into()
}

/// The digest of everything that a group's bytes depend on.
fn key_of(entries: &Entries<'_>) -> Digest {
    let mut hasher = Sha256::new();
    for (found, entry) in entries {
        let path = found.path.as_bytes();
        let (kind, mode, bytes, content) = match entry {
            TreeEntry::File {
                mode,
                bytes,
                sha256,
            } => (0_u8, *mode, *bytes, sha256.as_bytes().as_slice()),
            TreeEntry::Directory { mode } => (1, *mode, 0, &[][..]),
            TreeEntry::Link { target } => (2, 0, 0, target.as_slice()),
        };
        hasher.update([kind]);
        for number in [
            path.len() as u64,
            u64::from(mode),
            bytes,
            seconds(&found.stat),
            content.len() as u64,
        ] {
            hasher.update(number.to_le_bytes());
        }
        hasher.update(path);
        hasher.update(content);
    }
    Digest::finish(hasher)
}
