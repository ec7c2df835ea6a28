//! Harness of the black-box tests: real binaries, real processes, real files.
//!
//! A test creates a [`Home`] (a project and a separate state root), starts a [`Daemon`] in it, and
//! interacts with it as a person would: with `gdn` ([`Home::gdn`]), over HTTP ([`http`]), or with
//! signals.
//!
//! # Invariants
//!
//! * Every process that a test starts, and every descendant, has the test's own `HOME` in its
//!   environment. The harness finds them by it ([`processes`]), even after their parents have
//!   exited.
//! * When a test ends, passed or failed, no such process is left: the daemon is stopped, remaining
//!   processes are killed, and the test fails if there were any.
//! * Every line that a daemon writes to stdout is checked ([`log`]): it is a JSON object with its
//!   source and its trace. Only a killed daemon may truncate its last line.
//! * Tests wait for conditions, never for a fixed time ([`wait`]).

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test harness panics to fail a test, explains why, and writes its own files"
)]

pub mod alerts;
pub mod authorization_server;
pub mod binaries;
pub mod cast;
pub mod cli_agents;
pub mod copies;
pub mod daemon;
pub mod git_server;
pub mod home;
pub mod http;
pub mod log;
pub mod mail;
pub mod matrix;
pub mod mcp;
pub mod mcp_login;
pub mod misbehaviour;
pub mod model_server;
pub mod needs;
pub mod network;
pub mod node;
pub mod postgres;
pub mod postgres_pair;
pub mod processes;
pub mod projects;
pub mod promql;
pub mod provider;
pub mod proxy;
pub mod random;
pub mod registry;
pub mod relay;
pub mod scrape;
pub mod screen;
pub mod secret_forms;
pub mod server;
pub mod service;
pub mod sshd;
pub mod synapse;
pub mod team;
pub mod telegram;
pub mod terminal;
pub mod tree;
pub mod wait;

pub use daemon::Daemon;
pub use home::{CommandOutput, Home};
pub use wait::{PATIENCE, wait_for, wait_until};
