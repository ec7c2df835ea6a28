//! Exact version handshake.
//!
//! Binaries of different versions never work together: they refuse each other at the first frame.
//! Messages therefore need no compatibility between versions. The handshake compares versions, not
//! commits: two builds of one version are treated as equal.

use serde::{Deserialize, Serialize};

/// Version of the wire protocol. It increases with every change of a message's golden bytes.
pub const PROTOCOL_VERSION: u32 = 3;

/// Version of this build of goondan.
pub const GOONDAN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Versions that one side announces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// The wire protocol's version.
    pub protocol: u32,
    /// The build's version.
    pub goondan: String,
}

impl Version {
    /// The version of this build.
    #[must_use]
    pub fn current() -> Self {
        Self {
            protocol: PROTOCOL_VERSION,
            goondan: GOONDAN_VERSION.to_owned(),
        }
    }

    /// Accepts exactly this build's version.
    ///
    /// # Errors
    ///
    /// [`VersionMismatch`] naming both versions.
    pub fn check(&self) -> Result<(), VersionMismatch> {
        let ours = Self::current();
        if *self == ours {
            Ok(())
        } else {
            Err(VersionMismatch {
                theirs: self.clone(),
                ours,
            })
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (protocol {})", self.goondan, self.protocol)
    }
}

/// The peer has a different version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the other side is goondan {theirs}, this is goondan {ours}")]
pub struct VersionMismatch {
    /// The peer's version.
    pub theirs: Version,
    /// This build's version.
    pub ours: Version,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_same_version_is_accepted() {
        assert_eq!(Version::current().check(), Ok(()));
        let newer = Version {
            protocol: PROTOCOL_VERSION + 1,
            ..Version::current()
        };
        let other = Version {
            goondan: "0.0.0-other".into(),
            ..Version::current()
        };
        assert!(newer.check().is_err());
        assert!(
            other
                .check()
                .unwrap_err()
                .to_string()
                .contains("0.0.0-other")
        );
    }
}
