//! Tree entries in the form that users and clients receive.

use std::collections::BTreeSet;
use std::io;

use goondan_durable::disk::{Folder, NodeKind};
use goondan_protocol::control::{EntryStanding, SandboxFile, UncopiedPath};
use goondan_trees::freeze::ExcludedEntry;
use goondan_trees::{Digest, Manifest, RelativePath, TreeEntry, observe};

use crate::guards::in_words;
use crate::limits::LEFT_OUT_MAX;

/// Permission bits in octal.
pub(crate) fn octal(mode: u32) -> String {
    format!("{mode:04o}")
}

/// The kind of a manifest's path.
pub(crate) fn standing(entry: Option<&TreeEntry>) -> EntryStanding {
    match entry {
        None => EntryStanding::Missing,
        Some(TreeEntry::Directory { .. }) => EntryStanding::Directory,
        Some(TreeEntry::Link { target }) => EntryStanding::Link {
            sha256: Digest::of(target).to_string(),
        },
        Some(TreeEntry::File { mode, sha256, .. }) => EntryStanding::File {
            sha256: sha256.to_string(),
            mode: octal(*mode),
        },
    }
}

/// Current state of a path in the Project Root.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PathState {
    /// An entry that a tree can contain, or nothing.
    Entry(Option<TreeEntry>),
    /// A device, a socket or a pipe.
    Special,
    /// A path below a symbolic link, which is not followed.
    BehindLink(RelativePath),
    /// A path below a device, a socket or a pipe.
    BehindSpecial(RelativePath),
}

impl PathState {
    pub(crate) fn of(root: &dyn Folder, path: &RelativePath) -> io::Result<Self> {
        for above in path.ancestors() {
            match root.look(above.as_path())?.map(|stat| stat.kind) {
                Some(NodeKind::Directory) => {}
                Some(NodeKind::Link) => return Ok(Self::BehindLink(above)),
                Some(NodeKind::Special) => return Ok(Self::BehindSpecial(above)),
                Some(NodeKind::File) | None => return Ok(Self::Entry(None)),
            }
        }
        match observe(root, path.as_path()) {
            Ok(entry) => Ok(Self::Entry(entry)),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(Self::Special),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn standing(&self) -> EntryStanding {
        match self {
            Self::Entry(entry) => standing(entry.as_ref()),
            Self::Special | Self::BehindLink(_) | Self::BehindSpecial(_) => EntryStanding::Other,
        }
    }

    /// The reason that no file can be placed there, independent of the file.
    pub(crate) fn obstacle(&self) -> Option<String> {
        match self {
            Self::Entry(_) => None,
            Self::Special => Some("it is now a pipe, a socket or a device".to_owned()),
            Self::BehindLink(above) => {
                Some(format!("`{above}` is now a link; links are not followed"))
            }
            Self::BehindSpecial(above) => {
                Some(format!("`{above}` is now a pipe, a socket or a device"))
            }
        }
    }

    pub(crate) fn is(&self, entry: Option<&TreeEntry>) -> bool {
        match (self, entry) {
            (Self::Entry(Some(TreeEntry::Directory { .. })), Some(TreeEntry::Directory { .. })) => {
                true
            }
            (Self::Entry(found), expected) => found.as_ref() == expected,
            (Self::Special | Self::BehindLink(_) | Self::BehindSpecial(_), _) => false,
        }
    }
}

/// SHA-256 of a file's content or a link's target.
pub(crate) fn sha256(entry: Option<&TreeEntry>) -> Option<String> {
    match entry? {
        TreeEntry::Directory { .. } => None,
        TreeEntry::Link { target } => Some(Digest::of(target).to_string()),
        TreeEntry::File { sha256, .. } => Some(sha256.to_string()),
    }
}

/// Size of a file or link.
pub(crate) fn bytes(entry: Option<&TreeEntry>) -> Option<u64> {
    match entry? {
        TreeEntry::Directory { .. } => None,
        TreeEntry::Link { target } => Some(target.len() as u64),
        TreeEntry::File { bytes, .. } => Some(*bytes),
    }
}

/// The files and links of a manifest.
pub(crate) fn files(manifest: &Manifest) -> Vec<SandboxFile> {
    let file = |(path, entry): (&RelativePath, &TreeEntry)| {
        let mode = match entry {
            TreeEntry::Directory { .. } => return None,
            TreeEntry::Link { .. } => "link".to_owned(),
            TreeEntry::File { mode, .. } => octal(*mode),
        };
        Some(SandboxFile {
            path: path.to_string(),
            sha256: sha256(Some(entry))?,
            mode,
        })
    };
    manifest.entries().filter_map(file).collect()
}

/// The files, links and empty directories of a manifest, which together identify all its entries.
pub(crate) fn leaves(manifest: &Manifest) -> Vec<RelativePath> {
    let entries = || manifest.entries().map(|(path, _)| path);
    let parents: BTreeSet<RelativePath> = entries().filter_map(RelativePath::parent).collect();
    let leaves = entries().filter(|path| !parents.contains(path));
    leaves.cloned().collect()
}

/// The omitted entries, up to the reporting limit.
pub(crate) fn not_given(left_out: Vec<ExcludedEntry>) -> Vec<UncopiedPath> {
    let told = left_out.into_iter().map(|left| UncopiedPath {
        path: left.path,
        reason: in_words(&left.reason),
    });
    told.take(LEFT_OUT_MAX).collect()
}
