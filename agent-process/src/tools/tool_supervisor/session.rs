//! Supervises a shell that runs one command after another and keeps its state between them.
//!
//! Commands and exit codes use a dedicated socket, never the shell's output, so no printed text can
//! look like the end of a command. Each record ends with a zero byte, which neither commands nor
//! numbers contain.
//!
//! * agent → supervisor: a command, or only the zero byte, which interrupts the running command.
//! * supervisor → agent: the exit code of an ended command, in decimal digits.
//!
//! To interrupt a command, the supervisor sends the shell `SIGURG`, whose trap leaves the command
//! like `return` does, and kills the processes that the command has started, so that the shell gets
//! to handle the signal. A shell inside a function cannot leave the entire command and exits
//! instead, because continuing after the function would run the rest of the command unexpectedly.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::Command;

use super::super::orphan_reaper;
use super::termination::{code_at_end, end_group};

pub(in super::super) const RECORD_END: u8 = 0;

/// Reads commands from its standard input, a socket, and writes their exit codes to it. Commands do
/// not inherit the socket. Their standard input is empty.
const DRIVER: &str = r#"
exec 3<&0 0</dev/null
trap 'if [[ ${#BASH_SOURCE[@]} -eq 1 ]]; then return 130; elif [[ ${#BASH_SOURCE[@]} -gt 1 ]]; then exit 130; fi' URG
while IFS= builtin read -r -d '' -u 3 __goondan_command; do
  builtin . /dev/fd/5 5<<<"$__goondan_command" 3<&-
  builtin printf '%s\0' "$?" >&3
done"#;

/// Time between two scans for processes that an interrupted command has started.
const INTERRUPT_PAUSE: Duration = Duration::from_millis(20);
/// Bytes per read.
const CHUNK_BYTES: usize = 16 * 1024;

/// Runs the shell until it ends, or the agent closes the socket.
pub(super) async fn supervise() -> std::io::Result<u8> {
    let mut agent = socket_of(std::io::stdin().as_fd().try_clone_to_owned()?)?;
    let (own_end, shells_end) = std::os::unix::net::UnixStream::pair()?;
    let mut shell_socket = socket_of(own_end.into())?;
    let mut bash = Command::new("bash")
        .args(["--noprofile", "--norc", "-c", DRIVER, "bash"])
        .stdin(Stdio::from(OwnedFd::from(shells_end)))
        .process_group(0)
        .spawn()?;
    let group = bash.id();
    let shell = group
        .and_then(|pid| i32::try_from(pid).ok())
        .map(Pid::from_raw);
    let mut session = SupervisedShell {
        shell,
        is_at_record_start: true,
        before: BTreeSet::new(),
        is_interrupting: false,
    };
    let (mut command, mut code) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut look = tokio::time::interval(INTERRUPT_PAUSE);
    let status = loop {
        tokio::select! {
            status = bash.wait() => break Some(status?),
            count = agent.read(&mut command) => {
                let chunk = command.get(..count.unwrap_or(0)).unwrap_or_default();
                if chunk.is_empty() {
                    break None;
                }
                let passed = session.take(chunk);
                // The end of the shell is detected on its own.
                drop(shell_socket.write_all(&passed).await);
            }
            count = shell_socket.read(&mut code) => {
                let chunk = code.get(..count.unwrap_or(0)).unwrap_or_default();
                if chunk.is_empty() {
                    break Some(bash.wait().await?);
                }
                session.is_interrupting = false;
                if agent.write_all(chunk).await.is_err() {
                    break None;
                }
            }
            _ = look.tick(), if session.is_interrupting => session.end_what_was_started(),
        }
    };
    end_group(group);
    Ok(code_at_end(status))
}

fn socket_of(fd: OwnedFd) -> std::io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(fd);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

struct SupervisedShell {
    shell: Option<Pid>,
    /// True if the next byte from the agent starts a record.
    is_at_record_start: bool,
    /// Processes that the shell had started before the running command: background jobs.
    before: BTreeSet<Pid>,
    is_interrupting: bool,
}

impl SupervisedShell {
    /// Handles bytes from the agent and returns those for the shell.
    fn take(&mut self, chunk: &[u8]) -> Vec<u8> {
        let mut passed = Vec::with_capacity(chunk.len());
        for byte in chunk {
            match (*byte == RECORD_END, self.is_at_record_start) {
                (true, true) => self.interrupt(),
                (true, false) => {
                    self.is_at_record_start = true;
                    passed.push(*byte);
                }
                (false, is_start) => {
                    if is_start {
                        orphan_reaper::reap_all_but(self.shell);
                        self.before = self.started().into_iter().collect();
                        self.is_interrupting = false;
                    }
                    self.is_at_record_start = false;
                    passed.push(*byte);
                }
            }
        }
        passed
    }

    /// Descendants of the shell, orphans included.
    fn started(&self) -> Vec<Pid> {
        let mut found = orphan_reaper::all_beneath(Pid::this(), &[]);
        found.retain(|pid| Some(*pid) != self.shell);
        found
    }

    fn interrupt(&mut self) {
        if let Some(shell) = self.shell {
            // The end of the shell is detected on its own.
            kill(shell, Signal::SIGURG).ok();
        }
        self.is_interrupting = true;
    }

    fn end_what_was_started(&self) {
        for pid in self.started() {
            if !self.before.contains(&pid) {
                // It may have ended since it was listed.
                kill(pid, Signal::SIGKILL).ok();
            }
        }
        orphan_reaper::reap_all_but(self.shell);
    }
}
