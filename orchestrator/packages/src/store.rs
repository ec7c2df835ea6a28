//! Location of packages on this machine: below `packages/` of the System Root (`PKG-1`).

use std::path::{Path, PathBuf};

use nodejs_semver::Version;

use crate::name::PackageName;
use crate::tree::TreeDigest;

/// Subdirectory of trees, named by digest.
const TREES: &str = ".trees";

/// Paths of the store. Only the daemon writes there.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// Returns the store of a System Root.
    #[must_use]
    pub fn of(state_root: &Path) -> Self {
        Self {
            root: state_root.join("packages"),
        }
    }

    /// Returns the directory of all packages.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of all trees.
    #[must_use]
    pub fn trees(&self) -> PathBuf {
        self.root.join(TREES)
    }

    /// Returns the directory of one tree.
    #[must_use]
    pub fn tree(&self, digest: &TreeDigest) -> PathBuf {
        self.trees().join(digest.to_hex())
    }

    /// Returns the directory of links for a scope, or for packages without a scope.
    #[must_use]
    pub fn folder(&self, name: &PackageName) -> PathBuf {
        match name.parts() {
            (Some(scope), _) => self.root.join(format!("@{scope}")),
            (None, _) => self.root.clone(),
        }
    }

    /// Returns the link of a package's version: `packages/@scope/name@1.0.0`.
    #[must_use]
    pub fn link(&self, name: &PackageName, version: &Version) -> PathBuf {
        let (_, own) = name.parts();
        self.folder(name).join(format!("{own}@{version}"))
    }

    /// Returns the link's target, relative to the link's directory.
    #[must_use]
    pub fn link_target(name: &PackageName, digest: &TreeDigest) -> PathBuf {
        let up = if name.parts().0.is_some() { ".." } else { "" };
        Path::new(up).join(TREES).join(digest.to_hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkg_1_a_scope_is_a_folder() {
        let store = Store::of(Path::new("/state"));
        let version = Version::parse("1.0.0-rc.1").unwrap();
        let digest = TreeDigest::of_text("x");
        for (name, link, target) in [
            ("tools", "/state/packages/tools@1.0.0-rc.1", ".trees/"),
            (
                "@acme/t",
                "/state/packages/@acme/t@1.0.0-rc.1",
                "../.trees/",
            ),
        ] {
            let name: PackageName = name.parse().unwrap();
            assert_eq!(store.link(&name, &version), Path::new(link));
            let shown = format!("{target}{}", digest.to_hex());
            assert_eq!(Store::link_target(&name, &digest), Path::new(&shown));
        }
    }
}
