//! Changes that turn one tree into another, by path.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::manifest::{Manifest, TreeEntry};
use crate::path::RelativePath;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PathChange {
    pub path: RelativePath,
    /// Entry before the change; `None` if it did not exist.
    pub old: Option<TreeEntry>,
    /// Entry after the change; `None` if it is deleted.
    pub new: Option<TreeEntry>,
}

impl PathChange {
    #[must_use]
    pub fn inverse(self) -> Self {
        Self {
            path: self.path,
            old: self.new,
            new: self.old,
        }
    }
}

/// Returns the changes that turn `before` into `after`, sorted by path.
#[must_use]
pub fn changes(before: &Manifest, after: &Manifest) -> Vec<PathChange> {
    let paths = before.entries().chain(after.entries());
    let paths: BTreeSet<&RelativePath> = paths.map(|(path, _)| path).collect();
    let change = |path: &RelativePath| {
        let (old, new) = (before.get(path), after.get(path));
        (old != new).then(|| PathChange {
            path: path.clone(),
            old: old.cloned(),
            new: new.cloned(),
        })
    };
    paths.into_iter().filter_map(change).collect()
}
