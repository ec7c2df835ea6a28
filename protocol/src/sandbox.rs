//! What the programs that run for a model may touch, as a person asked for it (`SEC-3`, `BOX-3`).
//!
//! This is data. The kernel holds it to that in the crate `goondan-confinement`.

mod network;
mod own;
mod reachable_host;
mod right;

use std::fmt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use network::Network;
pub use own::OwnSandbox;
pub use reachable_host::{Host, InvalidHost, ReachableHost};
pub use right::{Facts, Right};

/// How strictly a program is confined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// `Landlock`, and namespaces of its own: no file but the policy's paths, no process and no network of the
    /// machine is there.
    #[default]
    Full,
    /// Files, signals and abstract sockets by Landlock; no sockets but pairs, and no dangerous system calls.
    Landlock,
    /// Files, signals and the network by a profile of macOS. Untested.
    Seatbelt,
    /// All rights of the user.
    Off,
}

impl Level {
    /// The levels from the strictest on.
    pub const FROM_STRICTEST: [Self; 4] = [Self::Full, Self::Landlock, Self::Seatbelt, Self::Off];

    /// The strictest level that can be had. `Off` always can.
    #[must_use]
    pub fn strictest(can_be_had: impl Fn(Self) -> bool) -> Self {
        let mut levels = Self::FROM_STRICTEST.into_iter();
        levels.find(|level| can_be_had(*level)).unwrap_or(Self::Off)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Landlock => "landlock",
            Self::Seatbelt => "seatbelt",
            Self::Off => "off",
        })
    }
}

/// A policy that cannot be weakened once it is enforced. The default is the strictest, with no paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxPolicy {
    /// The level that must be reached; with less, nothing is started.
    pub require: Level,
    /// What may be read and executed, with all below it.
    #[serde(default)]
    pub read: Vec<SandboxPath>,
    /// What may be read, executed and changed, with all below it.
    #[serde(default)]
    pub write: Vec<SandboxPath>,
    /// What may be reached over the network.
    #[serde(default)]
    pub network: Network,
}

impl SandboxPolicy {
    /// Whether it is the default.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// The hosts that may be reached by the egress, if only some may.
    #[must_use]
    pub fn allow_list(&self) -> Option<&[ReachableHost]> {
        match &self.network {
            Network::Allow(hosts) if self.require == Level::Full => Some(hosts),
            Network::Allow(_) | Network::None | Network::Any => None,
        }
    }

    /// No sandbox.
    #[must_use]
    pub fn off() -> Self {
        Self {
            require: Level::Off,
            read: Vec::new(),
            write: Vec::new(),
            network: Network::default(),
        }
    }
}

/// An absolute path without `.`, `..` and NUL bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PathBuf", into = "PathBuf")]
pub struct SandboxPath(PathBuf);

impl SandboxPath {
    /// The path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Whether it is `/`, with all that there is below it.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0 == Path::new("/")
    }
}

/// A path that a policy cannot name.
#[derive(Debug, thiserror::Error)]
#[error("`{}` cannot be a path of a sandbox; write an absolute path without `..`", .0.display())]
pub struct InvalidPath(PathBuf);

impl TryFrom<PathBuf> for SandboxPath {
    type Error = InvalidPath;

    fn try_from(path: PathBuf) -> Result<Self, InvalidPath> {
        let is_plain = path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if path.is_absolute() && is_plain && !path.as_os_str().as_encoded_bytes().contains(&0) {
            Ok(Self(path))
        } else {
            Err(InvalidPath(path))
        }
    }
}

impl From<SandboxPath> for PathBuf {
    fn from(path: SandboxPath) -> Self {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_3_a_policy_with_a_path_that_climbs_or_a_field_nobody_knows_is_refused() {
        let read = |text: &str| serde_json::from_str::<SandboxPolicy>(text);
        assert!(read(r#"{"require":"landlock","read":["/usr"],"write":["/srv/data"]}"#).is_ok());
        assert!(read(r#"{"require":"full","network":{"allow":["a.org","*.b.org:8443"]}}"#).is_ok());
        for wrong in [
            r#"{"require":"landlock","write":["/srv/data/../.."]}"#,
            r#"{"require":"landlock","write":["work"]}"#,
            r#"{"require":"landlock","read":[""]}"#,
            r#"{"require":"landlock","read":["/a\u0000b"]}"#,
            r#"{"require":"landlock","allow":["/"]}"#,
            r#"{"require":"full","network":["a.org"]}"#,
            r#"{"require":"full","network":{"allow":["*"]}}"#,
            r#"{"require":"some"}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
