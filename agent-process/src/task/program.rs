//! Program of a task, and its supervisor.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use bytes::BytesMut;
use futures_util::StreamExt as _;
use goondan_confinement::ProgramRights;
use goondan_protocol::frame::FrameCodec;
use goondan_protocol::task::{TaskAssignment, TaskStarted};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio_util::codec::FramedRead;

use crate::tools::orphan_reaper::{all_beneath, start_time_of};
use crate::tools::pipe::{Pipe, confined_supervisor};
use crate::tools::tool_supervisor;
use crate::tools::tool_supervisor::task::wire::{Order, SupervisorReport};

use super::places::RunDirectories;

/// Bytes of unsent orders to the supervisor, above which output of the program is no longer read.
const UNSENT_BYTES: usize = 1 << 20;

/// A program under its supervisor. Dropping it ends it with all it has started.
pub(super) struct Program {
    supervisor: Child,
    orders: Option<OwnedWriteHalf>,
    unsent: BytesMut,
    pub(super) reports: Reports,
    pub(super) stdout: Pipe<ChildStdout>,
    pub(super) stderr: Pipe<ChildStderr>,
}

impl Program {
    /// Starts the supervisor, which waits for a launch order.
    ///
    /// # Errors
    ///
    /// The supervisor cannot be started.
    pub(super) fn supervised(
        assignment: &TaskAssignment,
        places: &RunDirectories<'_>,
        allowed: &ProgramRights,
        supervisor: &Path,
    ) -> std::io::Result<Self> {
        let work = places.work();
        let (own_end, its_end) = std::os::unix::net::UnixStream::pair()?;
        own_end.set_nonblocking(true)?;
        let mut supervisor = confined_supervisor(supervisor, work, allowed)
            .arg(tool_supervisor::TASK)
            .env("GOONDAN_TASK_ID", assignment.task_id.as_str())
            .env("GOONDAN_WORK_DIR", work)
            .env("GOONDAN_PROJECT_ROOT", &assignment.project_root)
            .stdin(Stdio::from(OwnedFd::from(its_end)))
            .spawn()?;
        let (reports, orders) = UnixStream::from_std(own_end)?.into_split();
        Ok(Self {
            orders: Some(orders),
            unsent: BytesMut::new(),
            reports: Reports(Some(FramedRead::new(reports, FrameCodec::new()))),
            stdout: Pipe::new(supervisor.stdout.take()),
            stderr: Pipe::new(supervisor.stderr.take()),
            supervisor,
        })
    }

    /// Queues an order for the supervisor; it is written by [`Self::write_on`].
    pub(super) fn order(&mut self, order: &Order) {
        // Orders are texts, which are always JSON, and shorter than a frame.
        if let Ok(json) = serde_json::to_vec(order)
            && let Err(error) = FrameCodec::new().encode(&json, &mut self.unsent)
        {
            tracing::error!(error = %error, "an order to the supervisor could not be written");
        }
    }

    /// Process ids of its supervisor, while that runs, and of the supervisor's descendants.
    pub(super) fn processes(&self) -> Vec<u32> {
        let Some(supervisor) = self.supervisor.id() else {
            return Vec::new();
        };
        let number = i32::try_from(supervisor).ok().map(Pid::from_raw);
        let beneath = number.map(|pid| all_beneath(pid, &[])).unwrap_or_default();
        let beneath = beneath.into_iter();
        let beneath = beneath.filter_map(|pid| u32::try_from(pid.as_raw()).ok());
        [supervisor].into_iter().chain(beneath).collect()
    }

    /// True while orders are unsent.
    pub(super) fn has_unsent(&self) -> bool {
        self.orders.is_some() && !self.unsent.is_empty()
    }

    /// True if too many orders are unsent, and output must not be read for now.
    pub(super) fn is_behind(&self) -> bool {
        self.orders.is_some() && self.unsent.len() > UNSENT_BYTES
    }

    /// True if all its pipes are closed.
    pub(super) fn is_silent(&self) -> bool {
        !self.stdout.is_open() && !self.stderr.is_open() && self.reports.0.is_none()
    }

    /// Ends the program with all it has started.
    pub(super) fn give_up(&mut self) {
        self.orders = None;
    }

    /// Ends the supervisor, if it has not ended the program.
    pub(super) fn kill(&mut self) {
        // It may have exited already.
        self.supervisor.start_kill().ok();
    }

    /// Treats the outputs as ended.
    pub(super) fn close_outputs(&mut self) {
        self.stdout = Pipe::new(None);
        self.stderr = Pipe::new(None);
        self.reports.0 = None;
    }

    /// Identity of the process to report to the orchestrator, when the supervisor has started a
    /// program with this `pid`.
    pub(super) fn identity(&self, pid: i32) -> Option<TaskStarted> {
        let supervisor = self.supervisor.id().and_then(|id| i32::try_from(id).ok())?;
        let supervisor = Pid::from_raw(supervisor);
        let beneath = all_beneath(supervisor, &[]);
        let found = beneath
            .into_iter()
            .find(|found| number_within(*found) == Some(pid));
        // If the program has already exited, the supervisor's identity is used instead.
        [found, Some(supervisor)]
            .into_iter()
            .flatten()
            .find_map(identity_of)
    }
}

fn identity_of(pid: Pid) -> Option<TaskStarted> {
    Some(TaskStarted {
        pid: u32::try_from(pid.as_raw()).ok()?,
        start_time: start_time_of(pid)?,
    })
}

/// Number of a process in its innermost PID namespace.
fn number_within(pid: Pid) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

/// Reports of the supervisor, until it exits.
pub(super) struct Reports(Option<FramedRead<OwnedReadHalf, FrameCodec>>);

impl Reports {
    pub(super) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the next report; none at the end. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<SupervisorReport> {
        let next = match &mut self.0 {
            Some(reports) => reports.next().await,
            None => None,
        };
        let read = next.and_then(Result::ok);
        let read = read.and_then(|frame| serde_json::from_slice(&frame).ok());
        if read.is_none() {
            self.0 = None;
        }
        read
    }
}

/// Parts of a program that can be awaited concurrently.
pub(super) struct Parts<'p> {
    pub(super) stdout: &'p mut Pipe<ChildStdout>,
    pub(super) stderr: &'p mut Pipe<ChildStderr>,
    pub(super) reports: &'p mut Reports,
    pub(super) orders: OrderWriter<'p>,
    pub(super) supervisor: &'p mut Child,
}

/// Writer of orders to the supervisor.
pub(super) struct OrderWriter<'p> {
    to: &'p mut Option<OwnedWriteHalf>,
    unsent: &'p mut BytesMut,
}

impl OrderWriter<'_> {
    /// Writes some of the orders. Cancel-safe.
    pub(super) async fn write_on(&mut self) {
        let Some(to) = &mut self.to else { return };
        if to.write_buf(self.unsent).await.is_err() {
            // The exit of a supervisor is detected elsewhere.
            *self.to = None;
        }
    }
}

impl Program {
    /// Its parts, to wait for.
    pub(super) fn parts(&mut self) -> Parts<'_> {
        Parts {
            stdout: &mut self.stdout,
            stderr: &mut self.stderr,
            reports: &mut self.reports,
            orders: OrderWriter {
                to: &mut self.orders,
                unsent: &mut self.unsent,
            },
            supervisor: &mut self.supervisor,
        }
    }
}

pub(super) type SupervisorEnd = std::io::Result<ExitStatus>;
