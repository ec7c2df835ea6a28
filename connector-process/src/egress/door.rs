//! The socket of an allow list, and the connections passed over it.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::sync::Arc;
use std::time::Duration;

use goondan_clock::{sleep, timeout};
use goondan_protocol::egress::EgressDoor;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::activity::ActivityStream;
use super::rules::EgressRules;
use super::{http_proxy, socks};
use crate::limits::{
    ACCEPT_RETRY_MS, EGRESS_CONNECTIONS_MAX, EGRESS_HANDOVER_TIMEOUT_MS, EGRESS_IDLE_TIMEOUT_MS,
    HEADER_READ_TIMEOUT_MS,
};

/// The socket of an allow list.
#[derive(Debug)]
pub(super) struct ProxySocket {
    listener: StdUnixListener,
    rules: Arc<EgressRules>,
}

impl ProxySocket {
    /// Creates the socket and replaces one left by an egress that has ended.
    pub(super) fn open(door: &EgressDoor) -> io::Result<Self> {
        if let Err(error) = std::fs::remove_file(&door.socket)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let listener = StdUnixListener::bind(&door.socket)?;
        // Its directory is accessible only to the user even before this.
        std::fs::set_permissions(&door.socket, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            rules: Arc::new(EgressRules::new(door.list.clone())),
        })
    }

    /// The allow list and its caller.
    pub(super) fn list(&self) -> &EgressRules {
        &self.rules
    }

    /// Accepts connections until it is dropped, which ends all connections.
    pub(super) async fn serve(self: Arc<Self>) {
        let listener = self.listener.try_clone().and_then(UnixListener::from_std);
        let listener = match listener {
            Ok(listener) => listener,
            Err(error) => {
                return tracing::error!(%error, "failed to listen for connections of sandboxes");
            }
        };
        let places = Arc::new(Semaphore::new(EGRESS_CONNECTIONS_MAX));
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let handed_in = match listener.accept().await {
                Ok((handed_in, _)) => handed_in,
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection of a sandbox");
                    sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
                    continue;
                }
            };
            if !is_of_this_user(&handed_in) {
                self.rules.tell_refused("the peer belongs to another user");
                continue;
            }
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                let why = format_args!("{EGRESS_CONNECTIONS_MAX} connections are already open");
                self.rules.tell_refused(why);
                continue;
            };
            let rules = Arc::clone(&self.rules);
            connections.spawn(async move {
                if let Err(error) = lead_out(handed_in, rules).await {
                    tracing::debug!(%error, "a connection of a sandbox ended");
                }
                drop(place);
            });
        }
    }
}

fn is_of_this_user(peer: &UnixStream) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    peer.peer_cred().is_ok_and(|peer| peer.uid() == own)
}

/// Takes over a connection and serves the program until it is idle for too long.
async fn lead_out(handed_in: UnixStream, rules: Arc<EgressRules>) -> io::Result<()> {
    let time_limit = Duration::from_millis(EGRESS_HANDOVER_TIMEOUT_MS);
    let program = timeout(time_limit, take_over(&handed_in))
        .await
        .map_err(|_elapsed| io::ErrorKind::TimedOut)??;
    drop(handed_in);
    let mut first = [0];
    let time_limit = Duration::from_millis(HEADER_READ_TIMEOUT_MS);
    let count = timeout(time_limit, program.peek(&mut first))
        .await
        .map_err(|_elapsed| io::ErrorKind::TimedOut)??;
    if count == 0 {
        return Ok(());
    }
    let (program, activity) = ActivityStream::new(program);
    let led = async {
        match first {
            [socks::VERSION] => socks::serve(program, &rules).await,
            _ => http_proxy::serve(program, rules).await,
        }
    };
    tokio::select! {
        result = led => result,
        () = activity.ends(Duration::from_millis(EGRESS_IDLE_TIMEOUT_MS)) => Ok(()),
    }
}

/// Receives the descriptor of a program's connection.
async fn take_over(handed_in: &UnixStream) -> io::Result<TcpStream> {
    let received = handed_in
        .async_io(Interest::READABLE, || receive(handed_in))
        .await?;
    let program = StdTcpStream::from(received);
    program.set_nonblocking(true)?;
    // Fails if the descriptor is not a connection.
    program.peer_addr()?;
    TcpStream::from_std(program)
}

fn receive(handed_in: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(
        handed_in,
        &mut [io::IoSliceMut::new(&mut byte)],
        &mut rights,
        RecvFlags::empty(),
    )?;
    let mut received = rights.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let received = received.next().and_then(|mut fds| fds.next());
    received.ok_or_else(|| io::Error::other("no connection was received"))
}
