//! `SwarmBundle`: an agent's changes to the configuration of its own conversation, such that a
//! wrong change never breaks the conversation (`BUNDLE-1` to `BUNDLE-8`).
//!
//! Synchronous: no clock, thread or process. Time is an input, files are accessed through
//! [`FileAccess`](goondan_trees::FileAccess), and a [`ConfigPreflight`] loads configurations. From the lowest layer up:
//! configuration files and their merge (`tree`), permissions by field (`fields`), the state machine
//! of changesets and revisions (`machine`), working copies shared with agents (`working_copies`),
//! the storage (`store`), and the operations of agents, users and the daemon ([`Bundle`]).
//!
//! # Invariants
//!
//! * The project is only read. A user's edits there override an agent's proposals.
//! * An agent's change becomes active only after the complete configuration was loaded and every
//!   forbidden field was compared, by the rules of the running configuration.
//! * The active revision is durable before a process starts with it.
//! * A fallback revision always exists: the unchanged project.

mod bundle;
mod diff;
mod error;
mod fields;
pub mod limits;
mod machine;
mod store;
mod tree;
mod working_copies;

pub use bundle::{
    Bundle, BundleEvent, BundleState, ConfigPreflight, RehearsalConfigs, StartupConfig,
    Surroundings, waiting_changesets,
};
pub use diff::text_diff;
pub use error::BundleError;
pub use machine::CanaryOutcome;
pub use store::BUNDLE_DIR;
pub use tree::{Tree, tree_of};

#[cfg(test)]
mod simulation;
