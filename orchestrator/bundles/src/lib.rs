//! `SwarmBundle`: what an agent makes of the configuration of its own conversation, so that a wrong change never
//! takes the conversation down (`BUNDLE-1` to `BUNDLE-8`).
//!
//! Synchronous: no clock, no thread, no process; time comes in, files are reached through
//! [`Files`](goondan_trees::Files), and configurations are loaded by a [`Gate`]. The lowest first: the files of
//! a configuration and how two sides come together (`tree`), who may change which field (`fields`), what becomes of
//! changesets and revisions (`machine`), the working copies that agents write, too (`working_copies`), the files that all
//! is kept in (`store`), and what agents, people and the
//! daemon do with all of it ([`Bundle`]).
//!
//! # Invariants
//!
//! * The project is only read. What a person wrote there holds over what an agent proposed.
//! * An agent's change is active only after all of it was loaded, and what it may not change is compared field by
//!   field, by the rules of the configuration that runs.
//! * The active revision is durable before a process starts with it.
//! * There always is a revision to go back to: the project as it is.

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
    Armed, Bundle, Gate, Happened, Staged, Standing, Surroundings, waiting_changesets,
};
pub use diff::text_diff;
pub use error::BundleError;
pub use machine::Outcome;
pub use store::BUNDLE_DIR;
pub use tree::{Tree, tree_of};

#[cfg(test)]
mod simulation;
