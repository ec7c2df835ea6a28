//! Changes that turn one tree into another, by path.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::manifest::{Entry, Manifest};
use crate::path::RelativePath;

/// Change of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Change {
    /// The path.
    pub path: RelativePath,
    /// Entry before the change; `None` if it did not exist.
    pub old: Option<Entry>,
    /// Entry after the change; `None` if it is deleted.
    pub new: Option<Entry>,
}

impl Change {
    /// Returns the reverse change.
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
