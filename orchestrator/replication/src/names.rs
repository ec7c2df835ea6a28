//! Names, numbers and hashes used in records.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::limits::NODE_BYTES_MAX;

/// The text is not a node's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a valid node name: use at most {NODE_BYTES_MAX} of a-z, 0-9, `-` and `.`, \
     starting with a letter or digit"
)]
pub struct InvalidNode(String);

/// Name of a node: one participating System Root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct NodeId(String);

impl NodeId {
    /// Validates a name.
    ///
    /// # Errors
    ///
    /// [`InvalidNode`] if it is empty, too long or contains a character other than a-z, 0-9, `-`
    /// and `.`.
    pub fn new(text: &str) -> Result<Self, InvalidNode> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_good = text.len() <= NODE_BYTES_MAX
            && text.bytes().next().is_some_and(is_plain)
            && text
                .bytes()
                .all(|byte| is_plain(byte) || matches!(byte, b'-' | b'.'));
        if is_good {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidNode(text.chars().take(NODE_BYTES_MAX).collect()))
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NodeId {
    type Error = InvalidNode;

    fn try_from(text: String) -> Result<Self, InvalidNode> {
        Self::new(&text)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Random id of one life of a node's program. It distinguishes two programs that both act as the
/// same node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

/// Position in a workspace's log, from 1; 0 is before the first record.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Position(pub u64);

impl Position {
    /// Before the first record.
    pub const START: Self = Self(0);

    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The preceding position; `None` before the first record.
    #[must_use]
    pub fn previous(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of takeovers of a workspace: each seal increments it. 0 before the first seal.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of the next seal.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A SHA-256 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; Self::BYTES]);

impl Hash {
    /// Its length in bytes.
    pub const BYTES: usize = 32;

    /// Hashes some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut bytes = [0; Self::BYTES];
        let read = hex::decode_to_slice(&text, &mut bytes);
        read.map_err(|_| D::Error::custom("a hash must have 64 hexadecimal digits"))?;
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes_are_plain() {
        for good in ["a", "node-1", "db2.example.org", "0"] {
            assert_eq!(NodeId::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "-a", ".a", "A", "a b", "a/b", "é", &"a".repeat(65)] {
            assert!(NodeId::new(bad).is_err(), "{bad}");
        }
    }
}
