//! The process of a host: started under a tool supervisor, spoken to in lines.

use std::process::Stdio;

use bytes::{Buf as _, BytesMut};
use goondan_clock::timeout;
use goondan_log::text_parts;
use serde::Serialize;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use super::program::HostProgram;
use super::wire::{HostLine, Lines, LogLevel};
use crate::tools::pipe::{Pipe, SUPERVISOR_GRACE, Surroundings, host_supervisor};
use crate::tools::residents::Resident;
use crate::tools::tool_supervisor;

/// Bytes of a line that are told as last words.
const LAST_WORD_BYTES_MAX: usize = 8 * 1024;
/// Last words of a host on its standard error that are told when it has ended, in lines.
const LAST_WORDS: usize = 5;

/// A running host process. Dropping it closes its input, and that ends it.
#[derive(Debug)]
pub(crate) struct Process {
    supervisor: Child,
    _resident: Resident,
    input: Option<ChildStdin>,
    unsent: BytesMut,
    stdout: Pipe<ChildStdout>,
    stderr: Pipe<ChildStderr>,
    pub(crate) out_lines: Lines,
    pub(crate) err_lines: Lines,
    last_words: Vec<String>,
}

/// What a look at the process brought.
pub(crate) enum Happened {
    /// Something was written to it.
    Wrote,
    /// It wrote to its standard output.
    Stdout(BytesMut),
    /// It wrote to its standard error.
    Stderr(BytesMut),
    /// It ended, in words.
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
        let mut supervisor = host_supervisor(surroundings)
            .arg(tool_supervisor::PROGRAM)
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
            out_lines: Lines::default(),
            err_lines: Lines::default(),
            last_words: Vec::new(),
        })
    }

    /// Says something, in a line; it is written by and by, as [`happening`] is asked.
    pub(crate) fn say(&mut self, message: &impl Serialize) {
        // Maps with text keys are always JSON.
        if let Ok(line) = serde_json::to_vec(message) {
            self.unsent.extend_from_slice(&line);
            self.unsent.extend_from_slice(b"\n");
        }
    }

    /// Notes a line of its standard error.
    pub(crate) fn hear_last_words(&mut self, text: &str) {
        let end = text.floor_char_boundary(LAST_WORD_BYTES_MAX);
        let word = text.get(..end).unwrap_or_default();
        self.last_words.push(word.to_owned());
        let surplus = self.last_words.len().saturating_sub(LAST_WORDS);
        self.last_words.drain(..surplus);
    }

    /// The lines that it had begun when it ended, of its standard output and its standard error.
    pub(crate) fn begun_lines(&mut self) -> [Option<HostLine>; 2] {
        [self.out_lines.rest(), self.err_lines.rest()]
    }

    /// What it said last on its standard error, and what it began to say.
    pub(crate) fn last_words(mut self) -> String {
        for line in self.begun_lines().into_iter().flatten() {
            self.hear_last_words(&line.text());
        }
        self.last_words.join("\n")
    }

    /// Whether it has come to its end, though nobody may have heard of it yet.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.supervisor.try_wait(), Ok(None))
    }

    /// Ends the process with all it started.
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

/// The next thing a process does; never if there is none. Cancel-safe.
pub(crate) async fn happening(process: &mut Option<Process>) -> Happened {
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
        () = write_some(input, unsent), if has_unsent => Happened::Wrote,
        chunk = stdout.read(), if stdout.is_open() => Happened::Stdout(chunk),
        chunk = stderr.read(), if stderr.is_open() => Happened::Stderr(chunk),
        // What it has said is heard first.
        ended = supervisor.wait(), if is_heard => Happened::Ended(said_of(ended)),
    }
}

async fn write_some(input: &mut Option<ChildStdin>, unsent: &mut BytesMut) {
    let written = match input {
        Some(input) => input.write(unsent).await.unwrap_or(0),
        None => 0,
    };
    if written == 0 {
        // A host that reads no more is about to end, or its calls run out of time.
        unsent.clear();
    }
    unsent.advance(written);
}

/// Writes what a host said to the agent's log: all of it, in parts if it is too long for one line (`LOG-3`). `part` is
/// its own number as a part.
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
