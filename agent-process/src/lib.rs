//! One agent instance as a process: its turns, its model and its tools.
//!
//! The orchestrator starts `goondan-agent-process` with a socket pair as its only link to the world,
//! tells it who it is, and gives it one turn at a time. Everything durable is a request to the
//! orchestrator; this process writes nothing but files of its work directory.
//!
//! # Map
//!
//! * [`turn`] decides: a turn as a pure state machine, without I/O.
//! * [`model`] answers a step; [`model::scripted`] plays a script, any other is asked through the
//!   orchestrator.
//! * `outgoing` has the orchestrator do what needs the network or a key.
//! * [`tools`] acts: the tools of `@goondan/base`.
//! * [`tool_call`] is what turns, tools and extensions share of a call; [`middleware`] what an engine and
//!   the modules of extensions say to each other.
//! * [`extensions`] stands around: what an agent's extensions do to its turns.
//! * `extension_host` is the process of those of them that are modules of the project.
//! * `agent_client` is the way from a tool to other agents.
//! * `process` carries out: one loop over the socket, the model and the tools, which decides nothing.
//! * `task` is the other kind of process that this crate has: one run of the program that works for a task.
//! * `history` is where a loaded conversation lies in memory.
//! * `link` is the socket; `recorder` gives what happened a time, a span and a log line.
//!
//! # Invariants
//!
//! * No network and no credentials: there is no HTTP, no TLS and no key in this process.
//! * One thread runs everything but blocking file work; at rest nothing wakes it but the socket.
//! * No process a tool started outlives its call, but the shells of `bash` sessions, which say so by a
//!   name. None outlives this process, however it ends.

mod agent_client;
mod entry;
mod extension_host;
pub mod extensions;
mod history;
mod link;
pub mod middleware;
pub mod model;
mod outgoing;
mod process;
mod recorder;
mod rehearsal;
mod socket;
mod task;
pub mod tool_call;
pub mod tools;
pub mod turn;

pub use entry::main_impl;
