//! One child process: its start, its sockets and pipes, its end.
//!
//! The child's end of the socket pair is its stdin (`IPC-1`): so it is inherited without leaving any
//! other descriptor open, and without unsafe code. The other end is read and written by tasks that end
//! with the process.

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
use super::event::Event;
use super::frame_memory::{CountedCodec, FrameMemory};
use super::launcher::{Launched, Launcher};
use super::limits;
use super::logs::{Collector, LogHub, Traces, collect};
use super::masking::{Masks, OutputEnds, WorksFor};
use crate::limits::{CHILD_BATCH_MESSAGES, CHILD_BATCHES_WAITING, CHILD_QUEUE_FRAMES};
use goondan_core::{Input, ProcessId, Spawn};

/// A frame of as many bytes is not copied to the others that wait to be written with one call.
const UNCOPIED_FRAME_BYTES: usize = 64 * 1024;

/// How long what a process wrote before its end may take to be read, in milliseconds. Only a stray
/// that holds its socket makes this matter.
const DRAIN_MS: u64 = 1_000;

/// The pause before it is looked again whether a process that closed its socket has ended, in
/// milliseconds; it doubles up to [`END_LOOK_MAX_MS`].
const END_LOOK_FIRST_MS: u64 = 1;
/// The longest such pause, in milliseconds.
const END_LOOK_MAX_MS: u64 = 100;

/// A child that runs.
#[derive(Debug)]
pub(super) struct RunningChild {
    pub(super) pid: u32,
    /// Its control group, where there are any.
    pub(super) cgroup: Option<Cgroup>,
    /// Whether it was asked to end, and not killed: it puts in order what it has.
    pub(super) ends_in_order: bool,
    outgoing: mpsc::Sender<Bytes>,
    traces: Arc<Traces>,
    look: Arc<Notify>,
}

impl RunningChild {
    /// Hands it a frame; false if it does not read what it is sent.
    pub(super) fn send(&self, frame: Bytes) -> bool {
        use mpsc::error::TrySendError;
        match self.outgoing.try_send(frame) {
            // One that has closed its end is about to be reported as gone.
            Ok(()) | Err(TrySendError::Closed(_)) => true,
            Err(TrySendError::Full(_)) => false,
        }
    }

    /// It may have ended without closing its socket.
    pub(super) fn look_for_end(&self) {
        self.look.notify_one();
    }

    /// What it logs from now on belongs to this trace.
    pub(super) fn set_trace(&self, trace: Option<TraceContext>) {
        self.traces.set(trace);
    }

    /// Kills it, its process group, and whatever else is in its control group.
    pub(super) fn kill(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
        self.kill_group();
        if let Ok(pid) = i32::try_from(self.pid) {
            // It fails only when there is nothing left to kill.
            kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
    }

    /// Kills what is left of its process group. Safe when the process itself is gone and its number
    /// may be another's: a group keeps its number for as long as anything is in it.
    pub(super) fn kill_group(&self) {
        if let Ok(pid) = i32::try_from(self.pid) {
            killpg(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
    }
}

/// What a child's tasks report to.
#[derive(Debug, Clone)]
pub(super) struct Reports {
    pub(super) events: mpsc::Sender<Event>,
    pub(super) hub: Arc<LogHub>,
    /// Room for frames that are not whole yet.
    pub(super) frames: FrameMemory,
}

impl Reports {
    async fn input(&self, input: Input) {
        // Nobody listens any more only when the daemon is ending.
        drop(self.events.send(Event::Input(input)).await);
    }
}

/// Starts a child. Its tasks run in `tasks` and end with it.
///
/// # Errors
///
/// As the operating system says when it cannot start the process, or not limit it.
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
    let Launched {
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
        // It is not to go on without its limits, or without anybody to talk to.
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
    let limited = Limited {
        by_system: cgroup.as_ref().map_or(spawn.limits, Cgroup::rest),
        cgroup: cgroup.clone(),
    };
    let look = Arc::new(Notify::new());
    let ending = Ending {
        child,
        look: look.clone(),
    };
    let speaker = Speaker {
        process: spawn.process,
        works_for: if spawn.works_for_task {
            WorksFor::Task
        } else {
            WorksFor::Conversation
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

/// Sets the limits of a process that was just started. It does nothing before it is told who it is, so
/// nothing has been without limits.
fn limit(pid: u32, cgroup: Option<&Cgroup>, spawn: &Spawn) -> io::Result<()> {
    if let Some(cgroup) = cgroup {
        cgroup.admit(pid)?;
    }
    limits::apply(pid, &cgroup.map_or(spawn.limits, Cgroup::rest))
}

/// A child of this process that has ended and was not waited for; none if there is none. It stays to be
/// waited for.
pub(super) fn ended_pid() -> Option<u32> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let ended = waitid(Id::All, flags).ok()?;
    u32::try_from(ended.pid()?.as_raw()).ok()
}

/// Awaits the end of a process without a descriptor for it.
struct Ending {
    child: Child,
    look: Arc<Notify>,
}

impl Ending {
    /// Waits until the process may have ended, and says how it has, if it has.
    async fn hint(&mut self) -> Option<io::Result<ExitStatus>> {
        self.look.notified().await;
        self.child.try_wait().transpose()
    }

    /// Waits for the end of a process that has closed its socket, as it does when it ends.
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

/// What kind of process a log line says it is from: a model's is a connector like any other.
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
            "a child's output was cut off"
        );
    }
}

async fn write_frames(write: OwnedWriteHalf, mut frames: mpsc::Receiver<Bytes>) {
    let mut sink = FramedWrite::new(write, FrameCodec::new());
    while let Some(frame) = frames.recv().await {
        if feed(&mut sink, frame).await.is_err() {
            return;
        }
        // What waits is written with one call.
        while let Ok(frame) = frames.try_recv() {
            if feed(&mut sink, frame).await.is_err() {
                return;
            }
        }
        // A child that closed its end is about to be reported as gone.
        if SinkExt::<Bytes>::flush(&mut sink).await.is_err() {
            return;
        }
    }
}

/// Takes a frame; a long one is written from where it lies, behind what waits.
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

/// Who says what is read.
#[derive(Debug, Clone, Copy)]
struct Speaker {
    process: ProcessId,
    works_for: WorksFor,
}

/// Reads what a child says until it is gone, and reports its end last.
async fn live(
    speaker: Speaker,
    mut ending: Ending,
    read: OwnedReadHalf,
    limited: Limited,
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
        Err(error) => format!("its end could not be awaited: {error}"),
    };
    reports.input(Input::Exited { process, how }).await;
}

async fn read_frames(
    speaker: Speaker,
    frames: &mut FramedRead<OwnedReadHalf, CountedCodec>,
    reports: &Reports,
) {
    // What came together is reported together.
    let mut frames = frames.ready_chunks(CHILD_BATCH_MESSAGES);
    // No child has more waiting for the core than others may have, however much it says.
    let turns = Arc::new(Semaphore::new(CHILD_BATCHES_WAITING));
    let masks = reports.hub.masks();
    let process = speaker.process;
    let mut ends = OutputEnds::default();
    while let Some(chunk) = frames.next().await {
        let read = |frame: Result<Bytes, FrameError>| match frame {
            Ok(body) => read_message(speaker, &body, masks, &mut ends),
            Err(error) => {
                let problem = goondan_log::error_chain(&error);
                vec![Input::Broken { process, problem }]
            }
        };
        let mut inputs: Vec<Input> = chunk.into_iter().flat_map(read).collect();
        let is_broken = |input: &Input| matches!(input, Input::Broken { .. });
        let broken = inputs.iter().position(is_broken);
        inputs.truncate(broken.map_or(usize::MAX, |at| at + 1));
        // Nobody listens any more only when the daemon is ending.
        let Ok(turn) = turns.clone().acquire_owned().await else {
            return;
        };
        drop(reports.events.send(Event::Inputs(inputs, turn)).await);
        if broken.is_some() {
            return;
        }
    }
    let rest = rest_of_output(process, masks, &mut ends);
    if !rest.is_empty()
        && let Ok(turn) = turns.acquire_owned().await
    {
        drop(reports.events.send(Event::Inputs(rest, turn)).await);
    }
}

/// What a child says, behind what its program wrote if that has ended with it.
fn read_message(speaker: Speaker, body: &[u8], masks: &Masks, ends: &mut OutputEnds) -> Vec<Input> {
    let process = speaker.process;
    let read = Envelope::from_frame(body).and_then(|envelope| {
        let message = ToOrchestrator::from_envelope(&envelope)?;
        Ok((message, envelope.id, envelope.trace))
    });
    let (mut message, request_id, trace) = match read {
        Ok(read) => read,
        Err(error) => {
            let problem = goondan_log::error_chain(&error);
            return vec![Input::Broken { process, problem }];
        }
    };
    let mut inputs = match &message {
        ToOrchestrator::TaskExited(_) => rest_of_output(process, masks, ends),
        _ => Vec::new(),
    };
    ends.keep_back(masks, &mut message);
    masks.message(&mut message, speaker.works_for);
    inputs.push(Input::Message {
        process,
        message: Box::new(message),
        request_id,
        trace,
    });
    inputs
}

fn rest_of_output(process: ProcessId, masks: &Masks, ends: &mut OutputEnds) -> Vec<Input> {
    let rest = ends.rest(masks).into_iter();
    rest.map(|message| Input::Message {
        process,
        message: Box::new(message),
        request_id: None,
        trace: None,
    })
    .collect()
}

/// What a process was held to.
struct Limited {
    /// By the limits that each process has by itself.
    by_system: ProcessLimits,
    cgroup: Option<Cgroup>,
}

fn describe(status: ExitStatus, limited: &Limited) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    if status.signal() == Some(Signal::SIGKILL as i32)
        && let Some(why) = limited.cgroup.as_ref().and_then(Cgroup::out_of_memory)
    {
        return why;
    }
    let is_abort = status.signal() == Some(Signal::SIGABRT as i32);
    if let Some(bytes) = limited.by_system.memory_bytes.filter(|_| is_abort) {
        let mib = bytes >> 20;
        return format!(
            "killed by SIGABRT, as a process ends that gets no more memory; it may take {mib} MiB"
        );
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
