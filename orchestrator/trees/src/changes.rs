//! What is to become of each path, to make one tree out of another.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::manifest::{Entry, Manifest};
use crate::path::RelativePath;

/// What is to become of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Change {
    /// The path.
    pub path: RelativePath,
    /// What is there before; none, nothing.
    pub old: Option<Entry>,
    /// What is there after; none, nothing.
    pub new: Option<Entry>,
}

impl Change {
    /// What takes it back.
    #[must_use]
    pub fn inverse(self) -> Self {
        Self {
            path: self.path,
            old: self.new,
            new: self.old,
        }
    }
}

/// The changes that make `after` of `before`, by path.
#[must_use]
pub fn changes(before: &Manifest, after: &Manifest) -> Vec<Change> {
    let paths = before.entries().chain(after.entries());
    let paths: BTreeSet<&RelativePath> = paths.map(|(path, _)| path).collect();
    let change = |path: &RelativePath| {
        let (old, new) = (before.get(path), after.get(path));
        (old != new).then(|| Change {
            path: path.clone(),
            old: old.cloned(),
            new: new.cloned(),
        })
    };
    paths.into_iter().filter_map(change).collect()
}
