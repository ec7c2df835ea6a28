//! Stored files of a project's last known good configuration, which can be loaded again.
//!
//! Environment files are never included, because their values may be secrets (`SEC-1`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The files a project was read from: paths relative to the Project Root, with their texts. A file
/// that was only referenced, such as a module, has no text and stays in its place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectSnapshot {
    files: BTreeMap<PathBuf, Option<String>>,
}

impl ProjectSnapshot {
    /// Every file with its text, if it has one, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, Option<&str>)> {
        self.files
            .iter()
            .map(|(path, text)| (path.as_path(), text.as_deref()))
    }

    pub(crate) fn has(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    pub(crate) fn text(&self, path: &Path) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// The files with a text, restricted to the requested ones.
    pub(crate) fn with_text(
        &self,
        is_wanted: impl Fn(&Path) -> bool,
    ) -> impl Iterator<Item = PathBuf> {
        let files = self.files.iter();
        files
            .filter(move |(path, text)| text.is_some() && is_wanted(path))
            .map(|(path, _)| path.clone())
    }

    pub(crate) fn add(&mut self, path: &Path, text: Option<&str>) {
        let text = text.map(str::to_owned);
        match self.files.entry(path.to_path_buf()) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(text);
            }
            // A file that is both read and referenced keeps its text.
            std::collections::btree_map::Entry::Occupied(mut entry) if text.is_some() => {
                entry.insert(text);
            }
            std::collections::btree_map::Entry::Occupied(_) => {}
        }
    }
}

impl FromIterator<(PathBuf, Option<String>)> for ProjectSnapshot {
    fn from_iter<I: IntoIterator<Item = (PathBuf, Option<String>)>>(files: I) -> Self {
        Self {
            files: files.into_iter().collect(),
        }
    }
}
