//! How programs in a network namespace of their own reach the egress (`SEC-3`).
//!
//! The process that makes the namespaces listens on their loopback, and hands each connection that a program makes to
//! the egress: the descriptor itself, over a Unix socket. So no byte of it passes through here, and this process
//! knows nothing of what is said. Programs cannot reach the Unix socket: they can make none.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::PROXY_PORT;
use crate::namespaces::{NamespaceError, raise_loopback};

/// How long a connection waits for an egress that is just being started, in milliseconds.
const EGRESS_WAIT_MS: u64 = 10_000;

/// Time between two looks whether it is there, in milliseconds; also the pause when there are no descriptors left.
const RETRY_MS: u64 = 20;

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
    /// Hands connections over as long as this process lives.
    ///
    /// # Errors
    ///
    /// If there can be no thread.
    pub(crate) fn serve(self) -> io::Result<()> {
        let serve = move || {
            loop {
                match self.listener.accept() {
                    // One that cannot be handed over is closed; the egress says why in its log.
                    Ok((program, _)) => drop(hand_over(&program, &self.socket)),
                    Err(_) => thread::sleep(Duration::from_millis(RETRY_MS)),
                }
            }
        };
        thread::Builder::new()
            .name("way-out".to_owned())
            .spawn(serve)?;
        Ok(())
    }
}

fn hand_over(program: &TcpStream, egress: &Path) -> io::Result<()> {
    let way = connect(egress)?;
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let fds = [program.as_fd()];
    if !rights.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    sendmsg(
        &way,
        &[IoSlice::new(&[0])],
        &mut rights,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Connects to the egress; one that is started just now, or again after a crash, is waited for.
fn connect(egress: &Path) -> io::Result<UnixStream> {
    let deadline = Instant::now() + Duration::from_millis(EGRESS_WAIT_MS);
    loop {
        match UnixStream::connect(egress) {
            Ok(way) => return Ok(way),
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(RETRY_MS)),
        }
    }
}
