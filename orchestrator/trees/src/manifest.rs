//! Content of a tree: every path with kind, mode and digest, without file content.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::error::TreeError;
use crate::limits::{LINK_TARGET_BYTES_MAX, Limits};
use crate::path::{LocalPath, Names, RelativePath};
use crate::quote::{from_text, to_text};

/// A SHA-256 digest; as text, 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the digest of some bytes.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the digest of the hashed data.
    #[must_use]
    pub fn finish(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut digest = [0; 32];
        hex::decode_to_slice(&text, &mut digest).map_err(serde::de::Error::custom)?;
        Ok(Self(digest))
    }
}

/// Kind and attributes of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", deny_unknown_fields)]
pub enum TreeEntry {
    File {
        mode: u32,
        /// Its length in bytes.
        bytes: u64,
        /// The digest of its content.
        sha256: Digest,
    },
    Directory {
        mode: u32,
    },
    Link {
        #[serde(serialize_with = "write_target", deserialize_with = "read_target")]
        target: Vec<u8>,
    },
}

impl TreeEntry {
    /// True if it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }
}

fn write_target<S: Serializer>(target: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&to_text(target))
}

fn read_target<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    from_text(&text)
        .filter(|target| !target.is_empty() && target.len() <= LINK_TARGET_BYTES_MAX)
        .ok_or_else(|| serde::de::Error::custom(format!("invalid link target `{text}`")))
}

/// Content of a tree, by path. Only a [`ManifestBuilder`] creates it, so it is a valid tree: every
/// path has a parent directory, and no two paths differ only in case, unless it was built with
/// [`Names::Local`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Manifest(BTreeMap<RelativePath, TreeEntry>);

impl Manifest {
    #[must_use]
    pub fn get(&self, path: &RelativePath) -> Option<&TreeEntry> {
        self.0.get(path)
    }

    /// Returns all entries in byte order: a directory before its content.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = (&RelativePath, &TreeEntry)> {
        self.0.iter()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if the tree is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the total bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let of = |entry: &TreeEntry| match entry {
            TreeEntry::File { bytes, .. } => *bytes,
            TreeEntry::Directory { .. } | TreeEntry::Link { .. } => 0,
        };
        self.0.values().map(of).sum()
    }

    /// Returns the digest of the whole tree: of its names, kinds, modes and contents.
    ///
    /// # Errors
    ///
    /// [`TreeError::Unwritable`].
    pub fn digest(&self) -> Result<Digest, TreeError> {
        let text = serde_json::to_vec(self).map_err(|error| TreeError::Unwritable {
            problem: error.to_string(),
        })?;
        Ok(Digest::of(&text))
    }
}

impl<'de> Deserialize<'de> for Manifest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read::<RelativePath, D>(deserializer, Names::Portable)
    }
}

/// Deserializes a manifest built with [`Names::Local`]; for `deserialize_with`.
///
/// # Errors
///
/// Deserializer errors, or an invalid tree.
pub fn read_local_manifest<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Manifest, D::Error> {
    read::<LocalPath, D>(deserializer, Names::Local)
}

fn read<'de, P, D>(deserializer: D, names: Names) -> Result<Manifest, D::Error>
where
    P: Deserialize<'de> + Ord + Into<RelativePath>,
    D: Deserializer<'de>,
{
    let entries = BTreeMap::<P, TreeEntry>::deserialize(deserializer)?;
    let mut builder = ManifestBuilder::new(Limits::default(), names);
    for (path, entry) in entries {
        let added = builder.add(path.into(), entry);
        added.map_err(serde::de::Error::custom)?;
    }
    Ok(builder.finish())
}

/// Builds a manifest and rejects invalid trees and exceeded limits.
#[derive(Debug)]
pub struct ManifestBuilder {
    limits: Limits,
    names: Names,
    entries: BTreeMap<RelativePath, TreeEntry>,
    /// Case-folded paths, unless names are local.
    folded: HashMap<Vec<u8>, RelativePath>,
    bytes: u64,
}

impl ManifestBuilder {
    /// Creates an empty tree.
    #[must_use]
    pub fn new(limits: Limits, names: Names) -> Self {
        Self {
            limits,
            names,
            entries: BTreeMap::new(),
            folded: HashMap::new(),
            bytes: 0,
        }
    }

    /// Adds a path. Its parent directory must exist.
    ///
    /// # Errors
    ///
    /// [`TreeError::Path`], [`TreeError::Duplicate`], [`TreeError::Twins`],
    /// [`TreeError::NotInDirectory`], [`TreeError::Limit`].
    pub fn add(&mut self, path: RelativePath, entry: TreeEntry) -> Result<(), TreeError> {
        if self.names == Names::Portable {
            path.check(self.names)?;
        }
        let is_in_directory = path.parent().is_none_or(|parent| {
            let parent = self.entries.get(&parent);
            parent.is_some_and(TreeEntry::is_directory)
        });
        if !is_in_directory {
            return Err(TreeError::NotInDirectory { path });
        }
        if self.entries.contains_key(&path) {
            return Err(TreeError::Duplicate { path });
        }
        let folded = (self.names == Names::Portable).then(|| path.folded());
        if let Some(twin) = folded.as_ref().and_then(|folded| self.folded.get(folded)) {
            let one = twin.clone();
            return Err(TreeError::Twins { one, other: path });
        }
        if self.entries.len() >= self.limits.entries() {
            return Err(TreeError::limit(
                "entries",
                self.limits.entries() as u64,
                &path,
            ));
        }
        if let TreeEntry::File { bytes, .. } = &entry {
            self.bytes = self.bytes.saturating_add(*bytes);
            if self.bytes > self.limits.bytes() {
                return Err(TreeError::limit("bytes", self.limits.bytes(), &path));
            }
        }
        if let Some(folded) = folded {
            self.folded.insert(folded, path.clone());
        }
        self.entries.insert(path, entry);
        Ok(())
    }

    /// Replaces an entry that was added before its content was known.
    pub(crate) fn fill(&mut self, path: &RelativePath, entry: TreeEntry) -> Result<(), TreeError> {
        if let TreeEntry::File { bytes, .. } = &entry {
            self.bytes = self.bytes.saturating_add(*bytes);
            if self.bytes > self.limits.bytes() {
                return Err(TreeError::limit("bytes", self.limits.bytes(), path));
            }
        }
        self.entries.insert(path.clone(), entry);
        Ok(())
    }

    /// Returns the missing parent directories of a path, outermost first.
    #[must_use]
    pub fn missing_parents(&self, path: &RelativePath) -> Vec<RelativePath> {
        let mut parents = path.ancestors();
        parents.retain(|parent| !self.entries.contains_key(parent));
        parents
    }

    /// True if a directory was added at this path.
    pub(crate) fn has_directory(&self, path: &RelativePath) -> bool {
        self.entries.get(path).is_some_and(TreeEntry::is_directory)
    }

    /// Returns the remaining byte allowance.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.limits.bytes().saturating_sub(self.bytes)
    }

    #[must_use]
    pub fn finish(self) -> Manifest {
        Manifest(self.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelativePath {
        RelativePath::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn invalid_trees_are_rejected() {
        let directory = || TreeEntry::Directory { mode: 0o755 };
        let link = || TreeEntry::Link {
            target: b"x".to_vec(),
        };
        let mut builder = ManifestBuilder::new(Limits::new(4, 10), Names::Portable);
        builder.add(path("d"), directory()).unwrap();
        builder.add(path("l"), link()).unwrap();
        let refused = builder.add(path("l/x"), link()).unwrap_err();
        assert!(matches!(refused, TreeError::NotInDirectory { .. }));
        let refused = builder.add(path("D"), link()).unwrap_err();
        assert!(matches!(refused, TreeError::Twins { .. }));
        let refused = builder.add(path("d"), link()).unwrap_err();
        assert!(matches!(refused, TreeError::Duplicate { .. }));
        let file = |bytes| TreeEntry::File {
            mode: 0o644,
            bytes,
            sha256: Digest::of(b""),
        };
        assert!(matches!(
            builder.add(path("d/f"), file(11)),
            Err(TreeError::Limit { .. })
        ));
        let text = serde_json::to_string(&builder.finish()).unwrap();
        assert_eq!(
            text,
            r#"{"d":{"kind":"directory","mode":493},"l":{"kind":"link","target":"x"}}"#
        );
        let read: Manifest = serde_json::from_str(&text).unwrap();
        assert_eq!(read.len(), 2);
        let twins = text.replace("\"l\"", "\"D\"");
        let refused = serde_json::from_str::<Manifest>(&twins).unwrap_err();
        assert!(refused.to_string().contains("case"), "{refused}");
    }
}
