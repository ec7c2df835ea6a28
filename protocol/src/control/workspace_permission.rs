//! The permissions that a person gives a workspace (`SEC-3`, `COMPAT-2`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A permission that a person gives a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WorkspacePermission {
    /// Tools of the older contract work in the project directory. Covers the files of the
    /// configuration, which stay read-only.
    Project,
    /// Connector modules of the older contract use the network. Covers connections.
    Network,
    /// Servers that `npx`, `uvx` and similar programs start are downloaded. Covers their commands.
    Packages,
}

impl WorkspacePermission {
    /// Every permission.
    pub const ALL: [Self; 3] = [Self::Project, Self::Network, Self::Packages];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Network => "network",
            Self::Packages => "packages",
        }
    }
}

impl fmt::Display for WorkspacePermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not the name of a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected `project`, `network` or `packages`")]
pub struct InvalidPermission;

impl FromStr for WorkspacePermission {
    type Err = InvalidPermission;

    fn from_str(text: &str) -> Result<Self, InvalidPermission> {
        let mut all = Self::ALL.into_iter();
        all.find(|permission| permission.as_str() == text)
            .ok_or(InvalidPermission)
    }
}
