//! Sandbox policies: permissions of programs that run for a model, as configured by a person
//! (`SEC-3`, `BOX-3`).
//!
//! These types are data. The crate `goondan-confinement` makes the kernel enforce them.

mod reachable_host;
mod right;
mod self_confinement;

use std::fmt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use reachable_host::{Host, InvalidHost, ReachableHost};
pub use right::{Facts, Right};
pub use self_confinement::OwnSandbox;

/// Network access (`SEC-3`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// No network.
    #[default]
    None,
    /// Everything the machine can reach, including its own services.
    Any,
    /// Only these hosts, through a proxy. Requires the level `full`.
    Allow(Vec<ReachableHost>),
}

/// Confinement level of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Landlock and private namespaces: only the policy's paths are visible, and no other process
    /// and no network of the machine.
    #[default]
    Full,
    /// Landlock for files, signals and abstract sockets; only socket pairs, and no dangerous system
    /// calls.
    Landlock,
    /// A macOS profile for files, signals and the network. Untested.
    Seatbelt,
    /// All rights of the user.
    Off,
}

impl Level {
    /// The levels, strictest first.
    pub const FROM_STRICTEST: [Self; 4] = [Self::Full, Self::Landlock, Self::Seatbelt, Self::Off];

    /// The strictest available level. `Off` is always available.
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

/// A policy, which cannot be weakened once it is enforced. The default is the strictest, without
/// any paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxPolicy {
    /// The minimum level; if it is not available, nothing is started.
    pub require: Level,
    /// Paths that may be read and executed, recursively.
    #[serde(default)]
    pub read: Vec<SandboxPath>,
    /// Paths that may be read, executed and changed, recursively.
    #[serde(default)]
    pub write: Vec<SandboxPath>,
    /// Network access.
    #[serde(default)]
    pub network: Network,
}

impl SandboxPolicy {
    /// True if it equals the default.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// The hosts that are reachable through the egress, if access is limited to some.
    #[must_use]
    pub fn allow_list(&self) -> Option<&[ReachableHost]> {
        match &self.network {
            Network::Allow(hosts) if self.require == Level::Full => Some(hosts),
            Network::Allow(_) | Network::None | Network::Any => None,
        }
    }

    /// A policy without confinement.
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

    /// True if the path is `/`, which includes everything.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0 == Path::new("/")
    }
}

/// The path cannot be used in a policy.
#[derive(Debug, thiserror::Error)]
#[error("`{}` is not a valid sandbox path; write an absolute path without `..`", .0.display())]
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
    fn sec_3_policy_with_climbing_path_or_unknown_field_is_refused() {
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
