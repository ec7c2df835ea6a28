//! The server of goondan's tools for the program of a task (`AGENT-2`). The program starts it, and
//! uses the Model Context Protocol.
//!
//! It runs in the program's sandbox, and has no rights beyond the program's.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use goondan_cli_agents::limits::MCP_LINE_BYTES_MAX;
use goondan_cli_agents::lines::{OutputLine, OutputLineSplitter};
use goondan_cli_agents::mcp::{self, Outcome, Request, Server};
use goondan_cli_agents::tools::{Call, Tool};
use goondan_protocol::version::Version;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::tool_calls;
use crate::tools::tool_supervisor::task::calls::{ANSWER_BYTES_MAX, ANSWER_PREFIX, CALLS};

/// Time that goondan has to answer a call.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes per read of the input.
const CHUNK_BYTES: usize = 16 << 10;

/// File of a proposal with its summary.
const SUMMARY: &str = "summary.md";

/// Serves a program until its input ends. `directory` has the pipes, `proposal` is the directory
/// for the files of the proposal, if the task has one.
///
/// # Errors
///
/// The input or output fails.
pub(crate) fn serve(directory: &Path, proposal: Option<&Path>) -> io::Result<()> {
    let offered = |tool: &Tool| *tool != Tool::SubmitProposal || proposal.is_some();
    let tools = Tool::ALL.into_iter().filter(offered).collect();
    let server = Server::new(tools, Version::current().to_string());
    let mut lines = OutputLineSplitter::new(MCP_LINE_BYTES_MAX);
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    loop {
        let count = input.read(&mut chunk)?;
        let mut written = Ok(());
        let mut take = |line: OutputLine<'_>| {
            let line = match line {
                OutputLine::Whole(line) => Some(line),
                OutputLine::Cut(..) => None,
            };
            let reply = match server.line(line) {
                Outcome::Nothing => return,
                Outcome::Reply(reply) => reply,
                Outcome::Call(request) => {
                    let id = request.id.clone();
                    mcp::answer(&id, &call(request, directory, proposal))
                }
            };
            if written.is_ok() {
                written = writeln!(output, "{reply}").and_then(|()| output.flush());
            }
        };
        match chunk.get(..count).filter(|read| !read.is_empty()) {
            Some(read) => lines.push(read, take),
            None => lines.end(&mut take),
        }
        written?;
        if count == 0 {
            return Ok(());
        }
    }
}

/// Runs a call. An error is for the agent.
fn call(request: Request, directory: &Path, proposal: Option<&Path>) -> Result<String, String> {
    let tool = request.tool;
    match (tool.read(&request.arguments)?, proposal) {
        (Call::Summary(summary), Some(proposal)) => store_summary(proposal, &summary)
            .map(|()| tool.acknowledgement().to_owned())
            .map_err(|error| {
                let at = proposal.join(SUMMARY);
                format!("failed to write `{}`: {error}", at.display())
            }),
        (Call::Summary(_) | Call::Events(_), _) => {
            forward(request, directory).unwrap_or_else(|error| {
                let instead = tool.instead();
                Err(format!("goondan cannot be reached: {error}; {instead}"))
            })
        }
    }
}

fn store_summary(proposal: &Path, summary: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(proposal.join(SUMMARY))?;
    file.write_all(format!("{summary}\n").as_bytes())
}

/// Pipe for the answer to a call, removed when the call is over.
struct AnswerPipe {
    path: PathBuf,
    /// Part of the name that the call contains.
    name: String,
    /// Open for both before the call is sent: a pipe without a reader cannot be opened for the
    /// answer, and one without a writer would have ended already.
    pipe: File,
}

impl AnswerPipe {
    fn create(directory: &Path) -> io::Result<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let path = directory.join(format!("{ANSWER_PREFIX}{name}"));
        // One of an earlier process with the same number.
        std::fs::remove_file(&path).ok();
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let pipe = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(Self { path, name, pipe })
    }

    /// Waits for the answer. It arrives in one piece.
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut pipe = self.pipe.try_clone()?;
        let (sender, receiver) = mpsc::channel();
        // The thread ends with the process if no answer arrives.
        std::thread::spawn(move || {
            let mut answer = vec![0; ANSWER_BYTES_MAX];
            let read = pipe.read(&mut answer).map(|count| {
                answer.truncate(count);
                answer
            });
            drop(sender.send(read));
        });
        let read = receiver.recv_timeout(ANSWER_TIMEOUT);
        read.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Drop for AnswerPipe {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).ok();
    }
}

/// Forwards a call to the process of the run, and returns its answer.
fn forward(request: Request, directory: &Path) -> io::Result<Result<String, String>> {
    let line = tool_calls::request(request.tool, request.arguments)?;
    let calls = directory.join(CALLS);
    let open = |flags: OFlag| {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(flags.bits()).open(&calls)
    };
    // Fails if no supervisor reads, instead of waiting for one.
    let reached = open(OFlag::O_NONBLOCK)?;
    let mut calls = open(OFlag::empty())?;
    drop(reached);
    let answer = AnswerPipe::create(directory)?;
    // Another server of the same program may write, too.
    calls.lock()?;
    calls.write_all(format!("{} {line}\n", answer.name).as_bytes())?;
    calls.unlock()?;
    let answered = String::from_utf8_lossy(&answer.read()?).into_owned();
    tool_calls::answer(&answered).ok_or_else(|| io::Error::other("the answer is invalid"))
}
