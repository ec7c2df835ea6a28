//! Calls of goondan's tools by the program of a task (`AGENT-2`).
//!
//! The program starts a server of the tools inside the sandbox. The server forwards each call over
//! a named pipe that the supervisor creates: no socket outside of the sandbox can be reached from
//! inside, and at the level `landlock` there are no sockets at all. A line has the name of the pipe
//! for the answer, a space and the call. Each server creates the pipes for its answers.

use std::collections::{BTreeMap, VecDeque};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use goondan_cli_agents::limits::MCP_LINE_BYTES_MAX;
use goondan_cli_agents::lines::{OutputLine, OutputLineSplitter};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::wire::SupervisorReport;

/// The argument that makes the binary a server of goondan's tools. The directory of the pipes
/// follows.
pub(crate) const TOOL_SERVER: &str = "--task-tools";

/// Name of the pipe for calls.
pub(crate) const CALLS: &str = "goondan.calls";

/// Prefix of the names of the pipes for answers; digits and `-` follow.
pub(crate) const ANSWER_PREFIX: &str = "goondan.answer.";

/// Maximum bytes of an answer: it is written at once.
pub(crate) const ANSWER_BYTES_MAX: usize = 4096;

/// Maximum calls without an answer; further ones wait in the pipe.
const CALLS_AT_ONCE_MAX: usize = 16;

/// Bytes per read.
const READ_BYTES: usize = 16 * 1024;

pub(super) struct Calls {
    pipe: Option<CallPipe>,
    lines: OutputLineSplitter,
    /// Calls that were read and not reported.
    unreported: VecDeque<String>,
    /// Pipes for the answers, by the number of the call.
    waiting: BTreeMap<u64, PathBuf>,
    last: u64,
}

struct CallPipe {
    receiver: pipe::Receiver,
    /// Otherwise the pipe would end with its first writer.
    _sender: pipe::Sender,
    directory: PathBuf,
}

impl Drop for CallPipe {
    fn drop(&mut self) {
        // The next run replaces it anyway.
        std::fs::remove_file(self.directory.join(CALLS)).ok();
    }
}

impl Calls {
    /// Creates the pipe in a directory, and replaces that of an earlier run.
    ///
    /// # Errors
    ///
    /// The pipe cannot be created.
    pub(super) fn listen(directory: &Path) -> io::Result<Self> {
        let path = directory.join(CALLS);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let receiver = pipe::OpenOptions::new().open_receiver(&path)?;
        let sender = pipe::OpenOptions::new().open_sender(&path)?;
        let directory = directory.to_owned();
        Ok(Self::of(Some(CallPipe {
            receiver,
            _sender: sender,
            directory,
        })))
    }

    /// Receives no calls.
    pub(super) fn none() -> Self {
        Self::of(None)
    }

    fn of(pipe: Option<CallPipe>) -> Self {
        Self {
            pipe,
            lines: OutputLineSplitter::new(MCP_LINE_BYTES_MAX),
            unreported: VecDeque::new(),
            waiting: BTreeMap::new(),
            last: 0,
        }
    }

    /// Waits for the next call. Cancel-safe.
    pub(super) async fn next(&mut self) -> SupervisorReport {
        loop {
            if self.waiting.len() >= CALLS_AT_ONCE_MAX {
                // An answer makes room, after which this is called again.
                return std::future::pending().await;
            }
            if let Some(line) = self.unreported.pop_front() {
                if let Some(report) = self.report(&line) {
                    return report;
                }
                continue;
            }
            let Some(pipe) = &mut self.pipe else {
                return std::future::pending().await;
            };
            let mut bytes = BytesMut::with_capacity(READ_BYTES);
            if pipe.receiver.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                self.pipe = None;
            }
            let unreported = &mut self.unreported;
            self.lines.push(&bytes, |line| {
                // Longer lines are no calls of the server.
                if let OutputLine::Whole(line) = line {
                    unreported.extend(String::from_utf8(line.to_vec()));
                }
            });
        }
    }

    /// The report of a line; `None` if it is not a call of the server.
    fn report(&mut self, line: &str) -> Option<SupervisorReport> {
        let (name, request) = line.split_once(' ')?;
        let is_name = |c: char| c.is_ascii_digit() || c == '-';
        if name.is_empty() || !name.chars().all(is_name) {
            return None;
        }
        let directory = &self.pipe.as_ref()?.directory;
        let answer = directory.join(format!("{ANSWER_PREFIX}{name}"));
        self.last += 1;
        self.waiting.insert(self.last, answer);
        Some(SupervisorReport::Call {
            call: self.last,
            request: request.to_owned(),
        })
    }

    /// Answers a call. The caller may be gone.
    pub(super) fn answer(&mut self, call: u64, answer: &str) {
        let Some(path) = self.waiting.remove(&call) else {
            return;
        };
        // A pipe without a reader cannot be opened, and an answer fits any pipe that is read.
        let pipe = OpenOptions::new()
            .write(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(path);
        if let Ok(mut pipe) = pipe {
            pipe.write_all(format!("{answer}\n").as_bytes()).ok();
        }
    }
}
