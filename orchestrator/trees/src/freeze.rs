//! Snapshots of a tree with a manifest (`BOX-1`, `BOX-2`, `CKPT-3`).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use goondan_durable::disk::{Folder, NodeKind, NodeStat};

use crate::error::{IoContext as _, TreeError};
use crate::excludes::Excludes;
pub use crate::excludes::Reason;
use crate::fresh;
use crate::limits::{FREEZE_ATTEMPTS, LINK_TARGET_BYTES_MAX, Limits};
use crate::manifest::{Manifest, ManifestBuilder, TreeEntry};
use crate::path::{Names, RelativePath};
use crate::quote::to_text;
use crate::read::{CopiedEntry, Syncs, copy, observe};

/// Policy for entries that a tree should not contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryPolicy {
    Refuse,
    /// Exclude and report the entry.
    LeaveOut,
    /// Keep links as links. Special files are excluded anyway.
    Keep,
}

const WRITE_BITS: u32 = 0o222;

#[derive(Debug, Clone)]
pub struct Options {
    pub excludes: Excludes,
    /// Policy for links that point out of the tree.
    pub outside_links: EntryPolicy,
    /// Policy for devices, sockets and pipes.
    pub special: EntryPolicy,
    pub limits: Limits,
}

/// An excluded entry, which a worker never receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExcludedEntry {
    /// Its path, quoted like git does if it is not UTF-8. An excluded directory includes its
    /// content.
    pub path: String,
    pub reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeSnapshot {
    pub manifest: Manifest,
    pub left_out: Vec<ExcludedEntry>,
}

/// Copies a tree to a new directory `name` of `parent`. The copy appears complete and durable, or
/// not at all.
///
/// Files and directories keep their permission bits, except that the owner can always access
/// directories.
///
/// # Errors
///
/// [`TreeError`]. A file that is modified during the copy is read again a few times, then it is
/// [`TreeError::Changing`]. An unreadable file fails the whole copy.
pub fn freeze(
    source: &dyn Folder,
    parent: &dyn Folder,
    name: &str,
    options: &Options,
) -> Result<TreeSnapshot, TreeError> {
    copy_as(source, parent, name, options, false)
}

/// As [`freeze`], but without write permissions in the copy. The manifest has the modes of the
/// source (`BOX-1`).
///
/// # Errors
///
/// As [`freeze`].
pub fn freeze_read_only(
    source: &dyn Folder,
    parent: &dyn Folder,
    name: &str,
    options: &Options,
) -> Result<TreeSnapshot, TreeError> {
    copy_as(source, parent, name, options, true)
}

fn copy_as(
    source: &dyn Folder,
    parent: &dyn Folder,
    name: &str,
    options: &Options,
    is_read_only: bool,
) -> Result<TreeSnapshot, TreeError> {
    let (manifest, left_out) = fresh::build(parent, name, |folder| {
        let frozen = walk(source, Some(folder), options, is_read_only)?;
        if is_read_only {
            for (path, entry) in frozen.manifest.entries() {
                if let TreeEntry::Directory { mode } = entry {
                    let mode = (mode | 0o500) & !WRITE_BITS;
                    folder
                        .set_dir_mode(path.as_path(), mode)
                        .during("set the mode of", path)?;
                }
            }
        }
        Ok((frozen.manifest, frozen.left_out))
    })?;
    Ok(TreeSnapshot { manifest, left_out })
}

/// Reads a tree without copying it.
///
/// # Errors
///
/// As [`freeze`].
pub fn scan(source: &dyn Folder, options: &Options) -> Result<TreeSnapshot, TreeError> {
    walk(source, None, options, false)
}

fn walk(
    source: &dyn Folder,
    into: Option<&dyn Folder>,
    options: &Options,
    is_read_only: bool,
) -> Result<TreeSnapshot, TreeError> {
    let mut walk = FreezeWalk {
        source,
        into,
        syncs: into.map(Syncs::new),
        options,
        is_read_only,
        builder: ManifestBuilder::new(options.limits, Names::Portable),
        left_out: Vec::new(),
    };
    let mut directories = vec![None];
    while let Some(directory) = directories.pop() {
        let inner = walk.directory(directory.as_ref())?;
        directories.extend(inner.into_iter().map(Some));
    }
    if let Some(syncs) = &mut walk.syncs {
        syncs.finish()?;
    }
    let mut left_out = walk.left_out;
    left_out.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(TreeSnapshot {
        manifest: walk.builder.finish(),
        left_out,
    })
}

struct FreezeWalk<'w> {
    source: &'w dyn Folder,
    into: Option<&'w dyn Folder>,
    /// Copied files that are not durable yet.
    syncs: Option<Syncs<'w>>,
    options: &'w Options,
    is_read_only: bool,
    builder: ManifestBuilder,
    left_out: Vec<ExcludedEntry>,
}

impl FreezeWalk<'_> {
    /// Adds the entries of a directory; returns its subdirectories.
    fn directory(&mut self, at: Option<&RelativePath>) -> Result<Vec<RelativePath>, TreeError> {
        let root = Path::new("");
        let path = at.map_or(root, RelativePath::as_path);
        let mut names = self.source.names(path).during("list", path.display())?;
        names.sort();
        let mut inner = Vec::new();
        for name in names {
            if let Some(directory) = self.name(at, path, &name)? {
                inner.push(directory);
            }
        }
        Ok(inner)
    }

    /// Adds one name; returns it if it is a directory.
    fn name(
        &mut self,
        directory: Option<&RelativePath>,
        above: &Path,
        name: &OsString,
    ) -> Result<Option<RelativePath>, TreeError> {
        let raw: PathBuf = above.join(name);
        let Some(stat) = self.source.look(&raw).during("inspect", raw.display())? else {
            // It existed when the directory was listed, so another program is writing.
            let path = RelativePath::new(raw.as_os_str().as_bytes())?;
            return Err(TreeError::Changing { path });
        };
        let is_directory = stat.kind == NodeKind::Directory;
        let bytes = raw.as_os_str().as_bytes();
        if let Some(reason) = self.options.excludes.reason(bytes, is_directory) {
            self.leave_out(bytes, reason);
            return Ok(None);
        }
        let path = match directory {
            Some(directory) => directory.join(name.as_bytes())?,
            None => RelativePath::new(name.as_bytes())?,
        };
        let entry = match stat.kind {
            NodeKind::Directory => {
                if let Some(into) = self.into {
                    let mode = stat.mode | 0o700;
                    into.create_dir(path.as_path(), mode)
                        .during("create", &path)?;
                }
                Some(TreeEntry::Directory { mode: stat.mode })
            }
            NodeKind::Link => self.link(&path)?,
            NodeKind::File => Some(self.file(&path, stat)?),
            NodeKind::Special => {
                if self.options.special == EntryPolicy::Refuse {
                    return Err(TreeError::Special { path });
                }
                self.leave_out(bytes, Reason::Special);
                None
            }
        };
        if let Some(entry) = entry {
            self.builder.add(path.clone(), entry)?;
        }
        Ok(is_directory.then_some(path))
    }

    fn leave_out(&mut self, path: &[u8], reason: Reason) {
        self.left_out.push(ExcludedEntry {
            path: to_text(path),
            reason,
        });
    }

    fn link(&mut self, path: &RelativePath) -> Result<Option<TreeEntry>, TreeError> {
        let target = self.source.read_link(path.as_path()).during("read", path)?;
        if target.len() > LINK_TARGET_BYTES_MAX {
            let limit = LINK_TARGET_BYTES_MAX as u64;
            return Err(TreeError::limit(
                "bytes in the target of a link",
                limit,
                path,
            ));
        }
        if path.leads_outside(target.as_bytes()) {
            match self.options.outside_links {
                EntryPolicy::Keep => {}
                EntryPolicy::LeaveOut => {
                    self.leave_out(path.as_bytes(), Reason::OutsideLink);
                    return Ok(None);
                }
                EntryPolicy::Refuse => {
                    return Err(TreeError::OutsideLink {
                        path: path.clone(),
                        target: to_text(target.as_bytes()),
                    });
                }
            }
        }
        if let Some(into) = self.into {
            into.create_link(path.as_path(), Path::new(&target))
                .during("create", path)?;
        }
        Ok(Some(TreeEntry::Link {
            target: target.as_bytes().to_vec(),
        }))
    }

    fn copy(&self, into: &dyn Folder, at: &Path, mode: u32, most: u64) -> io::Result<CopiedEntry> {
        let given = if self.is_read_only {
            (mode | 0o400) & !WRITE_BITS
        } else {
            mode
        };
        let (mut entry, file) = copy((self.source, at), (into, at), given, most)?;
        if let TreeEntry::File { mode: told, .. } = &mut entry {
            *told = mode;
        }
        Ok((entry, file))
    }

    /// Copies or reads a file until it did not change in the meantime.
    fn file(&mut self, path: &RelativePath, mut before: NodeStat) -> Result<TreeEntry, TreeError> {
        let at = path.as_path();
        for _ in 0..FREEZE_ATTEMPTS {
            let most = self.builder.bytes_left();
            if before.len > most {
                return Err(TreeError::limit("bytes", self.options.limits.bytes(), path));
            }
            let read = match self.into {
                Some(into) => self.copy(into, at, before.mode, most).map(Some),
                None => observe(self.source, at).map(|found| found.map(|entry| (entry, None))),
            };
            let copied = match read {
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                    return Err(TreeError::limit("bytes", self.options.limits.bytes(), path));
                }
                other => other.during("read", path)?,
            };
            let after = self.source.look(at).during("inspect", path)?;
            match (copied, after) {
                (Some((entry, file)), Some(after)) if after == before => {
                    if let (Some(syncs), Some(file)) = (&mut self.syncs, file) {
                        syncs.add(path, file)?;
                    }
                    return Ok(entry);
                }
                (_, Some(after)) if after.kind == NodeKind::File => before = after,
                _ => break,
            }
            if let Some(into) = self.into {
                into.remove(at).during("remove", path)?;
            }
        }
        Err(TreeError::Changing { path: path.clone() })
    }
}
