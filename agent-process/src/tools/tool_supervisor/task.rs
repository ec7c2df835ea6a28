//! Supervises the program that works for a task.
//!
//! Its standard input is a socket that carries orders to the supervisor and reports back
//! ([`wire`]). The program's variables arrive over it too, so that secrets appear neither in
//! arguments nor in the environment of the supervisor, which runs outside the sandbox until it has
//! entered it.

pub(crate) mod calls;
mod process_tree;
pub(crate) mod wire;

use std::collections::VecDeque;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use goondan_protocol::frame::{FrameCodec, FrameError};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::codec::Framed;

use super::super::orphan_reaper;
use super::termination::{code_at_end, end_group};
use calls::Calls;
use wire::{Launch, Order, SupervisorReport};

/// Maximum number of bytes that wait for a program to read them. A program that does not read its
/// input gets no more.
const INPUT_BYTES_MAX: usize = 16 << 20;

/// Starts the ordered program and supervises it until it ends or the socket closes.
pub(super) async fn supervise() -> std::io::Result<u8> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true)?;
    let mut agent = Framed::new(UnixStream::from_std(socket)?, FrameCodec::new());
    // If the agent closes the socket before its launch order, nothing is started.
    let Some(Order::Launch(launch)) = next_order(&mut agent).await? else {
        return Ok(code_at_end(None));
    };
    let calls = match launch.tools.as_deref().map(Calls::listen) {
        None => Calls::none(),
        Some(Ok(calls)) => calls,
        // The program can write text blocks instead.
        Some(Err(error)) => {
            let error = error.to_string();
            tell(&mut agent, &SupervisorReport::NoTools { error }).await;
            Calls::none()
        }
    };
    let started = start(&launch);
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            let program = launch.words.first().map_or("", String::as_str);
            let error = format!("`{program}` could not be started: {error}");
            tell(&mut agent, &SupervisorReport::NotStarted { error }).await;
            return Ok(super::NOT_STARTED);
        }
    };
    let program = child.id().and_then(|pid| i32::try_from(pid).ok());
    let pid = program.unwrap_or_default();
    tell(&mut agent, &SupervisorReport::Started { pid }).await;
    let mut supervised = TaskProgram {
        program: program.map(Pid::from_raw),
        input: StdinBuffer::of(child.stdin.take()),
        calls,
    };
    let status = supervised.stand_around(&mut agent, &mut child).await?;
    end_group(child.id().or(u32::try_from(pid).ok()));
    if let Some(status) = status {
        let code = status.code();
        let signal = status.signal();
        tell(&mut agent, &SupervisorReport::Exited { code, signal }).await;
    }
    Ok(code_at_end(status))
}

fn start(launch: &Launch) -> std::io::Result<Child> {
    let Some((program, arguments)) = launch.words.split_first() else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    Command::new(program)
        .args(arguments)
        .envs(&launch.environment)
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()
}

type Agent = Framed<UnixStream, FrameCodec>;

/// Reads the next order; `None` if the agent process is gone.
///
/// # Errors
///
/// If the order is invalid.
async fn next_order(agent: &mut Agent) -> std::io::Result<Option<Order>> {
    match agent.next().await {
        None | Some(Err(FrameError::Io(_))) => Ok(None),
        Some(Err(error)) => Err(std::io::Error::other(error)),
        Some(Ok(frame)) => Ok(Some(serde_json::from_slice(&frame)?)),
    }
}

/// Sends a report. If the agent process is gone, the next read detects it.
async fn tell(agent: &mut Agent, report: &SupervisorReport) {
    if let Ok(json) = serde_json::to_vec(report) {
        drop(agent.send(Bytes::from(json)).await);
    }
}

/// The program, its pending input and its calls.
struct TaskProgram {
    program: Option<Pid>,
    input: StdinBuffer,
    calls: Calls,
}

impl TaskProgram {
    /// Executes orders until the program ends; `None` if the agent process is gone first.
    async fn stand_around(
        &mut self,
        agent: &mut Agent,
        child: &mut Child,
    ) -> std::io::Result<Option<ExitStatus>> {
        let mut child_ended = signal(SignalKind::child())?;
        loop {
            tokio::select! {
                status = child.wait() => return Ok(Some(status?)),
                order = next_order(agent) => match order? {
                    None => return Ok(None),
                    Some(order) => self.follow(order, agent).await,
                },
                call = self.calls.next() => tell(agent, &call).await,
                () = self.input.write_on(), if self.input.has_more() => {}
                // Reap orphans, because a long-lived program would accumulate zombies.
                _ = child_ended.recv() => orphan_reaper::reap_all_but(self.program),
            }
        }
    }

    async fn follow(&mut self, order: Order, agent: &mut Agent) {
        match order {
            // Only one program is started.
            Order::Launch(_) => {}
            Order::Input { text } => self.input.add(text.as_bytes()),
            Order::EndInput {} => self.input.end(),
            Order::CallAnswer { call, answer } => self.calls.answer(call, &answer),
            Order::Pause {} => {
                let running = process_tree::stop_tree().await;
                tell(agent, &SupervisorReport::Paused { running }).await;
            }
            Order::Continue {} => process_tree::continue_tree(),
            Order::Terminate {} => {
                process_tree::signal_tree(Signal::SIGTERM);
                // Stopped processes do not receive the signal.
                process_tree::continue_tree();
            }
            Order::Look {} => {
                let vitals = Self::vitals();
                tell(agent, &vitals).await;
            }
        }
    }

    fn vitals() -> SupervisorReport {
        let seen = orphan_reaper::look_beneath(Pid::this(), &[]);
        let written = seen
            .iter()
            .filter_map(|process| orphan_reaper::written_bytes_of(process.pid));
        SupervisorReport::Vitals {
            cpu_ticks: seen.iter().map(|process| process.cpu_ticks).sum(),
            written_bytes: written.sum(),
        }
    }
}

/// Input of the program, until its end.
struct StdinBuffer {
    pipe: Option<ChildStdin>,
    waiting: VecDeque<u8>,
    ends: bool,
}

impl StdinBuffer {
    fn of(pipe: Option<ChildStdin>) -> Self {
        Self {
            pipe,
            waiting: VecDeque::new(),
            ends: false,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.pipe.is_none() || self.ends {
            return;
        }
        if self.waiting.len() + bytes.len() > INPUT_BYTES_MAX {
            self.pipe = None;
            self.waiting.clear();
            return;
        }
        self.waiting.extend(bytes);
    }

    fn end(&mut self) {
        self.ends = true;
        if self.waiting.is_empty() {
            self.pipe = None;
        }
    }

    fn has_more(&self) -> bool {
        self.pipe.is_some() && !self.waiting.is_empty()
    }

    /// Writes some pending input. Cancel-safe.
    async fn write_on(&mut self) {
        let Some(pipe) = &mut self.pipe else {
            return;
        };
        let (first, _) = self.waiting.as_slices();
        match pipe.write(first).await {
            Ok(written) => {
                self.waiting.drain(..written);
            }
            // Input for a program that has closed its own is discarded.
            Err(_) => {
                self.pipe = None;
                self.waiting.clear();
            }
        }
        if self.ends && self.waiting.is_empty() {
            self.pipe = None;
        }
    }
}
