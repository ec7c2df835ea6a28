//! One process of a connector program, from start to end.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::OptionFuture;
use futures_util::stream::FuturesUnordered;
use goondan_clock::{sleep, timeout};
use goondan_confinement::Denials;
use goondan_log::TEXT_BYTES_MAX;
use goondan_protocol::ids::EventId;
use goondan_protocol::ipc::Status;
use goondan_protocol::sandbox::SandboxPolicy;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio_util::sync::CancellationToken;

use super::command;
use super::launch::Launch;
use super::messages::{self, ProgramMessage};
use crate::child_guard::{self, Group};
use crate::gateway::{EventVerdict, Gateway, StatusReporter, span_within};
use crate::limits::{
    NOTE_BYTES_MAX, PROGRAM_EVENTS_IN_FLIGHT_MAX, PROGRAM_LAST_WORDS_TIMEOUT_MS,
    PROGRAM_LINE_BYTES_MAX, PROGRAM_STOP_TIMEOUT_MS, PROGRAM_UNREAD_BYTES_MAX, REPLY_TIMEOUT_MS,
};
use crate::lines::{LineReader, ProgramLine, ProgramStream};

#[derive(Debug)]
pub(super) enum ProgramEnd {
    /// It was stopped as requested.
    Stopped,
    /// It exited, or was killed because of a violation.
    Failed {
        /// The reason; the text follows the file's name.
        reason: String,
        /// True if one of its events was accepted.
        has_worked: bool,
    },
    /// It was not started, for a reason that the next start would meet as well.
    NotStarted {
        /// Why, in words that follow the file's name.
        reason: String,
    },
}

pub(super) struct ProgramProcess {
    child: Child,
    /// Kills the process group if the process is dropped while it runs.
    group: Group,
    stdin: Option<ChildStdin>,
    stdout: LineReader<ChildStdout>,
    stderr: LineReader<ChildStderr>,
    /// Input that it has not read yet.
    unread: VecDeque<u8>,
    has_worked: bool,
    /// Reason for a failed start, from its stderr.
    not_started: Option<String>,
    /// Its latest report.
    ready: bool,
    detail: String,
    /// The enforced policy.
    policy: SandboxPolicy,
    /// The latest access that the sandbox seems to have refused, with the setting that allows it.
    denial: Option<String>,
}

impl ProgramProcess {
    /// Starts the program.
    ///
    /// # Errors
    ///
    /// How it ended before it began.
    pub(super) async fn start(launch: &Launch) -> Result<Self, ProgramEnd> {
        let file = launch.project_root.join(&launch.entry);
        let allowed = child_guard::allowed(
            &launch.project_root,
            &launch.sandbox,
            launch.egress.as_deref(),
        );
        let command = command::of(&file, &allowed.path()).await;
        let command = command.map_err(|reason| ProgramEnd::NotStarted { reason })?;
        let policy = allowed.policy.clone();
        let failed = |reason: String| ProgramEnd::Failed {
            reason,
            has_worked: false,
        };
        // Usually there are briefly no free processes.
        let cannot = |error: std::io::Error| failed(format!("cannot be started: {error}"));
        let mut child = child_guard::command(&command, &launch.project_root, allowed)
            .map_err(cannot)?
            .spawn()
            .map_err(cannot)?;
        let group = Group::of(&child);
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            return Err(failed("cannot be started: it has no stdout".to_owned()));
        };
        Ok(Self {
            child,
            group,
            stdin,
            stdout: LineReader::new(stdout, PROGRAM_LINE_BYTES_MAX),
            stderr: LineReader::new(stderr, TEXT_BYTES_MAX),
            unread: launch.start.0.bytes().collect(),
            has_worked: false,
            not_started: None,
            ready: true,
            detail: format!("running `{}`", launch.entry.display()),
            policy,
            denial: None,
        })
    }

    /// Exchanges messages with the program until it ends or is stopped.
    pub(super) async fn run(mut self, gateway: &Gateway, stop: &CancellationToken) -> ProgramEnd {
        gateway.report(true, self.detail.clone()).await;
        let result = self.exchange_lines(gateway, stop).await;
        self.group.kill();
        self.log_the_rest().await;
        // Killed, or already exited.
        let status = self.child.wait().await;
        if stop.is_cancelled() {
            return ProgramEnd::Stopped;
        }
        let reason = match (result, status) {
            (Ok(()), Ok(status)) if child_guard::was_not_started(status) => {
                match self.not_started.take() {
                    Some(reason) => return ProgramEnd::NotStarted { reason },
                    None => child_guard::ended(status),
                }
            }
            (Err(reason), _) => reason,
            (Ok(()), Ok(status)) => child_guard::ended(status),
            (Ok(()), Err(error)) => format!("ended with an unknown status: {error}"),
        };
        ProgramEnd::Failed {
            reason: match &self.denial {
                Some(denial) => format!("{reason} {denial}"),
                None => reason,
            },
            has_worked: self.has_worked,
        }
    }

    /// Its latest report, and the latest refusal of the sandbox.
    fn status(&self) -> Status {
        let detail = match &self.denial {
            Some(denial) => format!("{} {denial}", self.detail),
            None => self.detail.clone(),
        };
        Status {
            ready: self.ready,
            detail: detail.chars().take(NOTE_BYTES_MAX).collect(),
            token: None,
        }
    }

    /// Completes successfully when the program ends, or with its violation.
    async fn exchange_lines(
        &mut self,
        gateway: &Gateway,
        stop: &CancellationToken,
    ) -> Result<(), String> {
        let mut verdicts = FuturesUnordered::new();
        let mut telling = gateway.telling();
        let (mut has_more, mut has_more_log) = (true, true);
        let (mut is_stopping, mut has_exited) = (false, false);
        let mut given_up = pin!(OptionFuture::from(None));
        while has_more || has_more_log {
            let may_say_more = has_more && verdicts.len() < PROGRAM_EVENTS_IN_FLIGHT_MAX;
            tokio::select! {
                line = self.stdout.next(), if may_say_more => match line {
                    Ok(Some(line)) => {
                        if let Some(submission) = self.handle_line(&line, gateway, &mut telling)? {
                            verdicts.push(submission);
                        }
                    }
                    Ok(None) => has_more = false,
                    Err(error) => return Err(format!("cannot be read from: {error}")),
                },
                line = self.stderr.next(), if has_more_log => match line {
                    Ok(Some(line)) => if self.hear_stderr(&line) {
                        telling.tell(self.status());
                    },
                    Ok(None) | Err(_) => has_more_log = false,
                },
                Some((id, verdict)) = verdicts.next(), if !verdicts.is_empty() => {
                    self.answer(&id, &verdict)?;
                }
                () = telling.reported() => {}
                written = write(self.stdin.as_mut(), &self.unread) => match written {
                    Ok(len) => drop(self.unread.drain(..len)),
                    // A closed stdin alone is not an error.
                    Err(_closed) => self.stdin = None,
                },
                _ = self.child.wait(), if !has_exited => {
                    has_exited = true;
                    // Reads its remaining output, with a time limit because leftover processes may
                    // hold the pipes.
                    let time_limit = Duration::from_millis(PROGRAM_LAST_WORDS_TIMEOUT_MS);
                    given_up.set(OptionFuture::from(Some(sleep(time_limit))));
                }
                () = stop.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    self.queue(&messages::shutdown())?;
                    let time_limit = Duration::from_millis(PROGRAM_STOP_TIMEOUT_MS);
                    given_up.set(OptionFuture::from(Some(sleep(time_limit))));
                }
                Some(()) = &mut given_up => {
                    if !has_exited {
                        tracing::warn!("connector program did not stop in time; killing it");
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Handles one line of stdout; for an event, returns the future of its verdict.
    fn handle_line<'g>(
        &mut self,
        line: &ProgramLine,
        gateway: &'g Gateway,
        telling: &mut StatusReporter,
    ) -> Result<Option<impl Future<Output = (EventId, EventVerdict)> + use<'g>>, String> {
        if !line.is_whole() {
            line.log(ProgramStream::Stdout);
            return Err(format!(
                "wrote a line of more than {PROGRAM_LINE_BYTES_MAX} bytes to stdout"
            ));
        }
        if line.is_blank() {
            return Ok(None);
        }
        // An invalid line ends the program and often explains the failure.
        match messages::read(&line.bytes).inspect_err(|_| line.log(ProgramStream::Stdout))? {
            ProgramMessage::Event(event, id, caller) => {
                let trace = span_within(caller, uuid::Uuid::now_v7());
                let reply_timeout = Duration::from_millis(REPLY_TIMEOUT_MS);
                Ok(Some(async move {
                    (
                        id,
                        gateway.submit_within(reply_timeout, *event, trace).await,
                    )
                }))
            }
            ProgramMessage::NoEvent(answer) => {
                self.queue(&answer)?;
                Ok(None)
            }
            ProgramMessage::Status { ready, detail } => {
                self.ready = ready;
                self.detail = detail.chars().take(NOTE_BYTES_MAX).collect();
                telling.tell(self.status());
                Ok(None)
            }
        }
    }

    /// Logs the remaining output after the end. Events in it were not accepted; the program submits
    /// them again.
    async fn log_the_rest(&mut self) {
        let rest = async {
            let (mut has_more, mut has_more_log) = (true, true);
            while has_more || has_more_log {
                tokio::select! {
                    line = self.stdout.next(), if has_more => match line {
                        Ok(Some(line)) if line.is_blank() || messages::read(&line.bytes).is_ok() => {}
                        Ok(Some(line)) => line.log(ProgramStream::Stdout),
                        Ok(None) | Err(_) => has_more = false,
                    },
                    line = self.stderr.next(), if has_more_log => match line {
                        Ok(Some(line)) => {
                            self.hear_stderr(&line);
                        }
                        Ok(None) | Err(_) => has_more_log = false,
                    },
                }
            }
        };
        let time_limit = Duration::from_millis(PROGRAM_LAST_WORDS_TIMEOUT_MS);
        if timeout(time_limit, rest).await.is_err() {
            tracing::warn!("failed to read the last output of the connector program");
        }
    }

    /// Logs a line. True if it shows another refusal of the sandbox than the line before.
    fn hear_stderr(&mut self, line: &ProgramLine) -> bool {
        line.log(ProgramStream::Stderr);
        let not_started = child_guard::not_started_line(&line.bytes);
        self.not_started = not_started.or(self.not_started.take());
        let text = String::from_utf8_lossy(&line.bytes);
        let denial = Denials::of_connection(&self.policy).explain(&text);
        let denial = denial.map(|denial| denial.trim_end().to_owned());
        let is_new = denial.is_some() && denial != self.denial;
        self.denial = denial.or(self.denial.take());
        is_new
    }

    fn answer(&mut self, id: &EventId, verdict: &EventVerdict) -> Result<(), String> {
        match verdict {
            Ok(accepted) => {
                self.has_worked = true;
                self.queue(&messages::accepted(id, accepted))
            }
            Err(refused) => self.queue(&messages::refused(id, refused)),
        }
    }

    fn queue(&mut self, line: &str) -> Result<(), String> {
        if self.stdin.is_none() {
            return Ok(());
        }
        if self.unread.len() + line.len() > PROGRAM_UNREAD_BYTES_MAX + PROGRAM_LINE_BYTES_MAX {
            return Err("does not read the answers to its events".to_owned());
        }
        self.unread.extend(line.bytes());
        Ok(())
    }
}

/// Writes some unread input and returns the number of bytes. Pending forever without input.
/// Cancel-safe.
async fn write(stdin: Option<&mut ChildStdin>, unread: &VecDeque<u8>) -> std::io::Result<usize> {
    let (next, _) = unread.as_slices();
    match stdin {
        Some(stdin) if !next.is_empty() => stdin.write(next).await,
        Some(_) | None => std::future::pending().await,
    }
}
