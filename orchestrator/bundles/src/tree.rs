//! Files of a configuration, and the merge of two versions.

use std::collections::{BTreeMap, BTreeSet};

use goondan_config::ProjectSnapshot;
use goondan_protocol::ids::{InvalidId, RevisionId};
use sha2::{Digest as _, Sha256};

use crate::error::BundleError;
use crate::limits::{FILES_MAX, TREE_BYTES_MAX};

/// Bytes of the digest in a revision's id.
const REVISION_BYTES: usize = 16;

/// Files of a configuration by their paths in the project. A file that is only referenced, such as
/// a module, has no text, because it stays in the project.
pub type Tree = BTreeMap<String, Option<String>>;

/// Digests of such files.
pub(crate) type Manifest = BTreeMap<String, Option<String>>;

/// Returns the SHA-256 of a text in hex.
pub(crate) fn digest_of(text: &[u8]) -> String {
    hex::encode(Sha256::digest(text))
}

/// Returns the digests of a tree's files.
pub(crate) fn manifest_of(tree: &Tree) -> Manifest {
    let digest = |text: &Option<String>| text.as_ref().map(|text| digest_of(text.as_bytes()));
    tree.iter()
        .map(|(path, text)| (path.clone(), digest(text)))
        .collect()
}

fn digest_of_files<'a>(files: impl Iterator<Item = (&'a String, &'a Option<String>)>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for (path, digest) in files {
        hash.update(path.as_bytes());
        hash.update([0]);
        hash.update(digest.as_deref().unwrap_or("-"));
        hash.update([0]);
    }
    hash.finalize().into()
}

/// Returns the revision id of a manifest.
///
/// # Errors
///
/// None in practice: hex digits are a valid id.
pub(crate) fn revision_of(manifest: &Manifest) -> Result<RevisionId, InvalidId> {
    let digest = digest_of_files(manifest.iter());
    RevisionId::new(hex::encode(
        digest.get(..REVISION_BYTES).unwrap_or_default(),
    ))
}

/// Returns the digest of a tree's differences from its base, independent of unchanged files.
pub(crate) fn overlay_digest(base: &Tree, tree: &Tree) -> String {
    let changed = changed_paths(base, tree);
    let of = manifest_of(tree);
    let files: Manifest = changed
        .into_iter()
        .map(|path| {
            let digest = of.get(&path).cloned().flatten();
            (path, digest)
        })
        .collect();
    hex::encode(digest_of_files(files.iter()))
}

/// Returns the files in which two trees differ.
pub(crate) fn changed_paths(before: &Tree, after: &Tree) -> BTreeSet<String> {
    let paths = before.keys().chain(after.keys());
    paths
        .filter(|path| before.get(*path) != after.get(*path))
        .cloned()
        .collect()
}

/// Merges the changes of `ours` and `theirs` to a common base; `theirs` wins for a file that both
/// changed. Also returns these files, except for those changed equally.
pub(crate) fn rebase(base: &Tree, ours: &Tree, theirs: &Tree) -> (Tree, Vec<String>) {
    let mut merged = theirs.clone();
    let mut conflicts = Vec::new();
    for path in changed_paths(base, ours) {
        let (was, mine, their) = (base.get(&path), ours.get(&path), theirs.get(&path));
        if was != their {
            if mine != their {
                conflicts.push(path);
            }
            continue;
        }
        match mine {
            Some(text) => drop(merged.insert(path, text.clone())),
            None => drop(merged.remove(&path)),
        }
    }
    (merged, conflicts)
}

/// Returns the error for a tree that exceeds the limits.
pub(crate) fn too_large() -> BundleError {
    BundleError::Invalid(format!(
        "a configuration may have {FILES_MAX} files and {TREE_BYTES_MAX} bytes in all"
    ))
}

/// Returns the files from which a project was read; `None` if a path is not UTF-8.
#[must_use]
pub fn tree_of(kept: &ProjectSnapshot) -> Option<Tree> {
    kept.iter()
        .map(|(path, text)| Some((path.to_str()?.to_owned(), text.map(str::to_owned))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let file = |(path, text): &(&str, &str)| ((*path).to_owned(), Some((*text).to_owned()));
        files.iter().map(file).collect()
    }

    #[test]
    fn bundle_7_rebase_merges_disjoint_files_and_prefers_user_edits() {
        let base = tree(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let ours = tree(&[("a", "2"), ("b", "2"), ("c", "1"), ("d", "new")]);
        let theirs = tree(&[("a", "1"), ("b", "3"), ("c", "4")]);
        let (merged, conflicts) = rebase(&base, &ours, &theirs);
        assert_eq!(
            merged,
            tree(&[("a", "2"), ("b", "3"), ("c", "4"), ("d", "new")])
        );
        assert_eq!(conflicts, ["b"]);
        let (merged, conflicts) = rebase(&base, &base, &theirs);
        assert_eq!((merged, conflicts), (theirs, Vec::new()));
    }

    #[test]
    fn bundle_7_overlay_digest_is_stable_over_project_changes() {
        let base = tree(&[("a", "1"), ("b", "1")]);
        let ours = tree(&[("a", "2"), ("b", "1")]);
        let later = tree(&[("a", "1"), ("b", "9")]);
        let (rebased, _) = rebase(&base, &ours, &later);
        assert_eq!(
            overlay_digest(&base, &ours),
            overlay_digest(&later, &rebased)
        );
        assert_ne!(overlay_digest(&base, &ours), overlay_digest(&base, &base));
        let revision = |tree| revision_of(&manifest_of(tree)).unwrap();
        assert_ne!(revision(&base), revision(&ours));
    }
}
