//! The files of a configuration, and how two sides of it come together.

use std::collections::{BTreeMap, BTreeSet};

use goondan_config::KeptFiles;
use goondan_protocol::ids::{InvalidId, RevisionId};
use sha2::{Digest as _, Sha256};

use crate::error::BundleError;
use crate::limits::{FILES_MAX, TREE_BYTES_MAX};

/// Bytes of a digest that names a revision.
const REVISION_BYTES: usize = 16;

/// The files of a configuration by their paths in the project. A file that is only named, such as a module, has
/// no text: it stays where it is.
pub type Tree = BTreeMap<String, Option<String>>;

/// The digests of such files.
pub(crate) type Manifest = BTreeMap<String, Option<String>>;

/// The SHA-256 of a text, as hex digits.
pub(crate) fn digest_of(text: &[u8]) -> String {
    hex::encode(Sha256::digest(text))
}

/// The digests of the files of a tree.
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

/// The name of the revision that these files are.
///
/// # Errors
///
/// None that can happen: hex digits are a valid name.
pub(crate) fn revision_of(manifest: &Manifest) -> Result<RevisionId, InvalidId> {
    let digest = digest_of_files(manifest.iter());
    RevisionId::new(hex::encode(
        digest.get(..REVISION_BYTES).unwrap_or_default(),
    ))
}

/// One digest of what a tree makes otherwise than its base, whatever else is in either.
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

/// The files in which two trees differ.
pub(crate) fn changed_paths(before: &Tree, after: &Tree) -> BTreeSet<String> {
    let paths = before.keys().chain(after.keys());
    paths
        .filter(|path| before.get(*path) != after.get(*path))
        .cloned()
        .collect()
}

/// Both what `ours` and what `theirs` made of a common base; of a file that both changed, what `theirs` made. Also
/// gives these files, those excepted that both made alike.
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

/// Why a tree is none that is kept.
pub(crate) fn too_large() -> BundleError {
    BundleError::Invalid(format!(
        "a configuration may have {FILES_MAX} files and {TREE_BYTES_MAX} bytes in all"
    ))
}

/// The files that a project was read from; none if a path is no text.
#[must_use]
pub fn tree_of(kept: &KeptFiles) -> Option<Tree> {
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
    fn bundle_7_disjoint_files_come_together_and_of_one_file_a_persons_text_holds() {
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
    fn bundle_7_what_is_changed_has_one_digest_whatever_the_project_becomes() {
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
