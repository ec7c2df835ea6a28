//! `package.*`: package operations of the daemon, which alone writes below the System Root
//! (`PKG-1`).
//!
//! The client decides which packages a project uses and where they come from: it resolves, fetches,
//! and writes the lockfile.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::permissions::Permissions;

/// `package.store`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StorePackage {
    /// Expected name of the package, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Expected version, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Path of the archive on this machine: a tar archive, optionally compressed with gzip, that
    /// contains one directory.
    pub archive: PathBuf,
    /// Expected SHA-512, as `sha512-…`. It is checked before unpacking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity: Option<String>,
    /// Expected digest of the unpacked content, as `sha256-…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// Expected requirements, as ranges and sources by name, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires: Option<BTreeMap<String, String>>,
    /// True to check the package without storing it, so that either all or none of several packages
    /// are stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check_only: bool,
}

/// Result of `package.store`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageStored {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The SHA-512 of its archive.
    pub integrity: String,
    /// Digest of its content.
    pub tree: String,
    /// Its requirements, as ranges and sources by name, without the built-in package.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requires: BTreeMap<String, String>,
    /// The permissions it requests.
    #[serde(default, skip_serializing_if = "Permissions::is_empty")]
    pub permissions: Permissions,
    /// Its directory, or the directory it would get: `packages/<name>@<version>` of the System
    /// Root.
    pub directory: PathBuf,
}

/// `package.prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrunePackages {
    /// Digests of packages to keep regardless of use: those of the requesting project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<String>,
    /// Minimum age in the store before a package is pruned, in days.
    pub min_age_days: u32,
    /// True to report packages without pruning them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// Result of `package.prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PackagesPruned {
    /// Packages that were pruned or would be.
    pub pruned: Vec<PrunedPackage>,
    /// Number of packages that remain.
    pub kept: u64,
}

/// A pruned package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrunedPackage {
    /// Digest of its content.
    pub tree: String,
    /// Names and versions it was stored under.
    pub names: Vec<String>,
    /// Size of its files, in bytes.
    pub bytes: u64,
}
