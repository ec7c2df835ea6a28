//! The harness of the black-box tests: real binaries, real processes, real files.
//!
//! A test makes a [`Home`] (a project and a state root of its own), starts a [`Daemon`] in it, and
//! talks to it as a person would: with `gdn` ([`Home::gdn`]), over HTTP ([`http`]), or with signals.
//!
//! # Invariants
//!
//! * Every process a test starts, and whatever those start, has the test's own `HOME` in its
//!   environment. That is how they are found again ([`processes`]), even after their parents are gone.
//! * When a test ends, well or badly, no such process is left: the daemon is stopped, whoever remains
//!   is killed, and if anyone remained the test fails.
//! * Every line a daemon writes to stdout is checked ([`log`]): it is a JSON object that says who
//!   wrote it and in which trace. Only a killed daemon may cut its last line.
//! * Tests wait for conditions, never for a time ([`wait`]).

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a harness panics where a test is to fail, tells its reader why, and prepares files of its own"
)]

pub mod alerts;
pub mod authorization_server;
pub mod binaries;
pub mod cast;
pub mod cli_agents;
pub mod copies;
pub mod daemon;
pub mod home;
pub mod http;
pub mod log;
pub mod mcp;
pub mod mcp_login;
pub mod misbehaviour;
pub mod needs;
pub mod network;
pub mod node;
pub mod postgres;
pub mod postgres_pair;
pub mod processes;
pub mod projects;
pub mod promql;
pub mod provider;
pub mod random;
pub mod registry;
pub mod relay;
pub mod scrape;
pub mod screen;
pub mod secret_forms;
pub mod server;
pub mod service;
pub mod team;
pub mod telegram;
pub mod terminal;
pub mod tree;
pub mod wait;

pub use daemon::Daemon;
pub use home::{Home, Ran};
pub use wait::{PATIENCE, wait_for, wait_until};
