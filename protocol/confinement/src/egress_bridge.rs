//! Connection of programs in a network namespace to the egress (`SEC-3`).
//!
//! The process that created the namespaces listens on their loopback. It passes the descriptor of
//! each connection from a program to the egress over a Unix socket, so no data passes through this
//! process. Programs cannot reach the Unix socket because it is in no directory they see.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::PROXY_PORT;
use crate::namespaces::{NamespaceError, raise_loopback};

/// Longest wait for an egress that is being started, in milliseconds.
const EGRESS_WAIT_MS: u64 = 10_000;

/// Interval between connection attempts, in milliseconds; also the pause when no descriptors are
/// available.
const RETRY_MS: i64 = 20;

/// Connection from the sandbox to the egress.
#[derive(Debug)]
pub(crate) struct EgressBridge {
    /// The socket of the egress, relative to the working directory, which the process keeps when
    /// the root is replaced.
    socket: PathBuf,
    /// Working directory of the programs inside.
    within: PathBuf,
}

impl EgressBridge {
    /// Changes to the directory of the egress, so that its socket can be found after the root is
    /// replaced.
    ///
    /// # Errors
    ///
    /// The directory does not exist.
    pub(crate) fn find(egress: &Path) -> io::Result<Self> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("`{}`: {error}", egress.display()))
        };
        let within = std::env::current_dir()?;
        let directory = egress.parent().unwrap_or(egress);
        std::env::set_current_dir(directory).map_err(named)?;
        let socket = egress.file_name().unwrap_or_default().into();
        Ok(Self { socket, within })
    }

    /// The directory in which the first process of the sandbox starts.
    pub(crate) fn directory_within(&self) -> &Path {
        &self.within
    }

    /// Listens in the current network namespace.
    ///
    /// # Errors
    ///
    /// The loopback or the socket cannot be created.
    pub(crate) fn listen(self) -> Result<EgressListener, NamespaceError> {
        raise_loopback()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT))
            .map_err(|error| NamespaceError::new("the proxy failed to listen", error))?;
        let socket = self.socket;
        Ok(EgressListener { listener, socket })
    }
}

/// Listening sockets, which accept connections of programs once they are served.
#[derive(Debug)]
pub(crate) struct EgressListener {
    listener: TcpListener,
    socket: PathBuf,
}

impl EgressListener {
    /// Passes connections to the egress until the first process of the sandbox has ended, and
    /// returns its exit status. This runs in the main thread because a process that created a PID
    /// namespace cannot create threads.
    ///
    /// # Errors
    ///
    /// The process cannot be waited for.
    pub(crate) fn serve_until_end(self, first: &mut Child) -> io::Result<ExitStatus> {
        let end = pidfd_open(Pid::from_child(first), PidfdFlags::empty())?;
        self.listener.set_nonblocking(true)?;
        loop {
            let is_over = {
                let program = PollFd::new(&self.listener, PollFlags::IN);
                let mut either = [PollFd::new(&end, PollFlags::IN), program];
                match poll(&mut either, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
                let [end, _] = either;
                !end.revents().is_empty()
            };
            if is_over {
                return first.wait();
            }
            match self.listener.accept() {
                // If the handover fails, the connection is closed, which the program notices.
                Ok((program, _)) => drop(hand_over(&program, &self.socket, &end)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => drop(pause(&end)),
            }
        }
    }
}

fn hand_over(program: &TcpStream, egress: &Path, end: &OwnedFd) -> io::Result<()> {
    let way = connect(egress, end)?;
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let fds = [program.as_fd()];
    if !rights.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("no free file descriptor"));
    }
    let byte = [IoSlice::new(&[0])];
    sendmsg(&way, &byte, &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Connects to the egress. While the egress starts or restarts, retries as long as the sandbox
/// exists.
fn connect(egress: &Path, end: &OwnedFd) -> io::Result<UnixStream> {
    let deadline = Instant::now() + Duration::from_millis(EGRESS_WAIT_MS);
    loop {
        match UnixStream::connect(egress) {
            Ok(way) => return Ok(way),
            Err(error) if Instant::now() >= deadline || pause(end)? => return Err(error),
            Err(_) => {}
        }
    }
}

/// Sleeps briefly, and returns true if the sandbox has ended.
fn pause(end: &OwnedFd) -> io::Result<bool> {
    let time_limit = Timespec {
        tv_sec: 0,
        tv_nsec: RETRY_MS * 1_000_000,
    };
    let mut end = [PollFd::new(end, PollFlags::IN)];
    Ok(poll(&mut end, Some(&time_limit))? > 0)
}
