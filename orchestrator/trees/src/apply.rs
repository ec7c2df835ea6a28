//! What a patch makes of a tree, in memory: all of it or nothing (`PROP-3`, `PROP-4`).

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;

use goondan_durable::disk::Folder;

use crate::binary::apply_delta;
use crate::compare::{Hunk, LineKind, lines};
use crate::error::{IoContext as _, TreeError};
use crate::limits::{Limits, PATCH_FILE_BYTES_MAX};
use crate::manifest::{Digest, Entry, Manifest, ManifestBuilder};
use crate::patch::{Binary, BlobId, Body, FileMode, FilePatch, Patch};
use crate::path::{Names, RelativePath};
use crate::read::drain;

/// Why a patch does not apply. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It touches what it may not.
    #[error("the patch touches `{path}`, which it was not given")]
    NotAllowed {
        /// The path.
        path: RelativePath,
    },
    /// The tree is not the one it was made for, or the patch is not whole.
    #[error("the patch does not fit `{path}`: {problem}; make it anew from the two trees")]
    Misfit {
        /// The path.
        path: RelativePath,
        /// What does not fit.
        problem: &'static str,
    },
    /// The tree cannot be read, or what came out would be no tree.
    #[error("the patch makes no tree")]
    Tree(#[from] TreeError),
}

/// A file or link with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// What git knows of its mode.
    pub mode: FileMode,
    /// Its bytes; of a link, where it points.
    pub content: Vec<u8>,
}

/// A tree: what it holds, and where its content is. The content is checked when it is read.
#[derive(Debug, Clone, Copy)]
pub struct Tree<'t> {
    /// What it holds.
    pub manifest: &'t Manifest,
    /// Where.
    pub folder: &'t dyn Folder,
}

impl Tree<'_> {
    /// The file or link at a path; none if there is none, or a directory.
    ///
    /// # Errors
    ///
    /// [`TreeError::Io`], [`TreeError::Limit`] past [`PATCH_FILE_BYTES_MAX`], [`TreeError::Damaged`] if the
    /// content is not that of the manifest.
    pub fn leaf(&self, path: &RelativePath) -> Result<Option<Leaf>, TreeError> {
        let at = path.as_path();
        Ok(Some(match self.manifest.get(path) {
            None | Some(Entry::Directory { .. }) => return Ok(None),
            Some(Entry::Link { target }) => {
                let found = self.folder.read_link(at).during("read", path)?;
                if found.as_bytes() != target {
                    return Err(TreeError::Damaged { path: path.clone() });
                }
                Leaf {
                    mode: FileMode::Link,
                    content: target.clone(),
                }
            }
            Some(Entry::File {
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

/// What git keeps of a file's permission bits.
pub(crate) fn git_mode(mode: u32) -> FileMode {
    if mode & 0o100 == 0 {
        FileMode::Regular
    } else {
        FileMode::Executable
    }
}

/// What the patch makes of the paths that it touches: a file or link, or nothing.
pub type Applied = BTreeMap<RelativePath, Option<Leaf>>;

/// Applies a patch to a tree, in memory. `is_allowed` says which paths it may touch.
///
/// Every line of context must be where the patch says, every digest right, every mode the one before; and
/// what comes out must be a tree: nothing below a file or a link, no two paths that differ in case only.
///
/// # Errors
///
/// [`ApplyError`].
pub fn apply(
    patch: &Patch,
    base: Tree<'_>,
    is_allowed: &dyn Fn(&RelativePath) -> bool,
) -> Result<Applied, ApplyError> {
    let mut applied = Applied::new();
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
            // What becomes a link is deleted first and then made, and so is what becomes a file.
            Some(None) if file.old.is_none() => None,
            Some(_) => return Err(misfit("it is touched twice")),
        };
        if file.old.is_none() && !created.insert(path) {
            return Err(misfit("it is touched twice"));
        }
        let after = one(file, before.as_ref()).map_err(misfit)?;
        applied.insert(path.clone(), after);
    }
    check_tree(base.manifest, &applied)?;
    Ok(applied)
}

/// What a patch makes of one file.
fn one(file: &FilePatch, before: Option<&Leaf>) -> Result<Option<Leaf>, &'static str> {
    if before.map(|leaf| leaf.mode) != file.old {
        return Err(match (before, file.old) {
            (Some(_), None) => "it is there already",
            (None, _) => "it is not there",
            _ => "its mode is another one",
        });
    }
    let old = before.map_or(&b""[..], |leaf| &leaf.content);
    let Some((old_id, new_id)) = file.ids else {
        let content = old.to_vec();
        return Ok(file.new.map(|mode| Leaf { mode, content }));
    };
    if file.old.is_some() && BlobId::of(old) != old_id {
        return Err("its content is not the one that the patch was made for");
    }
    let content = match &file.body {
        Body::None => Vec::new(),
        Body::Text(hunks) => patch_text(old, hunks)?,
        Body::Binary(Binary::Literal(content)) => content.clone(),
        Body::Binary(Binary::Delta(delta)) => apply_delta(old, delta, PATCH_FILE_BYTES_MAX)
            .ok_or("its delta is none of its content")?,
    };
    let Some(mode) = file.new else {
        return if content.is_empty() {
            Ok(None)
        } else {
            Err("it is deleted, but not whole")
        };
    };
    if BlobId::of(&content) != new_id {
        return Err("what comes out has not the digest that the patch tells");
    }
    if mode == FileMode::Link && (content.is_empty() || content.contains(&0)) {
        return Err("a link cannot point there");
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
            .ok_or("a place is beyond its end")?;
        new.extend(kept.iter().copied().flatten());
        at = hunk.old_start;
        for (kind, line) in &hunk.lines {
            if *kind != LineKind::Added {
                if old.get(at) != Some(&line.as_slice()) {
                    return Err("a line is not the one that the patch tells");
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

/// Whether files and links are a tree when the patch has been applied. Directories are what they need; what
/// is left empty is none, as for git.
fn check_tree(base: &Manifest, applied: &Applied) -> Result<(), TreeError> {
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
    let entry = Entry::File {
        mode: 0,
        bytes: 0,
        sha256: Digest::of(b""),
    };
    for path in leaves {
        for parent in builder.missing_parents(path) {
            builder.add(parent, Entry::Directory { mode: 0 })?;
        }
        builder.add(path.clone(), entry.clone())?;
    }
    Ok(())
}

/// Whether a patch makes `after` of `before`, as far as a patch can tell: files, links, contents and whether
/// they can be executed.
///
/// # Errors
///
/// [`ApplyError`]: it does not apply, or something else comes out.
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
            None => before.manifest.get(path).and_then(told),
        };
        if made != after.get(path).and_then(told) {
            return Err(ApplyError::Misfit {
                path: path.clone(),
                problem: "something else comes out",
            });
        }
    }
    Ok(())
}

/// What a patch can tell of an entry.
pub(crate) fn told(entry: &Entry) -> Option<(FileMode, Digest)> {
    match entry {
        Entry::Directory { .. } => None,
        Entry::Link { target } => Some((FileMode::Link, Digest::of(target))),
        Entry::File { mode, sha256, .. } => Some((git_mode(*mode), *sha256)),
    }
}
