//! The lockfile: the version of each package used by the project, with its digests.

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::permissions::Permissions;
use nodejs_semver::Version;
use serde::{Deserialize, Serialize};

use crate::integrity::Integrity;
use crate::limits::{LOCK_BYTES_MAX, PACKAGES_MAX};
use crate::name::PackageName;
use crate::requirement::Requires;
use crate::tree::TreeDigest;

/// File name in the Project Root.
pub const LOCK_FILE: &str = "goondan.lock";

/// The supported format version.
const FORM: u32 = 1;

/// The lockfile. Serialization is canonical: equal packages give equal text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lock {
    lockfile_version: u32,
    packages: BTreeMap<PackageName, LockedPackage>,
}

/// A locked package. Folder packages are used in place and not locked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LockedPackage {
    #[serde(with = "version_text")]
    pub version: Version,
    /// Its origin: an address, `file:` and a path, or `git+` with the commit.
    pub resolved: String,
    /// SHA-512 of its archive; `None` if it came from a repository, which has no archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity: Option<Integrity>,
    pub tree: TreeDigest,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requires: Requires,
    /// Permissions granted by a user.
    #[serde(default, skip_serializing_if = "Permissions::is_empty")]
    pub granted: Permissions,
}

/// Serialization of versions as text.
mod version_text {
    use nodejs_semver::Version;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(version: &Version, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(version)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Version, D::Error> {
        let text = String::deserialize(from)?;
        Version::parse(&text).map_err(|_invalid| {
            serde::de::Error::custom(format_args!("`{text}` is not a semantic version"))
        })
    }
}

/// Reason why a lockfile is invalid.
#[derive(Debug, thiserror::Error)]
pub enum InvalidLock {
    /// The text is not a lockfile.
    #[error("not a lockfile")]
    Form(#[from] serde_json::Error),
    /// The format version is not supported.
    #[error("expected lockfile version {FORM}, found {0}")]
    Foreign(u32),
    /// The lockfile exceeds a limit.
    #[error("the lockfile has more than {PACKAGES_MAX} packages or {LOCK_BYTES_MAX} bytes")]
    TooLarge,
}

impl Default for Lock {
    fn default() -> Self {
        Self::new(BTreeMap::new())
    }
}

impl Lock {
    /// Creates a lockfile with these packages.
    #[must_use]
    pub fn new(packages: BTreeMap<PackageName, LockedPackage>) -> Self {
        Self {
            lockfile_version: FORM,
            packages,
        }
    }

    /// Parses a lockfile.
    ///
    /// # Errors
    ///
    /// [`InvalidLock`]
    pub fn read(text: &str) -> Result<Self, InvalidLock> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct LockHeader {
            lockfile_version: u32,
        }
        if text.len() > LOCK_BYTES_MAX {
            return Err(InvalidLock::TooLarge);
        }
        let head: LockHeader = serde_json::from_str(text)?;
        if head.lockfile_version != FORM {
            return Err(InvalidLock::Foreign(head.lockfile_version));
        }
        let lock: Self = serde_json::from_str(text)?;
        if lock.packages.len() > PACKAGES_MAX {
            return Err(InvalidLock::TooLarge);
        }
        Ok(lock)
    }

    /// Serializes the lockfile.
    ///
    /// # Errors
    ///
    /// None in practice: all content is serializable.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    #[must_use]
    pub fn get(&self, name: &PackageName) -> Option<&LockedPackage> {
        self.packages.get(name)
    }

    /// Returns all packages, sorted by name.
    pub fn packages(&self) -> impl ExactSizeIterator<Item = (&PackageName, &LockedPackage)> {
        self.packages.iter()
    }

    /// Returns the reason why the lockfile does not satisfy these requirements; `None` if it does.
    /// `is_folder` is true for folder packages.
    #[must_use]
    pub fn lacks<'r>(
        &'r self,
        requires: impl IntoIterator<Item = &'r Requires>,
        is_folder: impl Fn(&PackageName) -> bool,
    ) -> Option<String> {
        let mut seen = BTreeSet::new();
        let mut waiting: Vec<&Requires> = requires.into_iter().collect();
        while let Some(requires) = waiting.pop() {
            for (name, requirement) in requires {
                if is_folder(name) {
                    continue;
                }
                let Some(locked) = self.packages.get(name) else {
                    return Some(format!("`{name}` is missing"));
                };
                let is_met = match requirement.range() {
                    Some(range) => range.satisfies(&locked.version),
                    None => locked.is_from(requirement.as_str()),
                };
                if !is_met {
                    return Some(format!(
                        "it has `{name}` {}, where `{requirement}` is required",
                        locked.version
                    ));
                }
                if seen.insert(name) {
                    waiting.push(&locked.requires);
                }
            }
        }
        let unused = self.packages.keys().find(|name| !seen.contains(*name));
        unused.map(|name| format!("`{name}` is no longer required"))
    }
}

const COMMIT_DIGITS_SHOWN: usize = 10;

impl LockedPackage {
    /// Returns the version for display, with the commit if it came from a repository.
    #[must_use]
    pub fn shown(&self) -> String {
        let commit = self.resolved.strip_prefix("git+");
        let commit = commit.and_then(|rest| Some(rest.split_once('#')?.1));
        let commit = commit.and_then(|rest| rest.split(':').next()?.get(..COMMIT_DIGITS_SHOWN));
        match commit {
            Some(commit) => format!("{} (commit {commit})", self.version),
            None => self.version.to_string(),
        }
    }

    /// True if the package came from the required place. For a repository, any revision counts.
    #[must_use]
    pub fn is_from(&self, required: &str) -> bool {
        let repository = |text: &str| {
            let (url, rest) = text.split_once('#').unwrap_or((text, ""));
            let folder = rest.split_once(':').map_or("", |(_, folder)| folder);
            (url.to_owned(), folder.trim_matches('/').to_owned())
        };
        self.resolved == required
            || required.starts_with("git+") && repository(&self.resolved) == repository(required)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirement::Requirement;

    fn locked(version: &str, resolved: &str, requires: &[(&str, &str)]) -> LockedPackage {
        LockedPackage {
            version: Version::parse(version).unwrap(),
            resolved: resolved.to_owned(),
            integrity: Some(Integrity::of(b"archive")),
            tree: TreeDigest::of_text("tree"),
            requires: self::requires(requires),
            granted: Permissions::default(),
        }
    }

    fn requires(listed: &[(&str, &str)]) -> Requires {
        let read = |(name, text): &(&str, &str)| (name.parse().unwrap(), text.parse().unwrap());
        listed.iter().map(read).collect()
    }

    fn lock(packages: &[(&str, LockedPackage)]) -> Lock {
        let packages = packages.iter().cloned();
        Lock::new(
            packages
                .map(|(name, it)| (name.parse().unwrap(), it))
                .collect(),
        )
    }

    #[test]
    fn pkg_3_lockfile_round_trips_independently_of_insertion_order() {
        let (a, b) = (
            locked("1.0.0", "https://h/a.tgz", &[("b", "^2")]),
            locked("2.1.0", "file:b.tgz", &[]),
        );
        let one = lock(&[("a", a.clone()), ("@s/b", b.clone())]);
        let other = lock(&[("@s/b", b), ("a", a)]);
        let text = one.to_text().unwrap();
        assert_eq!(text, other.to_text().unwrap());
        assert_eq!(Lock::read(&text).unwrap(), one);
    }

    #[test]
    fn pkg_3_granted_permissions_are_in_the_lockfile_and_no_others() {
        let mut locked = locked("1.0.0", "git+https://h/r#0123456789abcdef:x", &[]);
        assert_eq!(locked.shown(), "1.0.0 (commit 0123456789)");
        let before = lock(&[("a", locked.clone())]).to_text().unwrap();
        assert!(!before.contains("granted"));
        locked.granted.hosts = ["b.org", "a.org"].map(str::to_owned).into();
        let text = lock(&[("a", locked.clone())]).to_text().unwrap();
        let read = Lock::read(&text).unwrap();
        assert_eq!(read.get(&"a".parse().unwrap()), Some(&locked));
        let unknown = text.replace("hosts", "files");
        assert!(matches!(Lock::read(&unknown), Err(InvalidLock::Form(_))));
    }

    #[test]
    fn pkg_3_damaged_or_foreign_lockfile_is_rejected() {
        let text = lock(&[("a", locked("1.0.0", "x", &[]))]).to_text().unwrap();
        for (from, to) in [
            ("\"1.0.0\"", "\"1.0\""),
            ("sha512-", "sha1-"),
            ("sha256-", "sha256-0"),
            ("\"a\"", "\"../a\""),
            ("\"resolved\"", "\"resolve\""),
        ] {
            assert!(matches!(
                Lock::read(&text.replace(from, to)),
                Err(InvalidLock::Form(_))
            ));
        }
        let foreign = text.replace("\"lockfileVersion\": 1", "\"lockfileVersion\": 2");
        assert!(matches!(Lock::read(&foreign), Err(InvalidLock::Foreign(2))));
        assert!(Lock::read("<<<<<<< HEAD").is_err());
    }

    #[test]
    fn pkg_3_mismatching_lockfile_reports_the_reason() {
        let git = "git+https://h/r";
        let lock = lock(&[
            ("a", locked("1.5.0", "https://h/a.tgz", &[("b", "^2")])),
            ("b", locked("2.0.0", "file:b.tgz", &[])),
            ("g", locked("1.0.0", "git+https://h/r#0123:x", &[])),
        ]);
        let lacks = |listed: &[(&str, &str)]| lock.lacks([&requires(listed)], |_| false);
        let branch = format!("{git}#main:x");
        assert_eq!(lacks(&[("a", "^1"), ("g", &branch)]), None);
        for (listed, said) in [
            (vec![("a", "^1")], "`g` is no longer required"),
            (vec![("a", "^2"), ("g", &branch)], "`a` 1.5.0"),
            (vec![("a", "^1"), ("g", git)], "`g` 1.0.0"),
            (
                vec![("a", "^1"), ("c", "*"), ("g", &branch)],
                "`c` is missing",
            ),
            (vec![("b", "file:c.tgz")], "`b` 2.0.0"),
        ] {
            let told = lacks(&listed).unwrap();
            assert!(told.contains(said), "{told}");
        }
        let folder: Requirement = "file:x".parse().unwrap();
        let with_folder: Requires = [("x".parse().unwrap(), folder)].into();
        assert!(Lock::default().lacks([&with_folder], |_| true).is_none());
    }
}
