//! Which contract of `@goondan/base` a project asks for.

/// The versions of the older package whose contract is provided.
const CONTRACT_VERSIONS: [&str; 2] = ["0.0.3", "0.0.3-alpha29"];

/// Whether a range of versions of `@goondan/base` asks for the older contract and not for this version.
pub(crate) fn asks_for_older(range: &semver::VersionReq) -> bool {
    let matches =
        |version: &str| semver::Version::parse(version).is_ok_and(|it| range.matches(&it));
    !matches(env!("CARGO_PKG_VERSION")) && CONTRACT_VERSIONS.iter().any(|version| matches(version))
}
