//! The contract of `@goondan/base` that a version range selects.

use goondan_packages::Requirement;
use goondan_protocol::base_package::BASE_PACKAGE;

/// Range of `@goondan/base` that selects the older contract.
pub(crate) const OLDER_RANGE: &str = "^0.0.3";

/// A version of the older package whose contract is supported.
const OLDER_VERSION: &str = "0.0.3";

/// Number of pre-releases of [`OLDER_VERSION`] that a range may name.
const OLDER_ALPHAS: u32 = 100;

/// Versions that npm names by a word.
const TAGS: [&str; 6] = ["latest", "next", "alpha", "beta", "canary", "dev"];

/// Beginnings of npm requirements that name a place instead of a version.
const PLACES: [&str; 11] = [
    "file:", "link:", "portal:", "git+", "git:", "github:", "http:", "https:", "./", "../", "/",
];

/// Meaning of the version that a project requires of `@goondan/base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BaseRange {
    /// It includes the older contract only.
    Older,
    /// It includes this version only.
    Current,
    /// It includes both.
    Both,
    /// It includes neither.
    Neither,
    /// It names a tag, a workspace or a place, but the package is built in.
    Elsewhere,
    Invalid,
}

impl BaseRange {
    /// The meaning of a `version`, as written for npm or for cargo.
    pub(crate) fn of(version: &str) -> Self {
        let text = version.trim();
        let text = text.strip_prefix("npm:").unwrap_or(text);
        let text = text.strip_prefix(BASE_PACKAGE).unwrap_or(text);
        let text = text.strip_prefix('@').unwrap_or(text);
        if let Some(range) = text.strip_prefix("workspace:") {
            return match range {
                "" | "*" | "^" | "~" => Self::Elsewhere,
                range => Self::of(range),
            };
        }
        if TAGS.contains(&text) || PLACES.iter().any(|place| text.starts_with(place)) {
            return Self::Elsewhere;
        }
        let Some(includes) = matcher(text) else {
            return Self::Invalid;
        };
        let mut alphas = (0..OLDER_ALPHAS).map(|number| format!("{OLDER_VERSION}-alpha{number}"));
        let is_older = includes(OLDER_VERSION) || alphas.any(|it| includes(&it));
        match (is_older, includes(env!("CARGO_PKG_VERSION"))) {
            (true, true) => Self::Both,
            (true, false) => Self::Older,
            (false, true) => Self::Current,
            (false, false) => Self::Neither,
        }
    }
}

type VersionTest = Box<dyn Fn(&str) -> bool>;

/// Tests versions against a range. Where cargo and npm read a range differently, cargo's reading
/// applies, except for ranges that only npm has.
fn matcher(range: &str) -> Option<VersionTest> {
    if let Ok(range) = semver::VersionReq::parse(range) {
        return Some(Box::new(move |version| {
            semver::Version::parse(version).is_ok_and(|version| range.matches(&version))
        }));
    }
    let requirement: Requirement = range.parse().ok()?;
    let range = requirement.range()?.clone();
    Some(Box::new(move |version| {
        let version: Result<goondan_packages::Version, _> = version.parse();
        version.is_ok_and(|version| range.satisfies(&version))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compat_1_ranges_of_the_older_package_are_understood() {
        for (version, expected) in [
            ("0.0.3", BaseRange::Older),
            ("^0.0.3", BaseRange::Older),
            ("~0.0.3", BaseRange::Older),
            ("=0.0.3-alpha12", BaseRange::Older),
            ("^0.0.3-alpha29", BaseRange::Older),
            (">=0.0.3 <0.1.0", BaseRange::Older),
            ("0.0.x", BaseRange::Older),
            ("^0.0.3 || ^0.0.4", BaseRange::Older),
            ("workspace:^0.0.3", BaseRange::Older),
            ("npm:@goondan/base@^0.0.3", BaseRange::Older),
            (">=0.0.3", BaseRange::Both),
            ("*", BaseRange::Both),
            ("^0.1", BaseRange::Current),
            ("0.1.0", BaseRange::Current),
            ("^0.0.2", BaseRange::Neither),
            ("^7", BaseRange::Neither),
            ("latest", BaseRange::Elsewhere),
            ("workspace:*", BaseRange::Elsewhere),
            ("file:../base", BaseRange::Elsewhere),
            ("one", BaseRange::Invalid),
        ] {
            assert_eq!(BaseRange::of(version), expected, "{version}");
        }
    }
}
