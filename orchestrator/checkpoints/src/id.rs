//! The ids of checkpoints.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const PREFIX: &str = "checkpoint_";
const DIGITS: usize = 3;
const DIGITS_MAX: usize = 9;

/// The text is not a valid checkpoint id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a checkpoint id; expected `checkpoint_001` or similar")]
pub struct IdError(String);

/// The id of a checkpoint, and the name of its directory: `checkpoint_001` and so on (`CKPT-1`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId(u32);

impl CheckpointId {
    pub(crate) fn first() -> Self {
        Self(1)
    }

    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{:0DIGITS$}", self.0)
    }
}

impl FromStr for CheckpointId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let number = text.strip_prefix(PREFIX).filter(|digits| {
            (DIGITS..=DIGITS_MAX).contains(&digits.len())
                && digits.bytes().all(|byte| byte.is_ascii_digit())
        });
        let id = number
            .and_then(|digits| digits.parse().ok())
            .filter(|number| *number > 0)
            .map(Self);
        // Each checkpoint has exactly one valid id.
        id.filter(|id| id.to_string() == text)
            .ok_or_else(|| IdError(text.to_owned()))
    }
}

impl Serialize for CheckpointId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CheckpointId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
