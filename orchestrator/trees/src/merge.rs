//! Three-way merge of trees (`PROP-4`).
//!
//! The result is deterministic and independent of file times. A path that one side left unchanged
//! gets the other side's version. Files that both sides edited are merged line by line, if the
//! edits do not touch. Everything else is a [`Conflict`], reported by path. Then there is no merged
//! tree, and files never contain conflict markers, because a program must not install an unfinished
//! merge.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;

use goondan_durable::disk::{DiskFile, Folder, append_all};

use crate::apply::Tree;
use crate::error::{IoContext as _, TreeError};
use crate::fresh::build;
use crate::limits::{Limits, PATCH_BYTES_MAX, PATCH_TEXT_BYTES_MAX};
use crate::manifest::{Digest, Manifest, ManifestBuilder, TreeEntry};
use crate::path::{Names, RelativePath};
use crate::read::{Syncs, copy};

mod lines;
#[cfg(test)]
mod tests;

/// A path that cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub path: RelativePath,
    pub reason: ConflictReason,
}

/// Reason of a conflict. Where it matters, the text names our side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConflictReason {
    /// Both sides edited the same or adjacent lines.
    Lines {
        /// Positions in our text, as zero-based lines. An empty range is before its line.
        ours: Vec<Range<usize>>,
    },
    /// Both sides changed a file that has no comparable lines: binary, or too large.
    Binary,
    /// Both sides added a file or link of that name with different content.
    AddedTwice,
    /// Deleted on our side, changed on theirs.
    DeletedByUs,
    /// Changed on our side, deleted on theirs.
    DeletedByThem,
    /// Both sides changed a link's target.
    Links,
    /// The sides have different kinds: file, directory or link.
    Kinds,
    /// Both sides changed the permission bits.
    Modes,
    /// One side has a file or link where the other has a directory.
    InTheWay {
        /// The path of the file or link.
        of: RelativePath,
    },
    /// Another path differs only in case.
    Twins { other: RelativePath },
}

impl fmt::Display for ConflictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lines { ours } => {
                let shown: Vec<String> = ours.iter().map(shown_lines).collect();
                write!(f, "both sides edited the same place: {}", shown.join(", "))
            }
            Self::Binary => f.write_str("both sides changed it, and its lines cannot be compared"),
            Self::AddedTwice => f.write_str("both sides added it, with different content"),
            Self::DeletedByUs => f.write_str("it was deleted on our side and changed on the other"),
            Self::DeletedByThem => {
                f.write_str("it was changed on our side and deleted on the other")
            }
            Self::Links => f.write_str("both sides changed where the link leads"),
            Self::Kinds => f.write_str("it became a different kind of file on each side"),
            Self::Modes => f.write_str("both sides changed its permission bits"),
            Self::InTheWay { of } => {
                write!(
                    f,
                    "`{of}` is a directory on one side and a file on the other"
                )
            }
            Self::Twins { other } => write!(f, "it differs from `{other}` only in case"),
        }
    }
}

fn shown_lines(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("before line {}", lines.start + 1),
        1 => format!("line {}", lines.start + 1),
        _ => format!("lines {} to {}", lines.start + 1, lines.end),
    }
}

/// A merged tree: its manifest and the source of each content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merge {
    manifest: Manifest,
    /// Paths with content from their side.
    of_theirs: BTreeSet<RelativePath>,
    /// Merged texts of both sides.
    texts: BTreeMap<RelativePath, Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeOutcome {
    Merged(Merge),
    /// The conflicts by path, without a merged tree.
    Conflicts(Vec<Conflict>),
}

impl Merge {
    /// Returns the manifest of the merged tree.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the files with lines of both sides.
    pub fn merged_files(&self) -> impl Iterator<Item = &RelativePath> {
        self.texts.keys()
    }

    /// Writes the merged tree into a new directory `name`. The directory appears complete and
    /// durable, or not at all. The folders must be the merged ones.
    ///
    /// # Errors
    ///
    /// [`TreeError::Taken`], [`TreeError::Damaged`] if the content of a side has changed,
    /// [`TreeError::Io`].
    pub fn write(
        &self,
        ours: &dyn Folder,
        theirs: &dyn Folder,
        parent: &dyn Folder,
        name: &str,
    ) -> Result<(), TreeError> {
        let fill = |into: &dyn Folder| {
            let mut syncs = Syncs::new(into);
            for (path, entry) in self.manifest.entries() {
                let from = if self.of_theirs.contains(path) {
                    theirs
                } else {
                    ours
                };
                if let Some(file) = self.write_one(path, entry, from, into)? {
                    syncs.add(path, file)?;
                }
            }
            syncs.finish()?;
            for (path, entry) in self.manifest.entries().rev() {
                if let TreeEntry::Directory { mode } = entry {
                    into.set_dir_mode(path.as_path(), *mode)
                        .during("set the mode of", path)?;
                }
            }
            Ok((self.manifest.clone(), ()))
        };
        build(parent, name, fill).map(|_| ())
    }

    fn write_one(
        &self,
        path: &RelativePath,
        entry: &TreeEntry,
        from: &dyn Folder,
        into: &dyn Folder,
    ) -> Result<Option<Box<dyn DiskFile>>, TreeError> {
        let at = path.as_path();
        let (mode, bytes) = match entry {
            TreeEntry::Directory { .. } => {
                into.create_dir(at, 0o700).during("create", path)?;
                return Ok(None);
            }
            TreeEntry::File { mode, bytes, .. } => (*mode, *bytes),
            TreeEntry::Link { .. } => (0, 0),
        };
        if let Some(content) = self.texts.get(path) {
            let mut file = into.create(at, mode).during("create", path)?;
            append_all(file.as_mut(), content).during("write", path)?;
            return Ok(Some(file));
        }
        let copied = copy((from, at), (into, at), mode, bytes);
        let (copied, file) = copied.during("copy", path)?;
        if copied != *entry {
            return Err(TreeError::Damaged { path: path.clone() });
        }
        Ok(file)
    }
}

/// Merges two sides that started from `base`. Reads the trees; writes nothing.
///
/// Permission bits are merged like content: the changed side wins. A directory created by both
/// sides keeps our bits. A directory removed by one side stays if the other added something to it.
///
/// # Errors
///
/// [`TreeError::Damaged`] if content does not match its manifest, [`TreeError::Limit`] if the
/// merged texts exceed [`PATCH_BYTES_MAX`] or the merged tree exceeds its limits,
/// [`TreeError::Io`].
pub fn merge(base: Tree<'_>, ours: Tree<'_>, theirs: Tree<'_>) -> Result<MergeOutcome, TreeError> {
    let sides = MergeTrees { base, ours, theirs };
    let manifests = [base.manifest, ours.manifest, theirs.manifest];
    let entries = manifests.into_iter().flat_map(Manifest::entries);
    let paths: BTreeSet<&RelativePath> = entries.map(|(path, _)| path).collect();
    let mut nodes = MergedNodes::new();
    let mut conflicts = Vec::new();
    let mut text_bytes = 0;
    for path in paths {
        match sides.decide(path)? {
            PathDecision::Gone => {}
            PathDecision::Node(node) => {
                if let MergedContent::Text(text) = &node.content {
                    text_bytes += text.len();
                }
                if text_bytes > PATCH_BYTES_MAX {
                    let limit = PATCH_BYTES_MAX as u64;
                    return Err(TreeError::limit("bytes of merged text", limit, path));
                }
                nodes.insert(path.clone(), node);
            }
            PathDecision::Conflict(reason) => conflicts.push(Conflict {
                path: path.clone(),
                reason,
            }),
        }
    }
    sides.restore_directories(&mut nodes);
    conflicts.extend(misplaced(&nodes));
    if !conflicts.is_empty() {
        conflicts.sort_by(|one, other| one.path.cmp(&other.path));
        conflicts.dedup_by(|one, other| one.path == other.path);
        return Ok(MergeOutcome::Conflicts(conflicts));
    }
    gathered(nodes).map(MergeOutcome::Merged)
}

fn gathered(nodes: MergedNodes) -> Result<Merge, TreeError> {
    let mut manifest = ManifestBuilder::new(Limits::default(), Names::Portable);
    let (mut of_theirs, mut texts) = (BTreeSet::new(), BTreeMap::new());
    for (path, node) in nodes {
        manifest.add(path.clone(), node.entry)?;
        match node.content {
            MergedContent::Ours => {}
            MergedContent::Theirs => drop(of_theirs.insert(path)),
            MergedContent::Text(text) => drop(texts.insert(path, text)),
        }
    }
    Ok(Merge {
        manifest: manifest.finish(),
        of_theirs,
        texts,
    })
}

/// Returns paths that cannot exist in one tree, although each side is valid: below a file, or case
/// twins.
fn misplaced(nodes: &MergedNodes) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    let mut folded: HashMap<Vec<u8>, &RelativePath> = HashMap::new();
    for path in nodes.keys() {
        let is_file = |parent: &RelativePath| {
            nodes
                .get(parent)
                .is_some_and(|node| !node.entry.is_directory())
        };
        let twin = folded.insert(path.folded(), path);
        let reason = match (path.ancestors().into_iter().find(is_file), twin) {
            (Some(of), _) => ConflictReason::InTheWay { of },
            (None, Some(twin)) => ConflictReason::Twins {
                other: twin.clone(),
            },
            (None, None) => continue,
        };
        conflicts.push(Conflict {
            path: path.clone(),
            reason,
        });
    }
    conflicts
}

/// A merged tree under construction.
type MergedNodes = BTreeMap<RelativePath, MergedNode>;

struct MergedNode {
    entry: TreeEntry,
    content: MergedContent,
}

/// Source of a path's content.
enum MergedContent {
    Ours,
    Theirs,
    Text(Vec<u8>),
}

enum PathDecision {
    Gone,
    Node(MergedNode),
    Conflict(ConflictReason),
}

impl PathDecision {
    fn side(entry: Option<&TreeEntry>, content: MergedContent) -> Self {
        match entry {
            None => Self::Gone,
            Some(entry) => Self::Node(MergedNode {
                entry: entry.clone(),
                content,
            }),
        }
    }
}

/// Manifest entry of a file.
#[derive(Clone, Copy)]
struct File {
    mode: u32,
    bytes: u64,
    sha256: Digest,
}

impl File {
    fn of(entry: &TreeEntry) -> Option<Self> {
        match *entry {
            TreeEntry::File {
                mode,
                bytes,
                sha256,
            } => Some(Self {
                mode,
                bytes,
                sha256,
            }),
            TreeEntry::Directory { .. } | TreeEntry::Link { .. } => None,
        }
    }

    fn node(self, mode: u32, content: MergedContent) -> PathDecision {
        let entry = TreeEntry::File {
            mode,
            bytes: self.bytes,
            sha256: self.sha256,
        };
        PathDecision::Node(MergedNode { entry, content })
    }
}

/// The three trees of a merge.
#[derive(Clone, Copy)]
struct MergeTrees<'t> {
    base: Tree<'t>,
    ours: Tree<'t>,
    theirs: Tree<'t>,
}

impl MergeTrees<'_> {
    fn decide(&self, path: &RelativePath) -> Result<PathDecision, TreeError> {
        let base = self.base.manifest.get(path);
        let (ours, theirs) = (self.ours.manifest.get(path), self.theirs.manifest.get(path));
        if theirs == base || theirs == ours {
            return Ok(PathDecision::side(ours, MergedContent::Ours));
        }
        if ours == base {
            return Ok(PathDecision::side(theirs, MergedContent::Theirs));
        }
        let (Some(ours), Some(theirs)) = (ours, theirs) else {
            return Ok(PathDecision::Conflict(if ours.is_none() {
                ConflictReason::DeletedByUs
            } else {
                ConflictReason::DeletedByThem
            }));
        };
        if let (Some(ours), Some(theirs)) = (File::of(ours), File::of(theirs)) {
            return self.files(path, base.and_then(File::of), ours, theirs);
        }
        let reason = match (base, ours, theirs) {
            (
                Some(TreeEntry::Directory { .. }),
                TreeEntry::Directory { .. },
                TreeEntry::Directory { .. },
            ) => ConflictReason::Modes,
            (_, TreeEntry::Directory { .. }, TreeEntry::Directory { .. }) => {
                return Ok(PathDecision::side(Some(ours), MergedContent::Ours));
            }
            (Some(TreeEntry::Link { .. }), TreeEntry::Link { .. }, TreeEntry::Link { .. }) => {
                ConflictReason::Links
            }
            (None, TreeEntry::Link { .. }, TreeEntry::Link { .. }) => ConflictReason::AddedTwice,
            _ => ConflictReason::Kinds,
        };
        Ok(PathDecision::Conflict(reason))
    }

    /// Merges two different files that both changed.
    fn files(
        &self,
        path: &RelativePath,
        base: Option<File>,
        ours: File,
        theirs: File,
    ) -> Result<PathDecision, TreeError> {
        let is_same = |one: File, other: File| one.sha256 == other.sha256;
        if base.is_none() && !is_same(ours, theirs) {
            return Ok(PathDecision::Conflict(ConflictReason::AddedTwice));
        }
        let mode = match base {
            _ if ours.mode == theirs.mode => ours.mode,
            Some(base) if base.mode == theirs.mode => ours.mode,
            Some(base) if base.mode == ours.mode => theirs.mode,
            _ => return Ok(PathDecision::Conflict(ConflictReason::Modes)),
        };
        match base {
            Some(base) if is_same(base, ours) => Ok(theirs.node(mode, MergedContent::Theirs)),
            Some(base) if !is_same(base, theirs) && !is_same(ours, theirs) => {
                self.texts(path, [base, ours, theirs], mode)
            }
            _ => Ok(ours.node(mode, MergedContent::Ours)),
        }
    }

    /// Merges three different texts.
    fn texts(
        &self,
        path: &RelativePath,
        files: [File; 3],
        mode: u32,
    ) -> Result<PathDecision, TreeError> {
        let most = PATCH_TEXT_BYTES_MAX as u64;
        if files.iter().any(|file| file.bytes > most) {
            return Ok(PathDecision::Conflict(ConflictReason::Binary));
        }
        let content = |tree: Tree<'_>| -> Result<Vec<u8>, TreeError> {
            let leaf = tree.leaf(path)?;
            leaf.map(|leaf| leaf.content)
                .ok_or_else(|| TreeError::Damaged { path: path.clone() })
        };
        let (base, ours, theirs) = (
            content(self.base)?,
            content(self.ours)?,
            content(self.theirs)?,
        );
        if [&base, &ours, &theirs].iter().any(|text| text.contains(&0)) {
            return Ok(PathDecision::Conflict(ConflictReason::Binary));
        }
        Ok(match lines::merge(&base, &ours, &theirs) {
            Err(ours) => PathDecision::Conflict(ConflictReason::Lines { ours }),
            Ok(text) => PathDecision::Node(MergedNode {
                entry: TreeEntry::File {
                    mode,
                    bytes: text.len() as u64,
                    sha256: Digest::of(&text),
                },
                content: MergedContent::Text(text),
            }),
        })
    }

    /// Restores directories that one side removed and the other added something to.
    fn restore_directories(&self, nodes: &mut MergedNodes) {
        let parents = nodes.keys().flat_map(RelativePath::ancestors);
        let missing: BTreeSet<RelativePath> = parents
            .filter(|parent| !nodes.contains_key(parent))
            .collect();
        for path in missing {
            let sides = [self.ours, self.theirs].into_iter();
            let entry = sides
                .filter_map(|tree| tree.manifest.get(&path))
                .find(|entry| entry.is_directory());
            if let Some(entry) = entry {
                let (entry, content) = (entry.clone(), MergedContent::Ours);
                nodes.insert(path, MergedNode { entry, content });
            }
        }
    }
}
