//! In-memory application of a patch to a tree, all or nothing (`PROP-3`, `PROP-4`).

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;

use goondan_durable::disk::Folder;

use crate::binary::apply_delta;
use crate::compare::{Hunk, LineKind, lines};
use crate::error::{IoContext as _, TreeError};
use crate::limits::{Limits, PATCH_FILE_BYTES_MAX};
use crate::manifest::{Digest, Manifest, ManifestBuilder, TreeEntry};
use crate::patch::{Binary, BlobId, Body, FileMode, FilePatch, Patch};
use crate::path::{Names, RelativePath};
use crate::read::drain;

/// Reason why a patch does not apply. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The patch touches a forbidden path.
    #[error("the patch touches `{path}`, which it must not change")]
    NotAllowed { path: RelativePath },
    /// The patch was made for another tree, or is damaged.
    #[error("the patch does not apply to `{path}`: {problem}; create it again from the two trees")]
    Misfit {
        path: RelativePath,
        problem: &'static str,
    },
    /// The tree is unreadable, or the result would not be a valid tree.
    #[error("the patch does not result in a valid tree")]
    Tree(#[from] TreeError),
}

/// Content of a file or link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Its mode as known to git.
    pub mode: FileMode,
    /// Its bytes; for a link, its target.
    pub content: Vec<u8>,
}

/// A tree: its manifest and its folder. Content is verified when it is read.
#[derive(Debug, Clone, Copy)]
pub struct Tree<'t> {
    pub manifest: &'t Manifest,
    pub folder: &'t dyn Folder,
}

impl Tree<'_> {
    /// Returns the file or link at a path; `None` for a directory or a missing path.
    ///
    /// # Errors
    ///
    /// [`TreeError::Io`], [`TreeError::Limit`] past [`PATCH_FILE_BYTES_MAX`],
    /// [`TreeError::Damaged`] if the content does not match the manifest.
    pub fn leaf(&self, path: &RelativePath) -> Result<Option<Leaf>, TreeError> {
        let at = path.as_path();
        Ok(Some(match self.manifest.get(path) {
            None | Some(TreeEntry::Directory { .. }) => return Ok(None),
            Some(TreeEntry::Link { target }) => {
                let found = self.folder.read_link(at).during("read", path)?;
                if found.as_bytes() != target {
                    return Err(TreeError::Damaged { path: path.clone() });
                }
                Leaf {
                    mode: FileMode::Link,
                    content: target.clone(),
                }
            }
            Some(TreeEntry::File {
                mode,
                bytes,
                sha256,
            }) => {
                let most = PATCH_FILE_BYTES_MAX as u64;
                if *bytes > most {
                    return Err(TreeError::limit("bytes in a file of a patch", most, path));
                }
                let mut file = self.folder.read(at).during("open", path)?;
                let mut content = Vec::new();
                let (_, digest) = drain(file.as_mut(), most, |piece| {
                    content.extend_from_slice(piece);
                    Ok(())
                })
                .during("read", path)?;
                if digest != *sha256 {
                    return Err(TreeError::Damaged { path: path.clone() });
                }
                Leaf {
                    mode: git_mode(*mode),
                    content,
                }
            }
        }))
    }
}

/// Reduces permission bits to the modes that git stores.
pub(crate) fn git_mode(mode: u32) -> FileMode {
    if mode & 0o100 == 0 {
        FileMode::Regular
    } else {
        FileMode::Executable
    }
}

/// New content of each touched path: a file or link, or `None` if deleted.
pub type PatchedFiles = BTreeMap<RelativePath, Option<Leaf>>;

/// Applies a patch to a tree, in memory. `is_allowed` decides which paths it may touch.
///
/// Every context line must be at the given position, and every digest and old mode must match. The
/// result must be a valid tree: nothing below a file or a link, and no two paths that differ only
/// in case.
///
/// # Errors
///
/// [`ApplyError`].
pub fn apply(
    patch: &Patch,
    base: Tree<'_>,
    is_allowed: &dyn Fn(&RelativePath) -> bool,
) -> Result<PatchedFiles, ApplyError> {
    let mut applied = PatchedFiles::new();
    let mut created = BTreeSet::new();
    for file in patch.files() {
        let path = file.path();
        if !is_allowed(path) {
            return Err(ApplyError::NotAllowed { path: path.clone() });
        }
        let misfit = |problem| ApplyError::Misfit {
            path: path.clone(),
            problem,
        };
        let before = match applied.get(path) {
            None => base.leaf(path)?,
            // A change between file and link is a deletion followed by a creation.
            Some(None) if file.old.is_none() => None,
            Some(_) => return Err(misfit("duplicate change")),
        };
        if file.old.is_none() && !created.insert(path) {
            return Err(misfit("duplicate change"));
        }
        let after = one(file, before.as_ref()).map_err(misfit)?;
        applied.insert(path.clone(), after);
    }
    check_tree(base.manifest, &applied)?;
    Ok(applied)
}

fn one(file: &FilePatch, before: Option<&Leaf>) -> Result<Option<Leaf>, &'static str> {
    if before.map(|leaf| leaf.mode) != file.old {
        return Err(match (before, file.old) {
            (Some(_), None) => "the path exists",
            (None, _) => "the path does not exist",
            _ => "the mode differs",
        });
    }
    let old = before.map_or(&b""[..], |leaf| &leaf.content);
    let Some((old_id, new_id)) = file.ids else {
        let content = old.to_vec();
        return Ok(file.new.map(|mode| Leaf { mode, content }));
    };
    if file.old.is_some() && BlobId::of(old) != old_id {
        return Err("the content differs from the base of the patch");
    }
    let content = match &file.body {
        Body::None => Vec::new(),
        Body::Text(hunks) => patch_text(old, hunks)?,
        Body::Binary(Binary::Literal(content)) => content.clone(),
        Body::Binary(Binary::Delta(delta)) => apply_delta(old, delta, PATCH_FILE_BYTES_MAX)
            .ok_or("the delta does not match the content")?,
    };
    let Some(mode) = file.new else {
        return if content.is_empty() {
            Ok(None)
        } else {
            Err("the deletion is incomplete")
        };
    };
    if BlobId::of(&content) != new_id {
        return Err("the result does not match the digest in the patch");
    }
    if mode == FileMode::Link && (content.is_empty() || content.contains(&0)) {
        return Err("invalid link target");
    }
    Ok(Some(Leaf { mode, content }))
}

fn patch_text(old: &[u8], hunks: &[Hunk]) -> Result<Vec<u8>, &'static str> {
    let old = lines(old);
    let mut at = 0;
    let mut new = Vec::new();
    for hunk in hunks {
        let kept = old
            .get(at..hunk.old_start)
            .ok_or("a hunk is beyond the end of the file")?;
        new.extend(kept.iter().copied().flatten());
        at = hunk.old_start;
        for (kind, line) in &hunk.lines {
            if *kind != LineKind::Added {
                if old.get(at) != Some(&line.as_slice()) {
                    return Err("a line differs from the patch");
                }
                at += 1;
            }
            if *kind != LineKind::Removed {
                if !new.is_empty() && !new.ends_with(b"\n") {
                    return Err("a line without end is followed by another");
                }
                new.extend_from_slice(line);
            }
        }
    }
    let rest = old.get(at..).unwrap_or_default();
    if !rest.is_empty() && !new.is_empty() && !new.ends_with(b"\n") {
        return Err("a line without end is followed by another");
    }
    new.extend(rest.iter().copied().flatten());
    Ok(new)
}

/// Checks that files and links form a valid tree after the patch. Directories are implied; empty
/// ones are dropped, like in git.
fn check_tree(base: &Manifest, applied: &PatchedFiles) -> Result<(), TreeError> {
    let mut leaves: BTreeSet<&RelativePath> = BTreeSet::new();
    let unchanged = base.entries().filter(|(_, entry)| !entry.is_directory());
    leaves.extend(unchanged.map(|(path, _)| path));
    for (path, leaf) in applied {
        if leaf.is_some() {
            leaves.insert(path);
        } else {
            leaves.remove(path);
        }
    }
    let mut builder = ManifestBuilder::new(Limits::default(), Names::Portable);
    let entry = TreeEntry::File {
        mode: 0,
        bytes: 0,
        sha256: Digest::of(b""),
    };
    for path in leaves {
        for parent in builder.missing_parents(path) {
            builder.add(parent, TreeEntry::Directory { mode: 0 })?;
        }
        builder.add(path.clone(), entry.clone())?;
    }
    Ok(())
}

/// Checks that a patch turns `before` into `after`, as far as a patch can express it: files, links,
/// contents and executable bits.
///
/// # Errors
///
/// [`ApplyError`] if the patch does not apply, or the result differs.
pub fn prove(patch: &Patch, before: Tree<'_>, after: &Manifest) -> Result<(), ApplyError> {
    let applied = apply(patch, before, &|_| true)?;
    let paths = before.manifest.entries().chain(after.entries());
    let paths: BTreeSet<&RelativePath> =
        paths.map(|(path, _)| path).chain(applied.keys()).collect();
    for path in paths {
        let made = match applied.get(path) {
            Some(made) => made
                .as_ref()
                .map(|leaf| (leaf.mode, Digest::of(&leaf.content))),
            None => before.manifest.get(path).and_then(patch_part),
        };
        if made != after.get(path).and_then(patch_part) {
            return Err(ApplyError::Misfit {
                path: path.clone(),
                problem: "the result differs",
            });
        }
    }
    Ok(())
}

/// Returns the part of an entry that a patch can express.
pub(crate) fn patch_part(entry: &TreeEntry) -> Option<(FileMode, Digest)> {
    match entry {
        TreeEntry::Directory { .. } => None,
        TreeEntry::Link { target } => Some((FileMode::Link, Digest::of(target))),
        TreeEntry::File { mode, sha256, .. } => Some((git_mode(*mode), *sha256)),
    }
}
