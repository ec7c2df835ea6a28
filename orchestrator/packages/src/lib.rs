//! Packages: names, version requirements, resolution, and integrity against the lockfile (`PKG-1`
//! to `PKG-3`).
//!
//! # Invariants
//!
//! * Resolution is a pure function of the project's requirements and the available versions. It
//!   does not depend on the machine or on the order in which packages were added.
//! * One version of each package is chosen. If none satisfies all requirements, the error lists the
//!   chain of requirements.
//! * This crate writes no file, starts no program and does not use the network. All input is
//!   validated.

mod integrity;
pub mod limits;
mod lock;
mod name;
mod npm_ranges;
mod packument;
#[cfg(test)]
mod ranges;
mod registries;
mod requirement;
mod resolve;
mod store;
mod tree;
mod versions;

pub use integrity::{Integrity, InvalidIntegrity};
pub use lock::{InvalidLock, LOCK_FILE, Lock, LockedPackage};
pub use name::{InvalidName, PackageName};
pub use nodejs_semver::{Range, Version};
pub use packument::{InvalidPackument, OfferedVersion, Packument, RegistrySignature};
pub use registries::{InvalidRegistry, InvalidScope, Registries, RegistryUrl};
pub use requirement::{GitSource, InvalidRequirement, Requirement, Requires};
pub use resolve::{Candidate, Conflict, PackageSource, ResolveError, resolve};
pub use store::Store;
pub use tree::{TreeDigest, TreeError, tree_digest};
