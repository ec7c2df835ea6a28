//! One agent instance as a process: its turns, its model and its tools.
//!
//! The orchestrator starts `goondan-agent-process` with a socket pair as its only link, sends its
//! assignment, and gives it one turn at a time. All durable changes are requests to the
//! orchestrator; this process only writes files in its work directory.
//!
//! # Map
//!
//! * [`turn`] decides: a turn as a pure state machine, without I/O.
//! * [`model`] answers a step; [`model::scripted`] plays a script, any other model is asked through
//!   the orchestrator.
//! * `outgoing_calls` sends calls that need the network or a key to the orchestrator.
//! * [`tools`] acts: the tools of `@goondan/base`.
//! * [`tool_call`] holds the types of calls that turns, tools and extensions share; [`middleware`]
//!   the messages between an engine and the modules of extensions.
//! * [`extensions`] wraps turns: the built-in extensions and the order of all.
//! * `extension_host` is the process of the extensions that are modules of the project.
//! * `agent_client` carries questions from a tool to other agents.
//! * `process` executes effects: one loop over the socket, the model and the tools, which decides
//!   nothing.
//! * `task` is the second kind of process in this crate: one run of the program that works for a
//!   task.
//! * `rehearsal` and `replay` play recorded turns: with a new configuration before it becomes active,
//!   and for incidents.
//! * `history` stores a loaded conversation in memory.
//! * `link` is the socket; `recorder` gives each event a time, a span and a log line.
//!
//! # Invariants
//!
//! * No network and no credentials: this process contains no HTTP, no TLS and no key.
//! * One thread runs everything except blocking file work; an idle process is woken only by the
//!   socket.
//! * No process that a tool started outlives its call, except the shells of named `bash` sessions.
//!   None outlives this process, however it ends.

mod agent_client;
mod entry;
mod extension_host;
pub mod extensions;
mod history;
mod link;
pub mod middleware;
pub mod model;
mod outgoing_calls;
mod process;
mod recorder;
mod rehearsal;
mod replay;
mod socket;
mod task;
pub mod tool_call;
pub mod tools;
pub mod turn;

pub use entry::main_impl;
