//! `package.*`: what of packages the daemon does, which alone writes below the System Root (`PKG-1`).
//!
//! Which packages a project uses, and where they come from, is the client's: it resolves, fetches, and writes the
//! lockfile.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::permissions::Permissions;

/// `package.store`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StorePackage {
    /// What the package must be called, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Which version of it it must be, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The archive, on this machine: a tar archive, compressed with gzip or not, with everything in one directory.
    pub archive: PathBuf,
    /// The SHA-512 that it must have, as `sha512-…`. It is checked before anything is unpacked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity: Option<String>,
    /// The digest that what comes out of it must have, as `sha256-…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// What the package must require, as ranges and places by name, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires: Option<BTreeMap<String, String>>,
    /// Whether it is only checked, and not kept: so that of several packages all are kept or none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check_only: bool,
}

/// Result of `package.store`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageStored {
    /// What it is called.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The SHA-512 of its archive.
    pub integrity: String,
    /// The digest of what it holds.
    pub tree: String,
    /// What it requires, as ranges and places by name, without the package that is built in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requires: BTreeMap<String, String>,
    /// What it asks for.
    #[serde(default, skip_serializing_if = "Permissions::is_empty")]
    pub permissions: Permissions,
    /// Where it is, or would be: `packages/<name>@<version>` of the System Root.
    pub directory: PathBuf,
}

/// `package.prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrunePackages {
    /// Digests of packages that stay, whoever uses them: those of the project that asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<String>,
    /// Days that a package has been in the store before it may go.
    pub min_age_days: u32,
    /// Whether it is only said what would go.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// Result of `package.prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PackagesPruned {
    /// What went, or would go.
    pub pruned: Vec<PrunedPackage>,
    /// How many packages stay.
    pub kept: u64,
}

/// One package of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrunedPackage {
    /// The digest of what it held.
    pub tree: String,
    /// By which names and versions it was found.
    pub names: Vec<String>,
    /// Bytes of its files.
    pub bytes: u64,
}
