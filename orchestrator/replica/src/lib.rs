//! `goondan-replica`: the client of the PostgreSQL server that stores the logs of workspaces
//! (`REP-1`).
//!
//! The daemon has no network code. It starts this program as a child, sends it the server's URL
//! over a socket, and sends requests: put this record if its position is free, read from this
//! position. [`goondan_replication::wire`] defines the requests and answers,
//! [`goondan_replication::log`] the guarantees.
//!
//! # Layout, from the daemon outwards
//!
//! * `process`, `command_line`, `parent`: the life of the process. `link`: the socket and its
//!   handshake.
//! * `session`: receives requests and dispatches them.
//! * `puts`: puts records, many of them in one statement; `doubts`: records whose durability is
//!   unknown.
//! * `reads`: all other requests, independent of puts. `page`: reading pages, used by both.
//! * `upstream`: maintains one connection, reconnects, and logs each change once. `connection`: one
//!   connection and its session settings. `settings`: the parsed URL; `tls`: encryption. `schema`:
//!   the tables.
//! * `check`: validation of the server's settings.
//!
//! # Invariants
//!
//! * A put is answered "done" only after its commit was confirmed without a warning, because a
//!   canceled wait for a synchronous standby is reported as a warning.
//! * A record is reported as present only if it is as durable as a confirmed put: a record in doubt
//!   is first confirmed by a later commit.
//! * Reads continue while puts wait for a standby, on separate connections.
//! * At most [`limits::LATE_STATEMENTS_MAX`] unfinished statements on each of [`limits::PUT_LANES`]
//!   connections are left on a server that does not finish them.
//! * The server's URL arrives over the socket and appears in no argument, environment variable, log
//!   line or error.

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
