//! Limits of packages.

/// Most bytes of a package's name.
pub const PACKAGE_NAME_BYTES_MAX: usize = 214;

/// Most bytes of a requirement: a range, a path, an address.
pub const REQUIREMENT_BYTES_MAX: usize = 2048;

/// Most packages of one project, including indirect ones.
pub const PACKAGES_MAX: usize = 500;

/// Most signatures read for one version.
pub const SIGNATURES_MAX: usize = 16;

/// Most keys read for one registry.
pub const REGISTRY_KEYS_MAX: usize = 64;

/// Most versions read for one package.
pub const VERSIONS_MAX: usize = 20_000;

/// Most bytes of a lockfile.
pub const LOCK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Most files, directories and links in one package.
pub const PACKAGE_ENTRIES_MAX: usize = 20_000;

/// Most bytes of all files in one package.
pub const PACKAGE_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Most bytes of a package's archive.
pub const ARCHIVE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Most nested directories in a package.
pub const PACKAGE_DEPTH_MAX: usize = 64;

/// Most requirements listed in the explanation of a conflict.
pub const EXPLAINED_MAX: usize = 20;

/// Most bytes of a registry's metadata of one package.
pub const METADATA_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Timeout for a connection to a registry, in milliseconds.
pub const REGISTRY_CONNECT_TIMEOUT_MS: u64 = 10_000;

/// Timeout for a registry response without progress, in milliseconds.
pub const REGISTRY_STALL_TIMEOUT_MS: u64 = 10_000;

/// Timeout for a whole registry response, including archives, in milliseconds.
pub const REGISTRY_ANSWER_TIMEOUT_MS: u64 = 300_000;

/// Most redirects of an archive's address.
pub const REGISTRY_REDIRECTS_MAX: usize = 3;

/// Most concurrent requests to registries.
pub const REGISTRY_REQUESTS_MAX: usize = 8;

/// Timeout for fetching a commit with git, in milliseconds.
pub const GIT_FETCH_TIMEOUT_MS: u64 = 300_000;

/// Most bytes fetched by git from a repository.
pub const GIT_FETCH_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Default days that an unused package stays in the store, because projects that never ran are
/// unknown.
pub const PRUNE_AGE_DAYS: u32 = 7;

/// Default minimum days between a version's publication and its selection.
pub const RELEASE_AGE_DAYS: u32 = 3;
