//! File trees that users and agents both write: snapshots, comparison, atomic changes, unpacking.
//!
//! From the lowest layer up: portable names ([`RelativePath`]); the content of a tree
//! ([`Manifest`]); atomic creation of directories, as a snapshot of a tree ([`freeze`]) or from an
//! archive ([`extract`](mod@extract)); the difference of two trees ([`changes()`], and as a git
//! patch: [`diff`]); strict parsing of patches ([`patch`]) and their in-memory application
//! ([`apply`](mod@apply)); three-way merge ([`merge`](mod@merge)); and atomic application of
//! changes to a tree that users edit concurrently ([`swap`](mod@swap)).
//!
//! # Invariants
//!
//! * This crate does not depend on conversations, proposals, locations in the System Root, or the
//!   network.
//! * No link is followed, and no path leads out of a tree: every name is a [`RelativePath`], and
//!   every access goes through a [`Folder`](goondan_durable::disk::Folder).
//! * A tree appears complete under its name or not at all.
//! * Bytes written by a user stay at their path, or are moved aside and reported. They are never
//!   replaced unread.
//! * External input (patches, archives, manifests) is rejected as a whole if any part is invalid.

pub mod apply;
mod binary;
mod changes;
mod compare;
pub mod diff;
mod error;
mod excludes;
pub mod extract;
mod files;
pub mod freeze;
mod fresh;
mod guarded_disk;
pub mod limits;
mod manifest;
pub mod merge;
mod open_beneath;
pub mod pack;
pub mod patch;
mod path;
mod quote;
mod read;
mod real_folder;
mod removal;
mod size;
mod survey;
pub mod swap;
pub mod tar_entry;

pub use changes::{PathChange, changes};
pub use error::TreeError;
pub use excludes::{ExcludeError, Excludes};
pub use files::{FileAccess, RealFiles};
pub use fresh::remove_all;
pub use guarded_disk::{Guard, GuardedDisk};
pub use manifest::{Digest, Manifest, ManifestBuilder, TreeEntry, read_local_manifest};
pub use path::{Names, PathProblem, RelativePath};
pub use quote::to_text;
pub use read::observe;
pub use real_folder::RealFolder;
pub use size::size;
pub use survey::{Survey, SurveyedPath, Unreadable, Writers, survey};

#[cfg(test)]
mod freeze_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod random_trees;
#[cfg(test)]
mod round_trip_tests;
