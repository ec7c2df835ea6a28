//! One child process: start, sockets and pipes, exit.
//!
//! The child's end of the socket pair is its stdin (`IPC-1`), so it is inherited without leaking
//! another descriptor and without unsafe code. Tasks that end with the process read and write the
//! other end.

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt as _};
use goondan_protocol::JsonObject;
use goondan_protocol::envelope::Envelope;
use goondan_protocol::frame::{FrameCodec, FrameError};
use goondan_protocol::ipc::{ChildRole, ToOrchestrator};
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::trace::TraceContext;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::codec::{FramedRead, FramedWrite};

use super::cgroups::{Cgroup, Cgroups};
use super::event::ShellEvent;
use super::frame_memory::{CountedCodec, FrameMemory};
use super::launcher::{LaunchedChild, Launcher};
use super::limits;
use super::logs::{Collector, LogHub, Traces, collect};
use super::masking::{MaskingScope, Masks, OutputEnds};
use crate::limits::{CHILD_BATCH_MESSAGES, CHILD_BATCHES_WAITING, CHILD_QUEUE_FRAMES};
use goondan_core::{CoreInput, ProcessId, Spawn};

/// Frames of at least this size are written separately instead of being copied into the shared
/// write buffer.
const UNCOPIED_FRAME_BYTES: usize = 64 * 1024;

/// Time to read the messages that a child left when it exited. Usually they end at once; a process
/// that inherited its end can hold it open. It includes the time in which a busy daemon takes them
/// up: a task's last message is its result.
const DRAIN_MS: u64 = 10_000;

/// First delay before checking again if a process that closed its socket has exited, in
/// milliseconds; doubles up to [`END_LOOK_MAX_MS`].
const END_LOOK_FIRST_MS: u64 = 1;
/// Maximum delay between these checks, in milliseconds.
const END_LOOK_MAX_MS: u64 = 100;

#[derive(Debug)]
pub(super) struct RunningChild {
    pub(super) pid: u32,
    /// Its cgroup, if available.
    pub(super) cgroup: Option<Cgroup>,
    /// True if it was asked to stop and not killed, so it saves its state.
    pub(super) ends_in_order: bool,
    outgoing: mpsc::Sender<Bytes>,
    traces: Arc<Traces>,
    look: Arc<Notify>,
}

impl RunningChild {
    /// Sends a frame; false if its queue is full because the child does not read.
    pub(super) fn send(&self, frame: Bytes) -> bool {
        use mpsc::error::TrySendError;
        match self.outgoing.try_send(frame) {
            // A child that closed its end will be reported as gone.
            Ok(()) | Err(TrySendError::Closed(_)) => true,
            Err(TrySendError::Full(_)) => false,
        }
    }

    /// Checks for an exit, because a process can exit without closing its socket.
    pub(super) fn look_for_end(&self) {
        self.look.notify_one();
    }

    /// Assigns its log lines to a trace.
    pub(super) fn set_trace(&self, trace: Option<TraceContext>) {
        self.traces.set(trace);
    }

    /// Kills the process, its process group and its cgroup.
    pub(super) fn kill(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
        self.kill_group();
        if let Ok(pid) = i32::try_from(self.pid) {
            // Fails only if nothing is left to kill.
            kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
    }

    /// Kills the rest of its process group. Safe even if the process is gone and its pid was
    /// reused, because a process group keeps its id while it has members.
    pub(super) fn kill_group(&self) {
        if let Ok(pid) = i32::try_from(self.pid) {
            killpg(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
    }
}

/// Destinations of the reports of a child's tasks.
#[derive(Debug, Clone)]
pub(super) struct Reports {
    pub(super) events: mpsc::Sender<ShellEvent>,
    pub(super) hub: Arc<LogHub>,
    /// Memory budget for incomplete frames.
    pub(super) frames: FrameMemory,
}

impl Reports {
    async fn input(&self, input: CoreInput) {
        // The receiver is closed only while the daemon is ending.
        drop(self.events.send(ShellEvent::Input(input)).await);
    }
}

/// Starts a child. Its tasks run in `tasks` and end with it.
///
/// # Errors
///
/// The operating system's error if the process cannot be started or limited.
pub(super) fn start(
    spawn: &Spawn,
    launcher: &Launcher,
    cgroups: &mut Cgroups,
    reports: &Reports,
    tasks: &mut JoinSet<()>,
) -> io::Result<RunningChild> {
    let for_program = spawn.role == ChildRole::Task;
    let cgroup = cgroups.make(spawn.process, &spawn.limits, for_program)?;
    let started = start_in(spawn, launcher, cgroup.clone(), reports, tasks);
    if let (Err(_), Some(cgroup)) = (&started, cgroup) {
        cgroups.bury(cgroup);
    }
    started
}

fn start_in(
    spawn: &Spawn,
    launcher: &Launcher,
    cgroup: Option<Cgroup>,
    reports: &Reports,
    tasks: &mut JoinSet<()>,
) -> io::Result<RunningChild> {
    let LaunchedChild {
        mut child,
        socket,
        output,
    } = launcher.launch(spawn.role)?;
    let pid = child.id();
    let prepared = || -> io::Result<_> {
        limit(pid, cgroup.as_ref(), spawn)?;
        let ours = StdUnixStream::from(socket);
        ours.set_nonblocking(true)?;
        Ok((
            UnixStream::from_std(ours)?,
            pipe::Receiver::from_owned_fd(output)?,
        ))
    };
    let (ours, output) = prepared().inspect_err(|_| {
        // The process must not run without its limits or without a socket.
        child.kill().ok();
        child.wait().ok();
    })?;

    let (read, write) = ours.into_split();
    let (outgoing, frames) = mpsc::channel(CHILD_QUEUE_FRAMES);
    let traces = Arc::new(Traces::new(spawn.trace_id, spawn.role));
    let mut identity = JsonObject::from_iter([
        ("process".to_owned(), json!(log_name(spawn.role))),
        ("pid".to_owned(), json!(pid)),
    ]);
    identity.extend(spawn.identity.clone());
    let collector = Collector {
        hub: reports.hub.clone(),
        identity,
        traces: traces.clone(),
    };
    tasks.spawn(log_end(collect(output, collector)));
    tasks.spawn(write_frames(write, frames));
    let limited = AppliedLimits {
        by_system: cgroup.as_ref().map_or(spawn.limits, Cgroup::rest),
        cgroup: cgroup.clone(),
    };
    let look = Arc::new(Notify::new());
    let ending = ExitPoller {
        child,
        look: look.clone(),
    };
    let speaker = ChildSender {
        process: spawn.process,
        works_for: if spawn.works_for_task {
            MaskingScope::Task
        } else {
            MaskingScope::Conversation
        },
    };
    tasks.spawn(live(speaker, ending, read, limited, reports.clone()));
    Ok(RunningChild {
        pid,
        cgroup,
        ends_in_order: false,
        outgoing,
        traces,
        look,
    })
}

/// Sets the limits of a newly started process. The process does nothing before it receives its
/// assignment, so the limits apply to all its work.
fn limit(pid: u32, cgroup: Option<&Cgroup>, spawn: &Spawn) -> io::Result<()> {
    if let Some(cgroup) = cgroup {
        cgroup.admit(pid)?;
    }
    limits::apply(pid, &cgroup.map_or(spawn.limits, Cgroup::rest))
}

/// A child of this process that has exited and was not reaped, if any. It is left for its owner to
/// reap.
pub(super) fn ended_pid() -> Option<u32> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let ended = waitid(Id::All, flags).ok()?;
    u32::try_from(ended.pid()?.as_raw()).ok()
}

/// Awaits the exit of a process without a pidfd.
struct ExitPoller {
    child: Child,
    look: Arc<Notify>,
}

impl ExitPoller {
    /// Waits for a hint that the process may have exited. Returns its exit status if it has.
    async fn hint(&mut self) -> Option<io::Result<ExitStatus>> {
        self.look.notified().await;
        self.child.try_wait().transpose()
    }

    /// Waits for the exit of a process that has closed its socket, which happens when it exits.
    async fn soon(&mut self) -> io::Result<ExitStatus> {
        let mut pause_ms = END_LOOK_FIRST_MS;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            let pause = Duration::from_millis(pause_ms);
            drop(tokio::time::timeout(pause, self.look.notified()).await);
            pause_ms = (pause_ms * 2).min(END_LOOK_MAX_MS);
        }
    }
}

/// Process type in log lines. A model's process is a connector.
fn log_name(role: ChildRole) -> &'static str {
    match role {
        ChildRole::Agent => ChildRole::Agent.as_str(),
        ChildRole::Task => ChildRole::Task.as_str(),
        ChildRole::Connector | ChildRole::Model => ChildRole::Connector.as_str(),
    }
}

async fn log_end(collected: impl Future<Output = io::Result<()>>) {
    if let Err(error) = collected.await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "output of a child process truncated"
        );
    }
}

async fn write_frames(write: OwnedWriteHalf, mut frames: mpsc::Receiver<Bytes>) {
    let mut sink = FramedWrite::new(write, FrameCodec::new());
    while let Some(frame) = frames.recv().await {
        if feed(&mut sink, frame).await.is_err() {
            return;
        }
        // Queued frames are written in one call.
        while let Ok(frame) = frames.try_recv() {
            if feed(&mut sink, frame).await.is_err() {
                return;
            }
        }
        // A child that closed its end will be reported as gone.
        if SinkExt::<Bytes>::flush(&mut sink).await.is_err() {
            return;
        }
    }
}

/// Writes a frame; a large one is written without copying, after the buffered frames.
async fn feed(
    sink: &mut FramedWrite<OwnedWriteHalf, FrameCodec>,
    frame: Bytes,
) -> Result<(), FrameError> {
    if frame.len() < UNCOPIED_FRAME_BYTES {
        return sink.feed(frame).await;
    }
    let header = sink.encoder().header(frame.len())?;
    sink.write_buffer_mut().extend_from_slice(&header);
    SinkExt::<Bytes>::flush(sink).await?;
    sink.get_mut().write_all(&frame).await?;
    Ok(())
}

/// The sender of the messages being read.
#[derive(Debug, Clone, Copy)]
struct ChildSender {
    process: ProcessId,
    works_for: MaskingScope,
}

/// Reads a child's messages until it exits, and reports its exit last.
async fn live(
    speaker: ChildSender,
    mut ending: ExitPoller,
    read: OwnedReadHalf,
    limited: AppliedLimits,
    reports: Reports,
) {
    let mut frames = FramedRead::new(read, reports.frames.codec());
    let process = speaker.process;
    let said = read_frames(speaker, &mut frames, &reports);
    tokio::pin!(said);
    let status = loop {
        tokio::select! {
            () = &mut said => break ending.soon().await,
            ended = ending.hint() => if let Some(status) = ended {
                let rest = Duration::from_millis(DRAIN_MS);
                drop(tokio::time::timeout(rest, said).await);
                break status;
            }
        }
    };
    let how = match status {
        Ok(status) => describe(status, &limited),
        Err(error) => format!("failed to wait for its exit: {error}"),
    };
    reports.input(CoreInput::Exited { process, how }).await;
}

async fn read_frames(
    speaker: ChildSender,
    frames: &mut FramedRead<OwnedReadHalf, CountedCodec>,
    reports: &Reports,
) {
    // Messages that arrive together are reported together.
    let mut frames = frames.ready_chunks(CHILD_BATCH_MESSAGES);
    // Bounds each child's queued messages for the core, so a verbose child does not delay the
    // others.
    let turns = Arc::new(Semaphore::new(CHILD_BATCHES_WAITING));
    let masks = reports.hub.masks();
    let process = speaker.process;
    let mut ends = OutputEnds::default();
    while let Some(chunk) = frames.next().await {
        let read = |frame: Result<Bytes, FrameError>| match frame {
            Ok(body) => read_message(speaker, &body, masks, &mut ends),
            Err(error) => {
                let problem = goondan_log::error_chain(&error);
                vec![CoreInput::Broken { process, problem }]
            }
        };
        let mut inputs: Vec<CoreInput> = chunk.into_iter().flat_map(read).collect();
        let is_broken = |input: &CoreInput| matches!(input, CoreInput::Broken { .. });
        let broken = inputs.iter().position(is_broken);
        inputs.truncate(broken.map_or(usize::MAX, |at| at + 1));
        // The receiver is closed only while the daemon is ending.
        let Ok(turn) = turns.clone().acquire_owned().await else {
            return;
        };
        drop(reports.events.send(ShellEvent::Inputs(inputs, turn)).await);
        if broken.is_some() {
            return;
        }
    }
    let rest = rest_of_output(process, masks, &mut ends);
    if !rest.is_empty()
        && let Ok(turn) = turns.acquire_owned().await
    {
        drop(reports.events.send(ShellEvent::Inputs(rest, turn)).await);
    }
}

/// Parses a child's message, preceded by retained program output if the message ends the output.
fn read_message(
    speaker: ChildSender,
    body: &[u8],
    masks: &Masks,
    ends: &mut OutputEnds,
) -> Vec<CoreInput> {
    let process = speaker.process;
    let read = Envelope::from_frame(body).and_then(|envelope| {
        let message = ToOrchestrator::from_envelope(&envelope)?;
        Ok((message, envelope.id, envelope.trace))
    });
    let (mut message, request_id, trace) = match read {
        Ok(read) => read,
        Err(error) => {
            let problem = goondan_log::error_chain(&error);
            return vec![CoreInput::Broken { process, problem }];
        }
    };
    let mut inputs = match &message {
        ToOrchestrator::TaskExited(_) => rest_of_output(process, masks, ends),
        _ => Vec::new(),
    };
    ends.keep_back(masks, &mut message);
    masks.message(&mut message, speaker.works_for);
    inputs.push(CoreInput::Message {
        process,
        message: Box::new(message),
        request_id,
        trace,
    });
    inputs
}

fn rest_of_output(process: ProcessId, masks: &Masks, ends: &mut OutputEnds) -> Vec<CoreInput> {
    let rest = ends.rest(masks).into_iter();
    rest.map(|message| CoreInput::Message {
        process,
        message: Box::new(message),
        request_id: None,
        trace: None,
    })
    .collect()
}

/// Limits that applied to a process.
struct AppliedLimits {
    /// Limits enforced for each process separately.
    by_system: ProcessLimits,
    cgroup: Option<Cgroup>,
}

fn describe(status: ExitStatus, limited: &AppliedLimits) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    if status.signal() == Some(Signal::SIGKILL as i32)
        && let Some(why) = limited.cgroup.as_ref().and_then(Cgroup::out_of_memory)
    {
        return why;
    }
    let is_abort = status.signal() == Some(Signal::SIGABRT as i32);
    if let Some(bytes) = limited.by_system.memory_bytes.filter(|_| is_abort) {
        let mib = bytes >> 20;
        return format!("killed by SIGABRT, probably out of memory; the limit is {mib} MiB");
    }
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => match Signal::try_from(signal) {
            Ok(signal) => format!("killed by {signal}"),
            Err(_) => format!("killed by signal {signal}"),
        },
        (None, None) => "ended".to_owned(),
    }
}
