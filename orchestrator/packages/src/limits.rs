//! The limits of packages.

/// Bytes of a package's name at most.
pub const PACKAGE_NAME_BYTES_MAX: usize = 214;

/// Bytes of what is required of a package at most: a range, a path, an address.
pub const REQUIREMENT_BYTES_MAX: usize = 2048;

/// Packages that one project takes at most, those of its packages included.
pub const PACKAGES_MAX: usize = 500;

/// Signatures of one version that are looked at, at most.
pub const SIGNATURES_MAX: usize = 16;

/// Keys of one registry that are looked at, at most.
pub const REGISTRY_KEYS_MAX: usize = 64;

/// Versions of one package that are looked at, at most.
pub const VERSIONS_MAX: usize = 20_000;

/// Bytes of a lockfile at most.
pub const LOCK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Files, directories and links of one package at most.
pub const PACKAGE_ENTRIES_MAX: usize = 20_000;

/// Bytes of all files of one package at most.
pub const PACKAGE_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Bytes of a package's archive at most.
pub const ARCHIVE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Directories below one another in a package at most.
pub const PACKAGE_DEPTH_MAX: usize = 64;

/// Requirements that an explanation of a conflict names at most.
pub const EXPLAINED_MAX: usize = 20;

/// Bytes of what a registry says of one package at most.
pub const METADATA_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Milliseconds that connecting to a registry takes at most.
pub const REGISTRY_CONNECT_TIMEOUT_MS: u64 = 10_000;

/// Milliseconds without a byte after which a registry's answer is given up.
pub const REGISTRY_STALL_TIMEOUT_MS: u64 = 10_000;

/// Milliseconds that one answer of a registry takes at most, archives included.
pub const REGISTRY_ANSWER_TIMEOUT_MS: u64 = 300_000;

/// Other addresses that an archive's address may lead to, one after the other.
pub const REGISTRY_REDIRECTS_MAX: usize = 3;

/// Requests to registries at the same time.
pub const REGISTRY_REQUESTS_MAX: usize = 8;

/// Milliseconds that git takes at most to fetch a commit.
pub const GIT_FETCH_TIMEOUT_MS: u64 = 300_000;

/// Bytes of what git fetches of a repository at most.
pub const GIT_FETCH_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Days that a package nobody uses stays in the store, unless a person says otherwise: projects that never ran are not
/// known.
pub const PRUNE_AGE_DAYS: u32 = 7;

/// Days that a version must have been in its registry before it is chosen, unless a person says otherwise.
pub const RELEASE_AGE_DAYS: u32 = 3;
