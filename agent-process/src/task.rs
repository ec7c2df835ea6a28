//! One run of the program that works for a task (`TASK-8`).
//!
//! The program is started under a tool supervisor and confined like tools. Its output is parsed
//! into events, which the orchestrator evaluates; this process makes no decisions about the task.
//!
//! # Map
//!
//! * [`launch`] decides the command line and the environment.
//! * [`dialogue`] decides the program's next input.
//! * [`messages`] converts the program's output to messages, and [`liveness`] its activity without
//!   output.
//! * [`tool_offer`] decides how the program receives goondan's tools. [`tool_server`] is the
//!   process that serves them, and [`tool_calls`] are its calls.
//! * [`places`] decides the program's directories and its access rights.
//! * [`program`] is the program behind its supervisor.
//! * [`freezer`] is the control group that pauses it, where available.
//! * [`run_loop`] executes: one loop over the link and the program.
//!
//! # Invariants
//!
//! * Output for which the orchestrator has no capacity stays in the program's pipes: nothing is
//!   read while a message waits to be sent. Pings are answered regardless.
//! * `task.exited` is the last message, and is sent when no process of the program is left.
//! * Secrets are variables of the program only. They appear in no argument, no log line, and no
//!   variable of this process or of the supervisor.

mod dialogue;
mod freezer;
mod launch;
mod liveness;
mod messages;
mod places;
mod program;
mod run_loop;
mod tool_calls;
mod tool_offer;
mod tool_server;
mod usage_limit;

pub(crate) use run_loop::run;
pub(crate) use tool_server::serve as serve_tools;
