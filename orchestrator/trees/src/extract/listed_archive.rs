//! Unpacking of an archive that must contain exactly the listed tree (`CKPT-4`).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use goondan_durable::disk::{Folder, append_all};
use sha2::{Digest as _, Sha256};
use tar::EntryType;

use super::{damaged, refused};
use crate::error::{IoContext as _, TreeError};
use crate::limits::{COPY_CHUNK_BYTES, EXTRACT_HEADER_BYTES_MAX};
use crate::manifest::{Digest, Manifest, TreeEntry};
use crate::path::{Names, RelativePath};

/// Permission bits allowed in an archive. Set-user-id files are never listed.
const MODE_MASK: u32 = 0o7777;

/// Reads a gzip archive that must match the list exactly, and writes the wanted paths into an empty
/// directory.
///
/// The list decides what is allowed: local names ([`Names::Local`]), links to any target, and
/// unchanged modes. Nothing is written through a link or outside `into`. Written files are not
/// synced.
///
/// # Errors
///
/// [`TreeError`]: an entry that is unlisted, different from the list, duplicate, missing, or after
/// the archive's end. The caller must remove the partial output.
pub fn extract_listed(
    archive: impl Read,
    listed: &Manifest,
    into: &dyn Folder,
    wanted: &dyn Fn(&RelativePath) -> bool,
) -> Result<(), TreeError> {
    let allowance = Rc::new(Cell::new(EXTRACT_HEADER_BYTES_MAX));
    let source = AllowanceReader {
        inner: MultiGzDecoder::new(archive),
        allowance: Rc::clone(&allowance),
    };
    let mut work = ListedExtraction {
        listed,
        into,
        wanted,
        seen: BTreeSet::new(),
        made: BTreeSet::new(),
        chunk: vec![0; COPY_CHUNK_BYTES],
    };
    let mut archive = tar::Archive::new(source);
    for entry in archive.entries().map_err(|error| damaged(&error))? {
        let mut entry = entry.map_err(|error| damaged(&error))?;
        let size = entry.size();
        allowance.set(size.saturating_add(EXTRACT_HEADER_BYTES_MAX));
        work.entry(&mut entry)?;
        allowance.set(EXTRACT_HEADER_BYTES_MAX);
    }
    end(archive.into_inner())?;
    if let Some((path, _)) = listed
        .entries()
        .find(|(path, _)| !work.seen.contains(*path))
    {
        return Err(refused(&format!("`{path}` is missing")));
    }
    work.set_modes()
}

/// Limits the output to the current allowance.
struct AllowanceReader<R> {
    inner: R,
    allowance: Rc<Cell<u64>>,
}

impl<R: Read> Read for AllowanceReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf)?;
        let left = self.allowance.get().checked_sub(read as u64);
        self.allowance
            .set(left.ok_or_else(|| io::Error::other("a header or name is too long"))?);
        Ok(read)
    }
}

/// Only a few zero blocks may follow the last entry.
fn end(mut rest: impl Read) -> Result<(), TreeError> {
    let mut block = [0; 512];
    loop {
        let read = rest.read(&mut block).map_err(|error| damaged(&error))?;
        let piece = block.get(..read).unwrap_or_default();
        if piece.iter().any(|byte| *byte != 0) {
            return Err(refused("unexpected data after the end"));
        }
        if read == 0 {
            return Ok(());
        }
    }
}

struct ListedExtraction<'w> {
    listed: &'w Manifest,
    into: &'w dyn Folder,
    wanted: &'w dyn Fn(&RelativePath) -> bool,
    seen: BTreeSet<RelativePath>,
    made: BTreeSet<RelativePath>,
    chunk: Vec<u8>,
}

impl ListedExtraction<'_> {
    fn entry<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> Result<(), TreeError> {
        let kind = entry.header().entry_type();
        let mode = entry.header().mode().map_err(|error| damaged(&error))? & MODE_MASK;
        let raw = entry.path_bytes().into_owned();
        let raw = match kind {
            EntryType::Directory => raw.strip_suffix(b"/").unwrap_or(&raw),
            _ => &raw,
        };
        let path = RelativePath::allowed(raw, Names::Local)?;
        let listed = self.listed;
        let Some(expected) = listed.get(&path) else {
            return Err(refused(&format!("`{path}` is not in its manifest")));
        };
        if !self.seen.insert(path.clone()) {
            return Err(TreeError::Duplicate { path });
        }
        let is_as_listed = match (kind, expected) {
            (EntryType::Directory, TreeEntry::Directory { mode: told }) => *told == mode,
            (EntryType::Symlink, TreeEntry::Link { target }) => {
                entry.link_name_bytes().as_deref() == Some(target.as_slice())
            }
            (
                EntryType::Regular,
                TreeEntry::File {
                    mode: told, bytes, ..
                },
            ) => *told == mode && *bytes == entry.size(),
            _ => return Err(TreeError::Special { path }),
        };
        if !is_as_listed {
            return Err(TreeError::Damaged { path });
        }
        let is_wanted = (self.wanted)(&path);
        if is_wanted {
            for above in path.ancestors() {
                self.directory(&above)?;
            }
        }
        match expected {
            TreeEntry::Directory { .. } if is_wanted => self.directory(&path),
            TreeEntry::Link { target } if is_wanted => {
                let target = Path::new(OsStr::from_bytes(target));
                let made = self.into.create_link(path.as_path(), target);
                made.during("create", &path)
            }
            TreeEntry::File { sha256, .. } => self.file(&path, mode, *sha256, is_wanted, entry),
            TreeEntry::Directory { .. } | TreeEntry::Link { .. } => Ok(()),
        }
    }

    fn directory(&mut self, path: &RelativePath) -> Result<(), TreeError> {
        if self.made.insert(path.clone()) {
            let made = self.into.create_dir(path.as_path(), 0o700);
            made.during("create", path)?;
        }
        Ok(())
    }

    fn file<R: Read>(
        &mut self,
        path: &RelativePath,
        mode: u32,
        expected: Digest,
        is_wanted: bool,
        entry: &mut tar::Entry<'_, R>,
    ) -> Result<(), TreeError> {
        let mut file = None;
        if is_wanted {
            let made = self.into.create(path.as_path(), mode);
            file = Some(made.during("create", path)?);
        }
        let mut hasher = Sha256::new();
        loop {
            let read = entry.read(&mut self.chunk);
            let read = read.map_err(|error| damaged(&error))?;
            let piece = self.chunk.get(..read).unwrap_or_default();
            if piece.is_empty() {
                break;
            }
            hasher.update(piece);
            if let Some(file) = &mut file {
                append_all(file.as_mut(), piece).during("write", path)?;
            }
        }
        if Digest::finish(hasher) == expected {
            Ok(())
        } else {
            Err(TreeError::Damaged { path: path.clone() })
        }
    }

    /// Sets modes of directories after all their entries are written.
    fn set_modes(&self) -> Result<(), TreeError> {
        for path in self.made.iter().rev().filter(|path| (self.wanted)(path)) {
            if let Some(TreeEntry::Directory { mode }) = self.listed.get(path) {
                let set = self.into.set_dir_mode(path.as_path(), *mode);
                set.during("set the mode of", path)?;
            }
        }
        Ok(())
    }
}
