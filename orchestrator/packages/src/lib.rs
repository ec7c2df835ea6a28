//! Packages: what they are called, which versions will do, which ones are taken, and how it is known that they
//! are what was locked (`PKG-1` to `PKG-3`).
//!
//! # Invariants
//!
//! * Resolution is a function of what the project requires and what there is: the order in which packages were
//!   added changes nothing, and neither does the machine.
//! * One version of each package is taken. Where none will do, whoever asks is told by a chain of requirements.
//! * Nothing here writes a file, starts a program or speaks to the network. What is read is read to be checked.

mod integrity;
pub mod limits;
mod lock;
mod name;
mod packument;
#[cfg(test)]
mod ranges;
mod registries;
mod requirement;
mod resolve;
mod spelling;
mod store;
mod tree;
mod versions;

pub use integrity::{Integrity, InvalidIntegrity};
pub use lock::{InvalidLock, LOCK_FILE, Lock, Locked};
pub use name::{InvalidName, PackageName};
pub use nodejs_semver::{Range, Version};
pub use packument::{InvalidPackument, Offer, Packument, RegistrySignature};
pub use registries::{InvalidRegistry, InvalidScope, Registries, RegistryUrl};
pub use requirement::{GitSource, InvalidRequirement, Requirement, Requires};
pub use resolve::{Candidate, Conflict, ResolveError, Supply, resolve};
pub use store::Store;
pub use tree::{TreeDigest, TreeError, tree_digest};
