//! Trees of files that people and agents both write: frozen, compared, put in place, unpacked.
//!
//! The lowest first: names that are safe everywhere ([`RelativePath`]), what a tree holds ([`Manifest`]),
//! new directories that appear whole or not at all, of a tree that is there ([`freeze`]) or an archive
//! ([`extract`](mod@extract)); the difference of two trees ([`changes()`], and as a patch that git applies:
//! [`diff`]), patches read with suspicion ([`patch`]) and applied in memory ([`apply`](mod@apply)); what two
//! made of one tree, in one ([`merge`](mod@merge)); and a set of changes put in place whole, over what people
//! do meanwhile ([`swap`](mod@swap)).
//!
//! # Invariants
//!
//! * Nothing here knows a conversation, a proposal, a place in the System Root, or the network.
//! * No link is followed, and no path leads out of a tree: every name is a [`RelativePath`], every access
//!   goes through a [`Folder`](goondan_durable::disk::Folder).
//! * A tree appears whole under its name or not at all.
//! * A byte that a person wrote is at its path or told as kept aside; it is never replaced unread.
//! * Whatever comes from outside (patches, archives, manifests) is refused whole if anything is wrong with it.

pub mod apply;
mod beneath;
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

pub use changes::{Change, changes};
pub use error::TreeError;
pub use excludes::{ExcludeError, Excludes};
pub use files::{Files, RealFiles};
pub use fresh::remove_all;
pub use guarded_disk::{Guard, GuardedDisk};
pub use manifest::{Digest, Entry, Manifest, ManifestBuilder, read_local_manifest};
pub use path::{Names, PathProblem, RelativePath};
pub use read::observe;
pub use real_folder::RealFolder;
pub use size::size;
pub use survey::{Survey, Surveyed, Writers, survey};

#[cfg(test)]
mod freeze_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod random_trees;
#[cfg(test)]
mod round_trip_tests;
