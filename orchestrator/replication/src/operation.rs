//! Changes that a writer batch makes to the files of a workspace.

use std::fmt;

use crate::limits::{APPEND_BYTES_MAX, PATH_BYTES_MAX, PATH_NAME_BYTES_MAX};

/// The text is not a path below a workspace's directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a path of a record leads out of the workspace, or is longer than {PATH_BYTES_MAX} bytes")]
pub struct InvalidPath;

/// A path below a workspace's directory: names separated by `/`, without `.` and `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelativePath(String);

impl RelativePath {
    /// Validates a path.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`] if it is empty, absolute or too long, or if a name in it is empty, `.`,
    /// `..`, too long or contains a NUL.
    pub fn new(text: &str) -> Result<Self, InvalidPath> {
        let is_name = |name: &str| {
            !name.is_empty()
                && name != "."
                && name != ".."
                && name.len() <= PATH_NAME_BYTES_MAX
                && !name.contains('\0')
        };
        if text.len() <= PATH_BYTES_MAX && text.split('/').all(is_name) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidPath)
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if the path equals `ancestor` or is below it.
    #[must_use]
    pub fn is_within(&self, ancestor: &Self) -> bool {
        let rest = self.0.strip_prefix(&ancestor.0);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The parent directory; `None` for the workspace's directory.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('/')?;
        Some(Self(parent.to_owned()))
    }

    /// Replaces the prefix `from` of the path by `to`.
    #[must_use]
    pub fn moved(&self, from: &Self, to: &Self) -> Option<Self> {
        if !self.is_within(from) {
            return None;
        }
        let rest = self.0.strip_prefix(&from.0)?;
        Self::new(&format!("{}{rest}", to.0)).ok()
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A change of a workspace's files. Changes are applied in order.
///
/// Each change can be applied again to files that already contain it and some of the following
/// changes, because a replay resumes at the last durable note, which may be behind the state of the
/// files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOperation {
    /// Creates an empty file and replaces an existing one.
    Create { path: RelativePath },
    /// Appends bytes to a file.
    Append {
        path: RelativePath,
        /// Length of the file before the append, in bytes. Content beyond it is removed first.
        offset: u64,
        /// The bytes; at most [`APPEND_BYTES_MAX`].
        bytes: Vec<u8>,
    },
    SetLen {
        path: RelativePath,
        /// The new length, in bytes.
        len: u64,
    },
    /// Renames a file or directory and replaces an existing file of the new name.
    Rename {
        from: RelativePath,
        to: RelativePath,
    },
    /// Removes a file. A missing file is not an error.
    RemoveFile { path: RelativePath },
    /// Creates a directory. An existing directory is left unchanged.
    CreateDir { path: RelativePath },
    /// Removes a directory with its content. A missing directory is not an error.
    RemoveTree { path: RelativePath },
}

impl FileOperation {
    /// Splits an append of any length into operations that each fit in a record.
    #[must_use]
    pub fn appends(path: &RelativePath, offset: u64, bytes: &[u8]) -> Vec<Self> {
        let pieces = bytes.chunks(APPEND_BYTES_MAX);
        let mut offset = offset;
        pieces
            .map(|piece| {
                let operation = Self::Append {
                    path: path.clone(),
                    offset,
                    bytes: piece.to_vec(),
                };
                offset = offset.saturating_add(piece.len() as u64);
                operation
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_within_the_workspace() {
        for good in [
            "a",
            "a/b.jsonl",
            "instances/telegram%3a1/messages/inbox.jsonl",
            "...",
            "가",
        ] {
            assert_eq!(RelativePath::new(good).unwrap().as_str(), good);
        }
        let long_name = "x".repeat(PATH_NAME_BYTES_MAX + 1);
        let long_path = "xy/".repeat(PATH_BYTES_MAX / 3) + "xy";
        for bad in [
            "", "/a", "a/", "a//b", ".", "a/../b", "..", "a\0b", &long_name, &long_path,
        ] {
            assert_eq!(RelativePath::new(bad), Err(InvalidPath), "{bad}");
        }
    }

    #[test]
    fn path_moves_with_its_parent_directory() {
        let path = |text| RelativePath::new(text).unwrap();
        assert_eq!(
            path("a/b/c").moved(&path("a/b"), &path("d")),
            Some(path("d/c"))
        );
        assert_eq!(path("a/b").moved(&path("a/b"), &path("d")), Some(path("d")));
        assert_eq!(path("a/bc").moved(&path("a/b"), &path("d")), None);
        assert_eq!(path("a/b").parent(), Some(path("a")));
        assert_eq!(path("a").parent(), None);
    }

    #[test]
    fn a_long_append_is_several() {
        let path = RelativePath::new("a").unwrap();
        let bytes = vec![7; APPEND_BYTES_MAX + 5];
        let pieces = FileOperation::appends(&path, 10, &bytes);
        let (mut end, mut all) = (10, Vec::new());
        for piece in &pieces {
            let FileOperation::Append { offset, bytes, .. } = piece else {
                panic!("{piece:?}");
            };
            assert_eq!(*offset, end);
            end += bytes.len() as u64;
            all.extend(bytes);
        }
        assert_eq!((pieces.len(), all), (2, bytes));
        assert!(FileOperation::appends(&path, 0, &[]).is_empty());
    }
}
