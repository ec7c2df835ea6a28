//! The process of a host: started under a tool supervisor, with a line-based protocol.

use std::ffi::OsString;
use std::process::Stdio;

use bytes::{Buf as _, BytesMut};
use goondan_clock::timeout;
use goondan_log::text_parts;
use goondan_protocol::process_limits::ProcessLimits;
use serde::Serialize;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use super::wire::{HostLine, LogLevel, PipeLineSplitter};
use crate::tools::pipe::{Pipe, SUPERVISOR_GRACE, Surroundings, host_supervisor};
use crate::tools::residents::Resident;
use crate::tools::tool_supervisor;

/// Maximum number of bytes of a line kept as last words.
const LAST_WORD_BYTES_MAX: usize = 8 * 1024;
/// Lines of standard error that are reported after a host has ended.
const LAST_WORDS: usize = 5;

/// The program that a host runs, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostProgram {
    pub(crate) name: String,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// Resource limits of each of its processes.
    pub(crate) limits: ProcessLimits,
    /// True if it speaks the protocol over its own channel instead of its standard streams.
    pub(crate) has_own_channel: bool,
}

/// A running host process. Dropping it closes its input, which ends it.
#[derive(Debug)]
pub(crate) struct Process {
    supervisor: Child,
    _resident: Resident,
    input: Option<ChildStdin>,
    unsent: BytesMut,
    stdout: Pipe<ChildStdout>,
    stderr: Pipe<ChildStderr>,
    pub(crate) out_lines: PipeLineSplitter,
    pub(crate) err_lines: PipeLineSplitter,
    last_words: Vec<String>,
}

pub(crate) enum HostProcessEvent {
    /// Input was written to it.
    Wrote,
    /// It wrote to its standard output.
    Stdout(BytesMut),
    /// It wrote to its standard error.
    Stderr(BytesMut),
    /// It ended, with a description.
    Ended(String),
}

impl Process {
    /// Starts a host.
    ///
    /// # Errors
    ///
    /// If the supervisor cannot be started.
    pub(crate) fn start(
        surroundings: &Surroundings,
        program: &HostProgram,
    ) -> std::io::Result<Self> {
        let supervised = match program.has_own_channel {
            true => tool_supervisor::HOST,
            false => tool_supervisor::PROGRAM,
        };
        let mut supervisor = host_supervisor(surroundings)
            .arg(supervised)
            .args(tool_supervisor::in_words(&program.limits))
            .args(&program.command)
            .stdin(Stdio::piped())
            .spawn()?;
        Ok(Self {
            _resident: surroundings.residents.admit(supervisor.id()),
            input: supervisor.stdin.take(),
            unsent: BytesMut::new(),
            stdout: Pipe::new(supervisor.stdout.take()),
            stderr: Pipe::new(supervisor.stderr.take()),
            supervisor,
            out_lines: PipeLineSplitter::default(),
            err_lines: PipeLineSplitter::default(),
            last_words: Vec::new(),
        })
    }

    /// Queues a message as a line; [`happening`] writes it.
    pub(crate) fn say(&mut self, message: &impl Serialize) {
        // These messages are maps with text keys, which always serialize.
        if let Ok(line) = serde_json::to_vec(message) {
            self.unsent.extend_from_slice(&line);
            self.unsent.extend_from_slice(b"\n");
        }
    }

    /// Keeps a line of its standard error.
    pub(crate) fn hear_last_words(&mut self, text: &str) {
        let end = text.floor_char_boundary(LAST_WORD_BYTES_MAX);
        let word = text.get(..end).unwrap_or_default();
        self.last_words.push(word.to_owned());
        let surplus = self.last_words.len().saturating_sub(LAST_WORDS);
        self.last_words.drain(..surplus);
    }

    /// The incomplete last lines of its standard output and its standard error.
    pub(crate) fn begun_lines(&mut self) -> [Option<HostLine>; 2] {
        [self.out_lines.rest(), self.err_lines.rest()]
    }

    /// The last lines of its standard error, including an incomplete one.
    pub(crate) fn last_words(mut self) -> String {
        for line in self.begun_lines().into_iter().flatten() {
            self.hear_last_words(&line.text());
        }
        self.last_words.join("\n")
    }

    /// True if it has ended, even if its end has not been handled yet.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.supervisor.try_wait(), Ok(None))
    }

    /// Ends the process and every process it started.
    pub(crate) async fn end(mut self) {
        drop(self.input.take());
        if timeout(SUPERVISOR_GRACE, self.supervisor.wait())
            .await
            .is_err()
        {
            self.supervisor.start_kill().ok();
        }
    }
}

/// Waits for the next event of a process; pending forever without a process. Cancel-safe.
pub(crate) async fn happening(process: &mut Option<Process>) -> HostProcessEvent {
    let Some(process) = process else {
        return std::future::pending().await;
    };
    let Process {
        input,
        unsent,
        stdout,
        stderr,
        supervisor,
        ..
    } = process;
    let has_unsent = !unsent.is_empty();
    let is_heard = !stdout.is_open() && !stderr.is_open();
    tokio::select! {
        () = write_some(input, unsent), if has_unsent => HostProcessEvent::Wrote,
        chunk = stdout.read(), if stdout.is_open() => HostProcessEvent::Stdout(chunk),
        chunk = stderr.read(), if stderr.is_open() => HostProcessEvent::Stderr(chunk),
        // Output that has already arrived is handled first.
        ended = supervisor.wait(), if is_heard => HostProcessEvent::Ended(said_of(ended)),
    }
}

async fn write_some(input: &mut Option<ChildStdin>, unsent: &mut BytesMut) {
    let written = match input {
        Some(input) => input.write(unsent).await.unwrap_or(0),
        None => 0,
    };
    if written == 0 {
        // A host that no longer reads is about to end, or its calls time out.
        unsent.clear();
    }
    unsent.advance(written);
}

/// Writes a host's output to the agent's log, split into parts if it is too long for one line
/// (`LOG-3`). `part` is the number of the text itself as a part.
pub(crate) fn log(
    span: &tracing::Span,
    host: &str,
    level: LogLevel,
    text: &str,
    part: Option<u32>,
) {
    let _entered = span.enter();
    for piece in text_parts(text) {
        let (split_part, text) = (piece.number.or(part), piece.text);
        match level {
            LogLevel::Debug => tracing::debug!(host, split_part, "{text}"),
            LogLevel::Info => tracing::info!(host, split_part, "{text}"),
            LogLevel::Warn => tracing::warn!(host, split_part, "{text}"),
            LogLevel::Error => tracing::error!(host, split_part, "{text}"),
        }
    }
}

fn said_of(ended: std::io::Result<std::process::ExitStatus>) -> String {
    match ended {
        Ok(status) => match status.code() {
            Some(code) => format!("exit code {code}"),
            None => status.to_string(),
        },
        Err(error) => error.to_string(),
    }
}
