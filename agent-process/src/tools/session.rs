//! Sessions of `bash`: shells that outlive a call.
//!
//! Each session is a task that owns its shell's supervisor and reads its output continuously, so
//! that a background job never blocks on a full pipe. Calls of one session run one after another.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use goondan_clock::{Instant, sleep, sleep_until, timeout};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::capture::{Capture, Stream};
use super::fault::ToolFault;
use super::invocation::ToolInvocation;
use super::pipe::{
    DRAIN_TIMEOUT, Pipe, SUPERVISOR_GRACE, Surroundings, not_confined, supervisor_in,
};
use super::residents::Resident;
use super::rooted_files::Root;
use super::tool_supervisor;
use super::tool_supervisor::session::RECORD_END;
use crate::tool_call::{MAX_CALLS_PER_STEP, ToolOutcome};

/// Longest time limit of a command, in milliseconds.
pub(super) const MAX_TIMEOUT_MS: u64 = 600_000;
/// Maximum number of concurrent sessions of one agent process.
const MAX_SESSIONS: usize = 8;
/// Time for an interrupted command to return control to the shell before the session is ended.
const INTERRUPT_GRACE: Duration = Duration::from_secs(8);
/// Silence on the output pipes after which an ended command is assumed to have no more output.
const SILENCE: Duration = Duration::from_millis(5);

/// The sessions of one agent process, by name.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<ShellWorkers>);

#[derive(Debug, Default)]
struct ShellWorkers {
    by_name: BTreeMap<String, mpsc::Sender<ShellRequest>>,
    /// Dropping the tasks closes the shells' sockets, which ends the shells.
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct ShellRequest {
    command: String,
    timeout_ms: u64,
    call_id: String,
    reply: oneshot::Sender<Result<ToolOutcome, ToolFault>>,
}

impl Sessions {
    /// Runs a command in a session and starts the session if it does not exist. Dropping the future
    /// interrupts the command.
    pub(crate) async fn exec(
        &self,
        work: &Arc<Root>,
        surroundings: &Surroundings,
        name: &str,
        call: &ToolInvocation,
        command: String,
        timeout_ms: u64,
    ) -> Result<ToolOutcome, ToolFault> {
        if command.contains('\0') {
            return Err(ToolFault::new(
                "E_TOOL_FAILED",
                "a command cannot hold a zero byte",
            ));
        }
        let (sender, is_new) = self.of_name(work, surroundings, name)?;
        let (reply, answer) = oneshot::channel();
        let request = ShellRequest {
            command,
            timeout_ms,
            call_id: call.call_id.clone(),
            reply,
        };
        let gone = || {
            ToolFault::new(
                "E_TOOL_FAILED",
                format!(
                    "the session `{name}` ended before this command began; call again for a new one"
                ),
            )
        };
        sender.send(request).await.map_err(|_| gone())?;
        let mut outcome = answer.await.map_err(|_| gone())??;
        if is_new {
            let note = format!("[session `{name}` was started]\n");
            outcome
                .text
                .insert_str(0, if outcome.is_error { "" } else { &note });
        }
        Ok(outcome)
    }

    /// Returns the session of a name and whether it was just started.
    fn of_name(
        &self,
        work: &Arc<Root>,
        surroundings: &Surroundings,
        name: &str,
    ) -> Result<(mpsc::Sender<ShellRequest>, bool), ToolFault> {
        // A poisoned lock is safe to use, because no update here can be left half done.
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while open.tasks.try_join_next().is_some() {}
        open.by_name.retain(|_, sender| !sender.is_closed());
        if let Some(sender) = open.by_name.get(name) {
            return Ok((sender.clone(), false));
        }
        if open.by_name.len() >= MAX_SESSIONS {
            let names: Vec<&str> = open.by_name.keys().map(String::as_str).collect();
            return Err(ToolFault::new(
                "E_TOO_MANY_SESSIONS",
                format!(
                    "{MAX_SESSIONS} sessions are already open ({}); use one, or end one with the \
                     command `exit`",
                    names.join(", ")
                ),
            ));
        }
        let session = ShellSession::start(work, surroundings, name).map_err(|error| {
            ToolFault::new(
                "E_TOOL_FAILED",
                format!("the session `{name}` could not be started: {error}"),
            )
        })?;
        let (sender, requests) = mpsc::channel(MAX_CALLS_PER_STEP);
        open.tasks.spawn(session.run(requests));
        open.by_name.insert(name.to_owned(), sender.clone());
        Ok((sender, true))
    }
}

/// The end of a request's command.
enum CommandEnd {
    Code(String),
    ShellEnded,
}

struct ShellSession {
    name: String,
    supervisor: Child,
    _resident: Resident,
    /// Closing it ends the shell.
    socket: UnixStream,
    record: BytesMut,
    stdout: Pipe<ChildStdout>,
    stderr: Pipe<ChildStderr>,
    work: Arc<Root>,
    /// Output of background jobs since the last command.
    between: Capture,
}

impl ShellSession {
    fn start(work: &Arc<Root>, surroundings: &Surroundings, name: &str) -> std::io::Result<Self> {
        let (own_end, its_end) = std::os::unix::net::UnixStream::pair()?;
        own_end.set_nonblocking(true)?;
        let mut supervisor = supervisor_in(surroundings)
            .arg(tool_supervisor::SESSION)
            .stdin(Stdio::from(OwnedFd::from(its_end)))
            .spawn()?;
        Ok(Self {
            name: name.to_owned(),
            _resident: surroundings.residents.admit(supervisor.id()),
            socket: UnixStream::from_std(own_end)?,
            record: BytesMut::new(),
            stdout: Pipe::new(supervisor.stdout.take()),
            stderr: Pipe::new(supervisor.stderr.take()),
            supervisor,
            work: Arc::clone(work),
            between: between(name),
        })
    }

    async fn run(mut self, mut requests: mpsc::Receiver<ShellRequest>) {
        loop {
            tokio::select! {
                request = requests.recv() => {
                    let Some(request) = request else { return };
                    if !self.serve(request).await {
                        return;
                    }
                }
                chunk = self.stdout.read(), if self.stdout.is_open() => {
                    self.between.push(&self.work, Stream::Stdout, &chunk);
                }
                chunk = self.stderr.read(), if self.stderr.is_open() => {
                    self.between.push(&self.work, Stream::Stderr, &chunk);
                }
                _ = self.supervisor.wait() => return,
            }
        }
    }

    /// Runs one command. Returns false if the session ended with it.
    async fn serve(&mut self, mut request: ShellRequest) -> bool {
        if request.reply.is_closed() {
            return true;
        }
        let mut capture = Capture::new(&request.call_id);
        let mut command = std::mem::take(&mut request.command).into_bytes();
        command.push(RECORD_END);
        // The end of the shell is detected when its answer is read.
        drop(self.socket.write_all(&command).await);

        let (mut is_over_time, mut is_given_up) = (false, false);
        let mut deadline = Instant::now() + Duration::from_millis(request.timeout_ms);
        let end = loop {
            tokio::select! {
                chunk = self.stdout.read(), if self.stdout.is_open() => {
                    capture.push(&self.work, Stream::Stdout, &chunk);
                }
                chunk = self.stderr.read(), if self.stderr.is_open() => {
                    capture.push(&self.work, Stream::Stderr, &chunk);
                }
                code = next_record(&mut self.socket, &mut self.record) => {
                    break code.map_or(CommandEnd::ShellEnded, CommandEnd::Code);
                }
                () = request.reply.closed(), if !is_given_up && !is_over_time => {
                    is_given_up = true;
                    self.interrupt();
                    deadline = Instant::now() + INTERRUPT_GRACE;
                }
                () = sleep_until(deadline) => {
                    if is_over_time || is_given_up {
                        break CommandEnd::ShellEnded;
                    }
                    is_over_time = true;
                    self.interrupt();
                    deadline = Instant::now() + INTERRUPT_GRACE;
                }
            }
        };
        let goes_on = matches!(end, CommandEnd::Code(_));
        if !goes_on {
            self.end().await;
        }
        self.read_the_rest(&mut capture).await;
        let exit_code = match end {
            CommandEnd::Code(code) => code,
            CommandEnd::ShellEnded => self.exit_code().await,
        };
        let answer = self.answer(&request, is_over_time, goes_on, &exit_code, &capture);
        // A canceled call has no receiver.
        drop(request.reply.send(answer));
        goes_on
    }

    fn answer(
        &mut self,
        request: &ShellRequest,
        is_over_time: bool,
        goes_on: bool,
        exit_code: &str,
        capture: &Capture,
    ) -> Result<ToolOutcome, ToolFault> {
        match not_confined(exit_code.parse().ok(), capture) {
            Some(fault) if !goes_on => Err(fault),
            _ => Ok(self.outcome(request, is_over_time, goes_on, exit_code, capture)),
        }
    }

    fn outcome(
        &mut self,
        request: &ShellRequest,
        is_over_time: bool,
        goes_on: bool,
        exit_code: &str,
        capture: &Capture,
    ) -> ToolOutcome {
        let mut text = if is_over_time {
            let session = if goes_on {
                "the session continues unchanged"
            } else {
                "its session could not be kept: directory, variables and jobs are lost"
            };
            format!(
                "E_TOOL_TIMEOUT: the command ran longer than {} ms and was ended with all it \
                 started; {session}; do less at once or give a larger `timeoutMs` (at most \
                 {MAX_TIMEOUT_MS})\n",
                request.timeout_ms
            )
        } else if goes_on {
            format!("exit code: {exit_code}\n")
        } else {
            format!(
                "exit code: {exit_code}\n[the session `{}` has ended with this command; the next \
                 call starts a new one]\n",
                self.name
            )
        };
        let between = std::mem::replace(&mut self.between, between(&self.name));
        if !between.is_empty() {
            text.push_str("from the background, before this command:\n");
            between.show(&mut text);
            text.push_str("from this command:\n");
        }
        capture.show(&mut text);
        ToolOutcome {
            text,
            is_error: is_over_time,
            images: Vec::new(),
            has_failed: exit_code != "0",
            is_unknown: false,
            refusal: None,
        }
    }

    /// Asks the supervisor to end the running command.
    fn interrupt(&self) {
        // A full socket is impossible because the supervisor reads continuously. If it has ended,
        // the next read detects it.
        self.socket.try_write(&[RECORD_END]).ok();
    }

    /// Ends the shell and every process it started.
    async fn end(&mut self) {
        // The shell may have ended already.
        drop(self.socket.shutdown().await);
        if timeout(SUPERVISOR_GRACE, self.supervisor.wait())
            .await
            .is_err()
        {
            self.supervisor.start_kill().ok();
        }
    }

    async fn exit_code(&mut self) -> String {
        let status = timeout(DRAIN_TIMEOUT, self.supervisor.wait()).await;
        let code = status
            .ok()
            .and_then(Result::ok)
            .and_then(|status| status.code());
        code.map_or_else(|| "none".to_owned(), |code| code.to_string())
    }

    /// When the exit code arrives, the pipes hold the rest of the command's output. Later output
    /// comes from background jobs.
    async fn read_the_rest(&mut self, capture: &mut Capture) {
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        while (self.stdout.is_open() || self.stderr.is_open()) && Instant::now() < deadline {
            tokio::select! {
                biased;
                chunk = self.stdout.read(), if self.stdout.is_open() => {
                    capture.push(&self.work, Stream::Stdout, &chunk);
                }
                chunk = self.stderr.read(), if self.stderr.is_open() => {
                    capture.push(&self.work, Stream::Stderr, &chunk);
                }
                () = sleep(SILENCE) => return,
            }
        }
    }
}

fn between(name: &str) -> Capture {
    Capture::new(&format!("session-{name}"))
}

/// Reads the next record of the supervisor; `None` if the supervisor has ended. Cancel-safe.
async fn next_record(socket: &mut UnixStream, record: &mut BytesMut) -> Option<String> {
    loop {
        if let Some(end) = record.iter().position(|byte| *byte == RECORD_END) {
            let text = record.split_to(end + 1);
            return Some(String::from_utf8_lossy(text.get(..end)?).into_owned());
        }
        if socket.read_buf(record).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}
