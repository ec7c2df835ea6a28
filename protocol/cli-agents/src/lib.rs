//! What command-line agents write, read as events.
//!
//! A command-line agent is a program such as `claude`, `codex` or `aider` that works for a task. It writes
//! text, or JSON in a form of its own, and it speaks with goondan by protocol blocks in what its model
//! says. From the bytes upwards:
//!
//! * [`lines`]: lines out of pieces of any size, bounded, without escape sequences of terminals;
//! * [`blocks`]: the protocol blocks (`PROTO-1` to `PROTO-5`) that a [`Scanner`](blocks::Scanner) finds in
//!   an agent's own text, outside of code fences and of echoes of its prompt;
//! * [`usage`]: tokens, counted once however often they are told (`TASK-6`);
//! * [`formats`]: what each program writes, as [`Event`]s: plain text, `claude-stream-json`, `codex-json`,
//!   `gemini-stream-json`, `opencode-json`, `aider` and `acp`. [`Parser`] is one of them, chosen by [`Format`];
//! * [`failure`]: which failures a retry cannot mend, and which say that a session is gone;
//! * [`reply`]: what is written back: answers to requests for permission, and the requests of `acp`.
//!
//! # Invariants
//!
//! * No I/O, no clock, no task: bytes come in, events go out. The same bytes give the same events, however
//!   they were cut.
//! * Nothing an agent writes makes this crate panic, or hold more than the [`limits`] of its format.
//! * A protocol block counts in the assistant's own text alone: never in what a tool printed, what a
//!   subagent said, or what is played back of an earlier session.
//! * A block is recognised whole and valid, or refused with the reason; nothing is guessed.
//! * A token is counted once: repeated figures are compared, never added.

pub mod blocks;
mod event;
pub mod failure;
mod format;
pub mod formats;
pub mod limits;
pub mod lines;
mod permission;
pub mod reply;
mod stderr;
pub mod usage;

pub use event::{
    AskedChoice, Consent, Event, PermissionOption, PermissionRequest, RefusedBlock, Reset,
    RunResult, ToolActivity, ToolState,
};
pub use format::Format;
pub use formats::{Parser, Setup};
pub use stderr::telling_line;
