//! How programs in a network namespace of their own reach the egress (`SEC-3`).
//!
//! The process that makes the namespaces listens on their loopback, and hands each connection that a program makes to
//! the egress: the descriptor itself, over a Unix socket. So no byte of it passes through here, and this process
//! knows nothing of what is said. Programs cannot reach the Unix socket: it is in no directory that they see.

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

/// How long a connection waits for an egress that is just being started, in milliseconds.
const EGRESS_WAIT_MS: u64 = 10_000;

/// Time between two looks whether it is there, in milliseconds; also the pause when there are no descriptors left.
const RETRY_MS: i64 = 20;

/// The way from the sandbox to the egress.
#[derive(Debug)]
pub(crate) struct WayOut {
    /// The socket of the egress, from the working directory: the process keeps that when the root is replaced.
    socket: PathBuf,
    /// Where programs within begin.
    within: PathBuf,
}

impl WayOut {
    /// Goes to the directory of the egress, from which its socket is found whatever becomes of the root.
    ///
    /// # Errors
    ///
    /// If there is no such directory.
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

    /// The directory in which the first process of the sandbox begins.
    pub(crate) fn directory_within(&self) -> &Path {
        &self.within
    }

    /// Listens in the network namespace that this process is in by now.
    ///
    /// # Errors
    ///
    /// If there can be no loopback or no socket.
    pub(crate) fn listen(self) -> Result<Listening, NamespaceError> {
        raise_loopback()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT))
            .map_err(|error| NamespaceError::new("the proxy cannot listen", error))?;
        let socket = self.socket;
        Ok(Listening { listener, socket })
    }
}

/// The way out, open to programs as soon as somebody serves it.
#[derive(Debug)]
pub(crate) struct Listening {
    listener: TcpListener,
    socket: PathBuf,
}

impl Listening {
    /// Hands connections over until the first process of the sandbox has ended, and tells how that was. There is no
    /// other thread for it: a process that has made a PID namespace can have none.
    ///
    /// # Errors
    ///
    /// If the process cannot be waited for.
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
                // One that cannot be handed over is closed: whoever made it sees that.
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
        return Err(io::Error::other("no room for a descriptor"));
    }
    let byte = [IoSlice::new(&[0])];
    sendmsg(&way, &byte, &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Connects to the egress; one that is started just now, or again after a crash, is waited for as long as there is a
/// sandbox.
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

/// Waits a moment, and tells whether the sandbox has ended.
fn pause(end: &OwnedFd) -> io::Result<bool> {
    let time_limit = Timespec {
        tv_sec: 0,
        tv_nsec: RETRY_MS * 1_000_000,
    };
    let mut end = [PollFd::new(end, PollFlags::IN)];
    Ok(poll(&mut end, Some(&time_limit))? > 0)
}
