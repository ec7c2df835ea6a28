//! `goondan-replica`: holds the connection to the PostgreSQL server that the logs of workspaces stand in (`REP-1`).
//!
//! The daemon has no network code. It starts this program as a child, tells it over a socket where the server is, and
//! asks: put this record if its position is free, read from there on. What is asked and answered is
//! [`goondan_replication::wire`]; what an answer promises is [`goondan_replication::log`].
//!
//! # Layout, from the daemon outwards
//!
//! * `process`, `command_line`, `parent`: the life of the process. `link`: the socket, and the greeting over it.
//! * `session`: takes questions, and hands each to who answers it.
//! * `puts`: offers records, many of them in one statement; `doubts`: those of which nobody knows whether they stand.
//! * `reads`: everything else: it never waits for a put. `page`: reading, which both do.
//! * `upstream`: keeps one connection, makes it anew, and says once what changed. `connection`: one connection, and
//!   how its session is set. `settings`: what a URL says; `tls`: encryption. `schema`: the tables.
//! * `check`: whether the server is set as its records need it.
//!
//! # Invariants
//!
//! * "Done" is said of a record only after its commit was confirmed without a warning: a wait for a synchronous
//!   standby that was cancelled is none.
//! * A record is found to stand only if it is known to be as durable as one that was put: what was in doubt and is
//!   seen later is confirmed by a commit behind it first.
//! * Reading goes on while puts wait for a standby: they have connections of their own.
//! * No more statements than [`limits::LATE_STATEMENTS_MAX`] of each of [`limits::PUT_LANES`] connections are left behind
//!   on a server that does not finish them.
//! * The server's URL comes over the socket and is in no argument, environment, log line or error.

mod check;
mod command_line;
mod connection;
mod doubts;
mod fault;
pub mod limits;
mod link;
mod page;
mod parent;
mod process;
mod puts;
mod reads;
mod schema;
mod session;
mod settings;
mod tls;
mod upstream;

pub use process::run;
