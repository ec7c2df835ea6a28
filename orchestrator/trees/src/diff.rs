//! Difference of two trees as a patch for `git apply` (`PROP-2`).

use crate::apply::{Leaf, Tree, patch_part};
use crate::binary::write_literal;
use crate::changes::{PathChange, changes};
use crate::compare::{Hunk, LineKind, hunks};
use crate::error::{IoContext as _, TreeError};
use crate::limits::{PATCH_BYTES_MAX, PATCH_FILE_BYTES_MAX, PATCH_TEXT_BYTES_MAX};
use crate::manifest::TreeEntry;
use crate::patch::{BlobId, FileMode};
use crate::path::RelativePath;
use crate::quote::quote;

/// Kind of change of a file or link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffStatus {
    Added,
    Modified,
    Deleted,
    /// Changed from a file to a link, or from a link to a file.
    TypeChanged,
}

/// Difference of two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub patch: Vec<u8>,
    /// Changed files and links, by path.
    pub changed: Vec<(RelativePath, DiffStatus)>,
    /// Differences that a patch cannot carry: directories, and permission bits other than the
    /// executable bit.
    pub not_carried: Vec<PathChange>,
}

/// Compares two trees.
///
/// `git apply` rejects one kind of valid patch: one that replaces a self-referencing link by a
/// directory.
///
/// # Errors
///
/// [`TreeError::Damaged`] if content does not match its manifest, [`TreeError::Limit`] past
/// [`PATCH_FILE_BYTES_MAX`] or [`PATCH_BYTES_MAX`], [`TreeError::Io`].
pub fn diff(before: Tree<'_>, after: Tree<'_>) -> Result<Difference, TreeError> {
    let mut out = Difference {
        patch: Vec::new(),
        changed: Vec::new(),
        not_carried: Vec::new(),
    };
    let changes = changes(before.manifest, after.manifest);
    for change in &changes {
        refuse_too_large(change)?;
    }
    for change in changes {
        let path = &change.path;
        let tells =
            change.old.as_ref().and_then(patch_part) != change.new.as_ref().and_then(patch_part);
        let is_whole = tells && !(is_directory(&change.old) || is_directory(&change.new));
        if tells {
            let (old, new) = (before.leaf(path)?, after.leaf(path)?);
            let status = write_change(&mut out.patch, path, old.as_ref(), new.as_ref())
                .during("write a patch of", path)?;
            out.changed
                .extend(status.map(|status| (path.clone(), status)));
            if out.patch.len() > PATCH_BYTES_MAX {
                return Err(TreeError::limit(
                    "bytes in a patch, which holds a changed binary file twice",
                    PATCH_BYTES_MAX as u64,
                    path,
                ));
            }
        }
        if !is_whole {
            out.not_carried.push(change);
        }
    }
    Ok(out)
}

/// Returns the git patch of one regular file; empty if the file does not change.
///
/// # Errors
///
/// [`TreeError::Io`] if the patch cannot be written.
pub fn file_patch(
    path: &RelativePath,
    old: Option<&[u8]>,
    new: Option<&[u8]>,
) -> Result<Vec<u8>, TreeError> {
    let leaf = |content: Option<&[u8]>| {
        content.map(|content| Leaf {
            mode: FileMode::Regular,
            content: content.to_vec(),
        })
    };
    let (old, new) = (leaf(old), leaf(new));
    let mut out = Vec::new();
    let written = write_file(&mut out, path, old.as_ref(), new.as_ref());
    written.during("write a patch of", path)?;
    Ok(out)
}

/// Rejects files that exceed the patch limits before any content is read.
fn refuse_too_large(change: &PathChange) -> Result<(), TreeError> {
    let parts = [&change.old, &change.new].map(|entry| entry.as_ref().and_then(patch_part));
    let [old, new] = parts;
    let most = PATCH_FILE_BYTES_MAX as u64;
    let is_too_large = |entry: &Option<TreeEntry>| matches!(entry, Some(TreeEntry::File { bytes, .. }) if *bytes > most);
    if old != new && (is_too_large(&change.old) || is_too_large(&change.new)) {
        let what = "bytes in a file that changed";
        return Err(TreeError::limit(what, most, &change.path));
    }
    Ok(())
}

fn is_directory(entry: &Option<TreeEntry>) -> bool {
    entry.as_ref().is_some_and(TreeEntry::is_directory)
}

fn write_change(
    out: &mut Vec<u8>,
    path: &RelativePath,
    old: Option<&Leaf>,
    new: Option<&Leaf>,
) -> std::io::Result<Option<DiffStatus>> {
    let is_link = |leaf: &Leaf| leaf.mode == FileMode::Link;
    Ok(Some(match (old, new) {
        (None, None) => return Ok(None),
        (Some(old), Some(new)) if is_link(old) != is_link(new) => {
            write_file(out, path, Some(old), None)?;
            write_file(out, path, None, Some(new))?;
            DiffStatus::TypeChanged
        }
        _ => {
            write_file(out, path, old, new)?;
            match (old, new) {
                (None, _) => DiffStatus::Added,
                (_, None) => DiffStatus::Deleted,
                _ => DiffStatus::Modified,
            }
        }
    }))
}

fn write_file(
    out: &mut Vec<u8>,
    path: &RelativePath,
    old: Option<&Leaf>,
    new: Option<&Leaf>,
) -> std::io::Result<()> {
    let name = |prefix: &[u8]| quote(&[prefix, path.as_bytes()].concat());
    let (old_name, new_name) = (name(b"a/"), name(b"b/"));
    let mut line = |text: String| {
        out.extend_from_slice(text.as_bytes());
        out.push(b'\n');
    };
    line(format!("diff --git {old_name} {new_name}"));
    let mut same_mode = String::new();
    match (old, new) {
        (Some(old), Some(new)) if old.mode == new.mode => {
            same_mode = format!(" {}", old.mode.text());
        }
        (Some(old), Some(new)) => {
            line(format!("old mode {}", old.mode.text()));
            line(format!("new mode {}", new.mode.text()));
        }
        (None, Some(new)) => line(format!("new file mode {}", new.mode.text())),
        (Some(old), None) => line(format!("deleted file mode {}", old.mode.text())),
        (None, None) => {}
    }
    let content = |leaf: Option<&Leaf>| leaf.map_or(Vec::new(), |leaf| leaf.content.clone());
    let id = |leaf: Option<&Leaf>| leaf.map_or(BlobId::NONE, |leaf| BlobId::of(&leaf.content));
    let (old_content, new_content) = (content(old), content(new));
    if old.is_some() && new.is_some() && old_content == new_content {
        return Ok(());
    }
    line(format!("index {}..{}{same_mode}", id(old), id(new)));
    if old_content == new_content {
        return Ok(());
    }
    if is_binary(&old_content) || is_binary(&new_content) {
        line("GIT binary patch".to_owned());
        write_literal(out, &new_content)?;
        return write_literal(out, &old_content);
    }
    // git parses text after a name with a space as a date, unless a tab follows the name.
    let tab = if path.as_bytes().contains(&b' ') {
        "\t"
    } else {
        ""
    };
    let shown = |leaf: Option<&Leaf>, name: &str| match leaf {
        Some(_) => format!("{name}{tab}"),
        None => "/dev/null".to_owned(),
    };
    line(format!("--- {}", shown(old, &old_name)));
    line(format!("+++ {}", shown(new, &new_name)));
    for hunk in hunks(&old_content, &new_content) {
        write_hunk(out, &hunk);
    }
    Ok(())
}

fn is_binary(content: &[u8]) -> bool {
    content.len() > PATCH_TEXT_BYTES_MAX || content.contains(&0)
}

fn write_hunk(out: &mut Vec<u8>, hunk: &Hunk) {
    let range = |before: usize, len: usize| match len {
        0 => format!("{before},0"),
        1 => format!("{}", before + 1),
        _ => format!("{},{len}", before + 1),
    };
    let old = range(hunk.old_start, hunk.old_len());
    let new = range(hunk.new_start, hunk.new_len());
    out.extend_from_slice(format!("@@ -{old} +{new} @@\n").as_bytes());
    for (kind, text) in &hunk.lines {
        out.push(match kind {
            LineKind::Context => b' ',
            LineKind::Removed => b'-',
            LineKind::Added => b'+',
        });
        out.extend_from_slice(text);
        if !text.ends_with(b"\n") {
            out.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}
