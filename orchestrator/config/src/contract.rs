//! The contract of `@goondan/base` that a project requires.

/// Versions of the older package whose contract is supported.
const CONTRACT_VERSIONS: [&str; 2] = ["0.0.3", "0.0.3-alpha29"];

/// True if a version range of `@goondan/base` includes the older contract and not this version.
pub(crate) fn asks_for_older(range: &semver::VersionReq) -> bool {
    let matches =
        |version: &str| semver::Version::parse(version).is_ok_and(|it| range.matches(&it));
    !matches(env!("CARGO_PKG_VERSION")) && CONTRACT_VERSIONS.iter().any(|version| matches(version))
}
