//! Parsers for the output of command-line agents.
//!
//! A command-line agent is a program such as `claude`, `codex` or `aider` that works on a task. It
//! writes text or its own JSON format, and its model communicates with goondan through protocol
//! blocks. Bottom up:
//!
//! * [`lines`]: splits chunks of any size into bounded lines without terminal escape sequences;
//! * [`blocks`]: protocol blocks (`PROTO-1` to `PROTO-5`), which a [`Scanner`](blocks::Scanner)
//!   finds in an agent's own text, outside of code fences and echoes of its prompt;
//! * [`usage`]: token counts, deduplicated (`TASK-6`);
//! * [`formats`]: parsers that produce [`CliEvent`]s: plain text, `claude-stream-json`, `codex-json`,
//!   `gemini-stream-json`, `opencode-json`, `aider` and `acp`. [`Parser`] is one of them, chosen by
//!   [`Format`];
//! * [`stream`]: converts events to the items of a task's stream, the same for all programs;
//! * [`failure`]: detects permanent failures and lost sessions;
//! * [`tools`]: the protocol as tools, and [`mcp`], the server that offers them;
//! * [`reply`]: messages to the agent: answers to permission requests, and the requests of `acp`.
//!
//! # Invariants
//!
//! * No I/O, no clock, no tasks: bytes in, events out. The same bytes produce the same events,
//!   regardless of chunk boundaries.
//! * No agent output makes this crate panic, or buffer more than the [`limits`] of its format.
//! * A protocol block counts only in the assistant's own text: never in tool output, subagent text,
//!   or a replayed session.
//! * A block is either complete and valid, or refused with the reason; the parser never guesses.
//! * A token is counted once: repeated figures are compared, never added.

pub mod blocks;
mod event;
pub mod failure;
pub mod formats;
pub mod limits;
pub mod lines;
pub mod mcp;
mod permission;
pub mod reply;
mod stderr;
pub mod stream;
mod tool;
pub mod tools;
pub mod usage;

pub use event::{
    ChoicePrompt, CliEvent, Consent, InvalidBlock, PermissionOption, PermissionRequest, Reset,
    RunResult, ToolActivity, ToolDetail, ToolKind, WallClock,
};
pub use formats::{Parser, Setup};
pub use goondan_protocol::task::{AgentFormat as Format, ToolState};
pub use stderr::telling_line;
