//! Contents of a directory: to detect changes, and to copy it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Entry of a tree: its mode and its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    mode: u32,
    modified: (i64, i64),
    content: Vec<u8>,
}

impl FileEntry {
    /// True if both have the same mode and content, ignoring times.
    #[must_use]
    pub fn is_alike(&self, other: &Self) -> bool {
        (self.mode, &self.content) == (other.mode, &other.content)
    }
}

/// Copies a directory recursively. Symbolic links are followed.
pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Everything below `root` that `keep` admits: paths relative to `root`, with mode, time of the last
/// change, and content. Symbolic links are not followed.
#[must_use]
pub fn snapshot(root: &Path, keep: impl Fn(&Path) -> bool) -> BTreeMap<PathBuf, FileEntry> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if !keep(&path) {
                continue;
            }
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_dir() {
                waiting.push(path.clone());
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else if metadata.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            let entry = FileEntry {
                mode: metadata.mode(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                content,
            };
            found.insert(path.strip_prefix(root).unwrap().to_owned(), entry);
        }
    }
    found
}
