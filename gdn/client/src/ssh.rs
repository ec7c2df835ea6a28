//! A connection through `ssh` to `gdn daemon dial-stdio` on another machine (`REP-2`).
//!
//! OpenSSH encrypts and authenticates. `ssh` never asks: its stdin carries frames, and the terminal belongs to the
//! command.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

use crate::remote::Remote;

/// The command on the other machine.
const DIAL: &str = "--json daemon dial-stdio";

/// Options of `ssh`. It asks no questions, forwards nothing, and notices a dead network within 45 s.
const OPTIONS: [&str; 9] = [
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
];

/// Time that the shared connection to a machine stays open after its last use, in seconds.
const PERSIST_S: u64 = 60;

/// Maximum length of the directory of shared connections, in bytes: the path of a Unix socket has at most 103 bytes,
/// and `ssh` adds its own name and a temporary suffix.
const CONTROL_DIR_MAX: usize = 40;

/// Maximum size of the kept end of ssh's stderr, in bytes.
const STDERR_MAX_BYTES: usize = 16 * 1024;

/// Time from the end of the stream until ssh exits, in milliseconds.
const EXIT_MS: u64 = 5_000;

/// Time to read the rest of stderr after ssh has exited, in milliseconds. A shared connection may hold it open.
const STDERR_MS: u64 = 300;

/// Exit status of `ssh` for its own errors.
const SSH_FAILED: i32 = 255;

/// Exit status of a shell that does not find a command.
const NOT_FOUND: i32 = 127;

/// Exit status of `gdn` for an unknown command.
const USAGE: i32 = 2;

/// Reason why the daemon of another machine cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum RemoteProblem {
    #[error("cannot run `ssh`")]
    NoSsh(#[source] io::Error),
    /// The key of the machine is unknown, or differs from the known one.
    #[error("its host key is not accepted: {0}")]
    HostKey(String),
    #[error("it refused the login: {0}")]
    Login(String),
    #[error("no connection to the machine: {0}")]
    Network(String),
    #[error("its shell does not find the program `gdn`: {0}")]
    NoProgram(String),
    /// It does not have the command of this module.
    #[error("gdn there is older: {0}")]
    OldProgram(String),
    /// The error of `gdn` there.
    #[error("{message}")]
    Refused {
        /// Name of its exit code.
        code: String,
        message: String,
        hint: String,
    },
    /// Text arrived instead of frames.
    #[error("its shell prints text at the start of a connection")]
    Noise,
    #[error(transparent)]
    Other(SshEnded),
}

/// The end of `ssh`.
#[derive(Debug, Clone, thiserror::Error)]
#[error("ssh ended{}: {}", status.map_or_else(String::new, |status| format!(" with status {status}")), self.words())]
pub struct SshEnded {
    /// None if a signal ended it, or if it still runs.
    status: Option<i32>,
    stderr: String,
}

/// Fields of an error of `gdn --json`.
#[derive(Deserialize)]
struct GdnError {
    code: String,
    message: String,
    #[serde(default)]
    causes: Vec<String>,
    #[serde(default)]
    hint: String,
}

impl SshEnded {
    /// The end of ssh, if that is the reason for an error of the stream.
    pub(crate) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// The last line of stderr, without the frame of a warning.
    fn words(&self) -> &str {
        let lines = self.stderr.lines().map(str::trim);
        let is_text = |line: &&str| line.chars().any(char::is_alphanumeric);
        lines.rev().find(is_text).unwrap_or("no error output")
    }

    /// Finds the reason in the status and the words of OpenSSH, which are in English in every locale.
    pub(crate) fn problem(&self) -> RemoteProblem {
        let has = |words: &[&str]| words.iter().any(|words| self.stderr.contains(words));
        let words = || self.words().to_owned();
        if let Some(error) = self.error_of_gdn() {
            let message = [error.message].into_iter().chain(error.causes);
            return match error.code.as_str() {
                "usage" => RemoteProblem::OldProgram(words()),
                _ => RemoteProblem::Refused {
                    code: error.code,
                    message: message.collect::<Vec<_>>().join(": "),
                    hint: error.hint,
                },
            };
        }
        match self.status {
            Some(SSH_FAILED) if has(&["Host key verification failed", "host key is known"]) => {
                RemoteProblem::HostKey(words())
            }
            Some(SSH_FAILED) if has(&["Permission denied", "Too many authentication failures"]) => {
                RemoteProblem::Login(words())
            }
            Some(SSH_FAILED)
                if has(&[
                    "Could not resolve hostname",
                    "connect to host",
                    "Connection closed by",
                    "Connection reset by",
                    "Connection timed out",
                    "kex_exchange_identification",
                    "banner exchange",
                ]) =>
            {
                RemoteProblem::Network(words())
            }
            Some(NOT_FOUND) => RemoteProblem::NoProgram(words()),
            Some(USAGE) => RemoteProblem::OldProgram(words()),
            _ => RemoteProblem::Other(self.clone()),
        }
    }

    /// The error that `gdn` on the other machine printed.
    fn error_of_gdn(&self) -> Option<GdnError> {
        let mut lines = self.stderr.lines().rev();
        lines.find_map(|line| serde_json::from_str(line.trim()).ok())
    }
}

/// The stdin and stdout of an `ssh` process.
#[derive(Debug)]
pub(crate) struct SshStream {
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// Waits for the end of ssh, which it kills if it is dropped.
    ending: JoinSet<SshEnded>,
    /// Set at the end of stdout: the time limit for ssh to exit.
    exit_by: Option<Pin<Box<Sleep>>>,
    ended: Option<SshEnded>,
}

/// Starts `ssh`. Errors of the connection appear at its end.
pub(crate) fn open(remote: &Remote) -> Result<SshStream, RemoteProblem> {
    let lacks_pipe = || RemoteProblem::NoSsh(io::Error::other("no pipe to its process"));
    let mut child = Command::new("ssh")
        .args(arguments(remote, control_dir().as_deref()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C in the terminal is for the command, which still needs the connection.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(RemoteProblem::NoSsh)?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(lacks_pipe());
    };
    let mut ending = JoinSet::new();
    ending.spawn(end_of(child, stderr));
    Ok(SshStream {
        stdin,
        stdout,
        ending,
        exit_by: None,
        ended: None,
    })
}

/// The command line of `ssh`.
fn arguments(remote: &Remote, control_dir: Option<&Path>) -> Vec<OsString> {
    let mut args = vec![OsString::from("-T")];
    for option in OPTIONS {
        args.extend(["-o", option].map(OsString::from));
    }
    if let Some(dir) = control_dir {
        let mut path = OsString::from("ControlPath=");
        path.push(dir.join("%C"));
        let persist = format!("ControlPersist={PERSIST_S}");
        args.extend(["-o", "ControlMaster=auto", "-o", &persist, "-o"].map(OsString::from));
        args.push(path);
    }
    args.extend(remote.destination().into_iter().map(OsString::from));
    args.push(remote.gdn(DIAL).into());
    args
}

/// Private directory of shared connections, which make later ones fast. None if no path is suitable: then each
/// connection authenticates.
fn control_dir() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let dir = std::env::var_os(name).map(PathBuf::from);
        dir.filter(|dir| dir.is_absolute())
    };
    let cache = || {
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        absolute("XDG_CACHE_HOME").or_else(|| Some(home?.join(".cache")))
    };
    let dir = absolute("XDG_RUNTIME_DIR")
        .or_else(cache)?
        .join("goondan-ssh");
    // `ssh` expands `%` and splits at spaces.
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-+@".contains(char);
    let text = dir.to_str()?;
    if text.len() > CONTROL_DIR_MAX || !text.chars().all(is_plain) {
        return None;
    }
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir);
    let found = made.and_then(|()| std::fs::symlink_metadata(&dir)).ok()?;
    let is_ours = found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw();
    (is_ours && found.mode() & 0o077 == 0).then_some(dir)
}

/// Waits until ssh exits. Reads its stderr meanwhile, because a full pipe would stop it.
async fn end_of(mut child: Child, mut stderr: ChildStderr) -> SshEnded {
    let mut kept = Vec::new();
    let status = tokio::select! {
        status = child.wait() => Some(status),
        () = read_end(&mut stderr, &mut kept) => None,
    };
    let status = match status {
        Some(status) => {
            let rest = read_end(&mut stderr, &mut kept);
            // A partial text is better than none.
            drop(timeout(Duration::from_millis(STDERR_MS), rest).await);
            status
        }
        None => child.wait().await,
    };
    SshEnded {
        status: status.ok().and_then(|status| status.code()),
        stderr: String::from_utf8_lossy(&kept).into_owned(),
    }
}

/// Reads a stream to its end, and keeps its last bytes.
async fn read_end(stderr: &mut ChildStderr, kept: &mut Vec<u8>) {
    let mut chunk = [0; 1024];
    while let Ok(len @ 1..) = stderr.read(&mut chunk).await {
        kept.extend_from_slice(chunk.get(..len).unwrap_or_default());
        let excess = kept.len().saturating_sub(STDERR_MAX_BYTES);
        kept.drain(..excess);
    }
}

impl SshStream {
    /// Waits for the end of ssh after the end of its stdout.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<SshEnded> {
        if let Some(ended) = &self.ended {
            return Poll::Ready(ended.clone());
        }
        let unknown = || SshEnded {
            status: None,
            stderr: String::new(),
        };
        let limit = Duration::from_millis(EXIT_MS);
        let exit_by = self.exit_by.get_or_insert_with(|| Box::pin(sleep(limit)));
        let ended = match self.ending.poll_join_next(cx) {
            Poll::Ready(ended) => ended.and_then(Result::ok).unwrap_or_else(unknown),
            Poll::Pending => {
                ready!(exit_by.as_mut().poll(cx));
                unknown()
            }
        };
        Poll::Ready(self.ended.insert(ended).clone())
    }
}

impl AsyncRead for SshStream {
    /// Reads frames. The end is an error with the reason, unless the daemon closed the connection.
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.exit_by.is_none() {
            let before = buf.filled().len();
            ready!(Pin::new(&mut this.stdout).poll_read(cx, buf))?;
            if buf.filled().len() > before || buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        let ended = ready!(this.poll_end(cx));
        match ended.status {
            Some(0) => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err(io::Error::new(ErrorKind::ConnectionAborted, ended))),
        }
    }
}

impl AsyncWrite for SshStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stdin).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stdin).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stdin).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: i32, stderr: &str) -> RemoteProblem {
        let stderr = stderr.to_owned();
        let status = Some(status);
        SshEnded { status, stderr }.problem()
    }

    #[test]
    fn rep_2_end_of_ssh_has_a_reason() {
        use RemoteProblem::{HostKey, Login, Network, NoProgram, OldProgram, Other, Refused};
        let unknown = "No ED25519 host key is known for desk and you have requested strict checking.\r\n\
                       Host key verification failed.\r\n";
        assert!(
            matches!(ended(255, unknown), HostKey(told) if told == "Host key verification failed.")
        );
        let denied = "ada@desk: Permission denied (publickey).\r\n";
        assert!(matches!(ended(255, denied), Login(told) if told.starts_with("ada@desk")));
        let refused = "ssh: connect to host 127.0.0.1 port 1: Connection refused\r\n";
        assert!(matches!(ended(255, refused), Network(told) if told.contains("port 1")));
        let shell = "bash: line 1: gdn: command not found\n";
        assert!(matches!(ended(127, shell), NoProgram(told) if told.contains("gdn")));
        assert!(matches!(
            ended(2, "error: unrecognized subcommand"),
            OldProgram(_)
        ));
        assert!(matches!(ended(1, ""), Other(end) if end.to_string().contains("no error output")));
        // The reason of gdn counts more than the words around it.
        let daemon = "Permission denied in .bashrc\n\
            {\"code\":\"daemonNotRunning\",\"message\":\"no daemon runs\",\"causes\":[\"why\"],\"hint\":\"h\"}\n";
        let Refused { code, message, .. } = ended(3, daemon) else {
            panic!("expected the error of gdn");
        };
        assert_eq!(
            (code.as_str(), message.as_str()),
            ("daemonNotRunning", "no daemon runs: why")
        );
    }

    #[test]
    fn rep_2_ssh_gets_no_option_from_an_address() {
        let remote: Remote = "ssh://ada@desk:2222/srv".parse().unwrap();
        let args = arguments(&remote, Some(Path::new("/run/user/1/goondan-ssh")));
        let args: Vec<&str> = args.iter().map(|arg| arg.to_str().unwrap()).collect();
        assert!(args.contains(&"BatchMode=yes"));
        assert!(args.contains(&"ControlPath=/run/user/1/goondan-ssh/%C"));
        let last = args.len() - 7;
        let command = "gdn --state-root /srv --json daemon dial-stdio";
        assert_eq!(
            args[last..],
            ["-p", "2222", "-l", "ada", "--", "desk", command]
        );
        assert!(!arguments(&remote, None).contains(&OsString::from("ControlMaster=auto")));
    }
}
