//! Sets of versions: a list, or the complement of a list.
//!
//! An npm range is not an interval, because matching pre-releases depends on how it is written. So
//! a range is represented by the available versions that match it.

use std::collections::BTreeSet;
use std::fmt;

use nodejs_semver::Version;
use pubgrub::VersionSet;

/// A set of versions, in canonical form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Versions {
    listed: BTreeSet<Version>,
    is_all_but: bool,
}

impl Versions {
    /// Creates a set from a list of versions.
    pub(crate) fn of(listed: impl IntoIterator<Item = Version>) -> Self {
        Self {
            listed: listed.into_iter().collect(),
            is_all_but: false,
        }
    }

    /// Returns the listed versions; empty for a complement.
    pub(crate) fn listed(&self) -> impl DoubleEndedIterator<Item = &Version> {
        self.listed.iter().filter(|_| !self.is_all_but)
    }
}

impl VersionSet for Versions {
    type V = Version;

    fn empty() -> Self {
        Self::of([])
    }

    fn singleton(version: Version) -> Self {
        Self::of([version])
    }

    fn complement(&self) -> Self {
        Self {
            listed: self.listed.clone(),
            is_all_but: !self.is_all_but,
        }
    }

    fn intersection(&self, other: &Self) -> Self {
        let (is_all_but, listed) = match (self.is_all_but, other.is_all_but) {
            (false, false) => (false, &self.listed & &other.listed),
            (false, true) => (false, &self.listed - &other.listed),
            (true, false) => (false, &other.listed - &self.listed),
            (true, true) => (true, &self.listed | &other.listed),
        };
        Self { listed, is_all_but }
    }

    fn contains(&self, version: &Version) -> bool {
        self.listed.contains(version) != self.is_all_but
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all_but {
            f.write_str("all but ")?;
        }
        for (index, version) in self.listed.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{version}")?;
        }
        Ok(())
    }
}
