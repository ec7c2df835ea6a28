//! Digest of a package's content.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::limits::{PACKAGE_BYTES_MAX, PACKAGE_DEPTH_MAX, PACKAGE_ENTRIES_MAX};

/// SHA-256 of a tree: of every path with its kind, executable bit and content. Times, owners and
/// other permissions do not count, so that it is equal on every machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TreeDigest([u8; 32]);

const PREFIX: &str = "sha256-";

/// Reason why a tree has no digest.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("cannot read {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// An entry other than a file, directory or link.
    #[error("{} is neither a file, nor a directory, nor a link", .0.display())]
    Special(PathBuf),
    /// The tree exceeds the limits of packages.
    #[error("{} holds more than a package may", .0.display())]
    TooLarge(PathBuf),
}

/// Text that is not a tree digest.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a tree digest of the form `sha256-…`")]
pub struct InvalidDigest(String);

impl TreeDigest {
    #[must_use]
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    #[cfg(test)]
    pub(crate) fn of_text(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }
}

impl FromStr for TreeDigest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let invalid = || InvalidDigest(text.to_owned());
        let mut digest = [0; 32];
        let digits = text.strip_prefix(PREFIX).ok_or_else(invalid)?;
        hex::decode_to_slice(digits, &mut digest).map_err(|_no_digits| invalid())?;
        Ok(Self(digest))
    }
}

impl TryFrom<String> for TreeDigest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<TreeDigest> for String {
    fn from(digest: TreeDigest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for TreeDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.to_hex())
    }
}

impl fmt::Debug for TreeDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads a package's tree and returns its digest. Follows no link. Blocks on I/O.
///
/// # Errors
///
/// [`TreeError`]
pub fn tree_digest(root: &Path) -> Result<TreeDigest, TreeError> {
    let mut reading = TreeHasher {
        hasher: Sha256::new(),
        entries_left: PACKAGE_ENTRIES_MAX,
        bytes_left: PACKAGE_BYTES_MAX,
    };
    reading.directory(root, Path::new(""), PACKAGE_DEPTH_MAX)?;
    Ok(TreeDigest(reading.hasher.finalize().into()))
}

struct TreeHasher {
    hasher: Sha256,
    entries_left: usize,
    bytes_left: u64,
}

fn io(path: &Path) -> impl FnOnce(io::Error) -> TreeError {
    let path = path.to_owned();
    move |source| TreeError::Io { path, source }
}

impl TreeHasher {
    fn directory(&mut self, root: &Path, below: &Path, depth: usize) -> Result<(), TreeError> {
        let directory = root.join(below);
        let listed = fs::read_dir(&directory).map_err(io(&directory))?;
        let mut names = Vec::new();
        for entry in listed {
            let entry = entry.map_err(io(&directory))?;
            self.entries_left = self
                .entries_left
                .checked_sub(1)
                .filter(|_| depth > 0)
                .ok_or_else(|| TreeError::TooLarge(directory.clone()))?;
            names.push(entry.file_name());
        }
        names.sort();
        for name in names {
            self.entry(root, &below.join(name), depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, root: &Path, below: &Path, depth: usize) -> Result<(), TreeError> {
        let path = root.join(below);
        let metadata = fs::symlink_metadata(&path).map_err(io(&path))?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            self.note(b'd', below, &[]);
            return self.directory(root, below, depth.saturating_sub(1));
        }
        if kind.is_symlink() {
            let target = fs::read_link(&path).map_err(io(&path))?;
            self.note(b'l', below, target.as_os_str().as_bytes());
            return Ok(());
        }
        if !kind.is_file() {
            return Err(TreeError::Special(path));
        }
        let mut content = Sha256::new();
        let file = fs::File::open(&path).map_err(io(&path))?;
        let most = self.bytes_left.saturating_add(1);
        let read = io::copy(&mut file.take(most), &mut content).map_err(io(&path))?;
        let left = self.bytes_left.checked_sub(read);
        self.bytes_left = left.ok_or_else(|| TreeError::TooLarge(path.clone()))?;
        let is_program = metadata.permissions().mode() & 0o100 != 0;
        let kind = if is_program { b'x' } else { b'f' };
        self.note(kind, below, &content.finalize());
        Ok(())
    }

    /// Each part is length-prefixed, so that the encoding is unambiguous.
    fn note(&mut self, kind: u8, path: &Path, content: &[u8]) {
        let path = path.as_os_str().as_bytes();
        self.hasher.update([kind]);
        for part in [path, content] {
            self.hasher.update((part.len() as u64).to_be_bytes());
            self.hasher.update(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree(fill: impl FnOnce(&Path)) -> TreeDigest {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path());
        tree_digest(dir.path()).unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "test files need not be durable")]
    fn write(dir: &Path, name: &str, text: &str) {
        fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
        fs::write(dir.join(name), text).unwrap();
    }

    #[test]
    fn pkg_3_every_difference_of_a_tree_is_another_digest() {
        let plain = |dir: &Path| {
            write(dir, "a", "text");
            write(dir, "b/c", "more");
        };
        let usual = tree(plain);
        assert_eq!(tree(plain), usual);
        let mut others = vec![usual];
        others.push(tree(|dir| {
            plain(dir);
            write(dir, "a", "Text");
        }));
        others.push(tree(|dir| {
            plain(dir);
            write(dir, "d", "");
        }));
        others.push(tree(|dir| {
            plain(dir);
            fs::create_dir(dir.join("d")).unwrap();
        }));
        others.push(tree(|dir| {
            plain(dir);
            symlink("a", dir.join("d")).unwrap();
        }));
        others.push(tree(|dir| {
            plain(dir);
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(dir.join("a"), mode).unwrap();
        }));
        others.push(tree(|dir| write(dir, "a", "textb/cmore")));
        let count = others.len();
        others.sort();
        others.dedup();
        assert_eq!(others.len(), count);
        // Machine-specific attributes do not change the digest.
        let read_only = tree(|dir| {
            plain(dir);
            let mode = fs::Permissions::from_mode(0o444);
            fs::set_permissions(dir.join("a"), mode).unwrap();
        });
        assert_eq!(read_only, usual);
    }

    #[test]
    fn a_tree_that_is_too_deep_or_holds_a_socket_has_no_digest() {
        let dir = tempfile::tempdir().unwrap();
        let deep: PathBuf = std::iter::repeat_n("d", PACKAGE_DEPTH_MAX + 1).collect();
        fs::create_dir_all(dir.path().join(deep)).unwrap();
        assert!(matches!(
            tree_digest(dir.path()),
            Err(TreeError::TooLarge(_))
        ));
        let dir = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap();
        assert!(matches!(
            tree_digest(dir.path()),
            Err(TreeError::Special(_))
        ));
    }
}
