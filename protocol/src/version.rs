//! The exact version handshake.
//!
//! Binaries of different versions never work together: they refuse each other loudly at the first
//! frame. So no message needs to be understood by any version but its own. (What is compared is the
//! version, not the commit: two builds of one version pass for the same.)

use serde::{Deserialize, Serialize};

/// Version of the wire protocol. Raised with every change of a message's golden bytes.
pub const PROTOCOL_VERSION: u32 = 2;

/// Version of this build of goondan.
pub const GOONDAN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// What one side says it speaks.
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

/// The other side is of another version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the other side is goondan {theirs}, this is goondan {ours}")]
pub struct VersionMismatch {
    /// What the other side said.
    pub theirs: Version,
    /// What this build is.
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
