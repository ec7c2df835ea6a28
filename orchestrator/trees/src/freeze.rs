//! A copy of a tree that nobody is writing, with its manifest (`BOX-1`, `BOX-2`, `CKPT-3`).

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
use crate::manifest::{Entry, Manifest, ManifestBuilder};
use crate::path::{Names, RelativePath};
use crate::quote::to_text;
use crate::read::{copy, observe};

/// What becomes of something that a tree should not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwanted {
    /// The whole is refused.
    Refuse,
    /// It is left out, and told of.
    LeaveOut,
    /// It is kept: for links, as links. Special files are left out even so.
    Keep,
}

/// The permission bits that let anybody write.
const WRITE_BITS: u32 = 0o222;

/// How a tree is frozen.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is left out.
    pub excludes: Excludes,
    /// What becomes of links that lead out of the tree.
    pub outside_links: Unwanted,
    /// What becomes of devices, sockets and pipes.
    pub special: Unwanted,
    /// How much the tree may hold.
    pub limits: Limits,
}

/// Something that is not in a frozen tree: what a worker was never given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its path, quoted as git quotes where it is no UTF-8. Of a directory, all it holds is left out, too.
    pub path: String,
    /// Why.
    pub reason: Reason,
}

/// A frozen tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frozen {
    /// What it holds.
    pub manifest: Manifest,
    /// What it does not.
    pub left_out: Vec<LeftOut>,
}

/// Copies a tree to a new directory `name` of `parent`. It appears whole and durable, or not at all.
///
/// Files keep their permission bits, and directories theirs, but that their owner may always use them.
///
/// # Errors
///
/// [`TreeError`]. A file that is written meanwhile is read again a few times, then it is
/// [`TreeError::Changing`]. What cannot be read fails the whole.
pub fn freeze(
    source: &dyn Folder,
    parent: &dyn Folder,
    name: &str,
    options: &Options,
) -> Result<Frozen, TreeError> {
    copy_as(source, parent, name, options, false)
}

/// The same, for a copy that nobody is to write: neither files nor directories have bits for it. The
/// manifest has those of the source (`BOX-1`).
///
/// # Errors
///
/// As [`freeze`].
pub fn freeze_read_only(
    source: &dyn Folder,
    parent: &dyn Folder,
    name: &str,
    options: &Options,
) -> Result<Frozen, TreeError> {
    copy_as(source, parent, name, options, true)
}

fn copy_as(
    source: &dyn Folder,
    parent: &dyn Folder,
    name: &str,
    options: &Options,
    is_read_only: bool,
) -> Result<Frozen, TreeError> {
    let (manifest, left_out) = fresh::build(parent, name, |folder| {
        let frozen = walk(source, Some(folder), options, is_read_only)?;
        if is_read_only {
            for (path, entry) in frozen.manifest.entries() {
                if let Entry::Directory { mode } = entry {
                    let mode = (mode | 0o500) & !WRITE_BITS;
                    folder
                        .set_dir_mode(path.as_path(), mode)
                        .during("set the mode of", path)?;
                }
            }
        }
        Ok((frozen.manifest, frozen.left_out))
    })?;
    Ok(Frozen { manifest, left_out })
}

/// Reads a tree without copying it.
///
/// # Errors
///
/// As [`freeze`].
pub fn scan(source: &dyn Folder, options: &Options) -> Result<Frozen, TreeError> {
    walk(source, None, options, false)
}

fn walk(
    source: &dyn Folder,
    into: Option<&dyn Folder>,
    options: &Options,
    is_read_only: bool,
) -> Result<Frozen, TreeError> {
    let mut walk = Walk {
        source,
        into,
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
    let mut left_out = walk.left_out;
    left_out.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(Frozen {
        manifest: walk.builder.finish(),
        left_out,
    })
}

struct Walk<'w> {
    source: &'w dyn Folder,
    into: Option<&'w dyn Folder>,
    options: &'w Options,
    is_read_only: bool,
    builder: ManifestBuilder,
    left_out: Vec<LeftOut>,
}

impl Walk<'_> {
    /// Takes all that a directory holds; returns the directories among it.
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

    /// Takes one name; returns it if it is a directory.
    fn name(
        &mut self,
        directory: Option<&RelativePath>,
        above: &Path,
        name: &OsString,
    ) -> Result<Option<RelativePath>, TreeError> {
        let raw: PathBuf = above.join(name);
        let Some(stat) = self.source.look(&raw).during("look at", raw.display())? else {
            // It was there when the directory was listed: somebody is writing.
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
                Some(Entry::Directory { mode: stat.mode })
            }
            NodeKind::Link => self.link(&path)?,
            NodeKind::File => Some(self.file(&path, stat)?),
            NodeKind::Special => {
                if self.options.special == Unwanted::Refuse {
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
        self.left_out.push(LeftOut {
            path: to_text(path),
            reason,
        });
    }

    fn link(&mut self, path: &RelativePath) -> Result<Option<Entry>, TreeError> {
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
                Unwanted::Keep => {}
                Unwanted::LeaveOut => {
                    self.leave_out(path.as_bytes(), Reason::OutsideLink);
                    return Ok(None);
                }
                Unwanted::Refuse => {
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
        Ok(Some(Entry::Link {
            target: target.as_bytes().to_vec(),
        }))
    }

    fn copy(&self, into: &dyn Folder, at: &Path, mode: u32, most: u64) -> io::Result<Entry> {
        let given = if self.is_read_only {
            (mode | 0o400) & !WRITE_BITS
        } else {
            mode
        };
        let mut entry = copy((self.source, at), (into, at), given, most)?;
        if let Entry::File { mode: told, .. } = &mut entry {
            *told = mode;
        }
        Ok(entry)
    }

    /// Copies a file, or reads it, until nobody wrote it meanwhile.
    fn file(&mut self, path: &RelativePath, mut before: NodeStat) -> Result<Entry, TreeError> {
        let at = path.as_path();
        for _ in 0..FREEZE_ATTEMPTS {
            let most = self.builder.bytes_left();
            if before.len > most {
                return Err(TreeError::limit("bytes", self.options.limits.bytes(), path));
            }
            let read = match self.into {
                Some(into) => self.copy(into, at, before.mode, most).map(Some),
                None => observe(self.source, at),
            };
            let entry = match read {
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                    return Err(TreeError::limit("bytes", self.options.limits.bytes(), path));
                }
                other => other.during("read", path)?,
            };
            let after = self.source.look(at).during("look at", path)?;
            match (entry, after) {
                (Some(entry), Some(after)) if after == before => return Ok(entry),
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
