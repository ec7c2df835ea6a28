//! A connection to the daemon: JSON-RPC 2.0 in frames over the local socket (`CTL-1`), or through `ssh` (`REP-2`).
//!
//! # Invariants
//!
//! * The daemon belongs to our own user (`SEC-4`) and has exactly our version; both are checked
//!   before a [`Client`] is returned. Only [`Client::reach`] returns one for another version. On another
//!   machine, `gdn daemon dial-stdio` checks the user.
//! * One request is in flight at a time, and notifications that arrive in the meantime go to its
//!   watcher. Only [`Client::all_of_each`] has several in flight; they have no notifications.

mod many_lists;
mod pages;
mod remote;
mod ssh;

pub use pages::{PagedMethod, Trace};
pub use remote::{Endpoint, InvalidRemote, Remote};
pub use ssh::{RemoteProblem, SshEnded};

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use goondan_protocol::control::{
    Connect, ConnectResult, ControlError, ErrorCode, JsonRpc, LOG_LINE, LogLine, Method,
    PROCESS_CHANGE, ProcessChange, ServerMessage, Status, TURN_PIECE, TURN_PROGRESS, TurnPiece,
    TurnProgress, WORKSPACE_CHANGE, WorkspaceChange,
};
use goondan_protocol::frame::{FrameCodec, FrameError};
use goondan_protocol::limits::DEFAULT_GRACE_PERIOD_MS;
use goondan_protocol::observe::RuntimeEvent;
use goondan_protocol::version::{Version, VersionMismatch};
use interprocess::local_socket::tokio::Stream;
use interprocess::local_socket::traits::StreamCommon as _;
use interprocess::local_socket::traits::tokio::Stream as _;
use interprocess::local_socket::{GenericFilePath, ToFsName as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};
use tokio_util::codec::Framed;

use ssh::SshStream;
use tokio_util::either::Either;

/// Time limit for a daemon to accept a connection and answer the first request, in milliseconds.
const CONNECT_TIMEOUT_MS: u64 = 10_000;

/// The same through `ssh`, in milliseconds.
const REMOTE_CONNECT_TIMEOUT_MS: u64 = 30_000;

/// Time to wait for a daemon that owns the state root but does not listen yet, in milliseconds: it
/// has just started, or its socket was removed and will be recreated.
const LISTEN_TIMEOUT_MS: u64 = 3_000;

/// Interval of connection attempts in that time, in milliseconds.
const LISTEN_POLL_MS: u64 = 25;

/// Time limit of a read-only request, in milliseconds.
const QUERY_TIMEOUT_MS: u64 = 30_000;

/// Time limit of a request that may wait for processes to stop, in milliseconds: the default grace
/// period plus a margin.
const CHANGE_TIMEOUT_MS: u64 = DEFAULT_GRACE_PERIOD_MS + 30_000;

/// Reason for a failed connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The socket has no listener.
    #[error("no daemon runs on {}", state_root.display())]
    NotRunning { state_root: PathBuf },
    /// A daemon owns the state root but does not listen on the socket.
    #[error(
        "the daemon{} on {} does not listen on its socket",
        pid.map_or_else(String::new, |pid| format!(", pid {pid},")),
        state_root.display()
    )]
    NotListening {
        state_root: PathBuf,
        /// Its process id from its pid file, if known.
        pid: Option<u32>,
    },
    /// The socket's path is unusable.
    #[error("the socket path {} cannot be used", socket.display())]
    BadPath {
        socket: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The socket exists but is unreachable.
    #[error("cannot reach the daemon at {}", socket.display())]
    Unreachable {
        socket: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// Another user's process listens on the socket.
    #[error("the process that listens on {} belongs to user id {theirs}, not to you ({ours})", socket.display())]
    ForeignPeer {
        socket: PathBuf,
        theirs: u32,
        ours: u32,
    },
    /// The daemon accepted the connection but does not answer.
    #[error("the daemon does not answer (waited {} s)", limit.as_secs())]
    NoAnswer { limit: Duration },
    /// The daemon of another machine is unreachable.
    #[error("cannot reach the daemon on {remote}")]
    Remote {
        remote: Box<Remote>,
        #[source]
        problem: RemoteProblem,
    },
    /// The daemon has another version.
    #[error("this gdn ({}) cannot talk to the running daemon", Version::current())]
    VersionMismatch {
        /// The daemon's process id, if the system provides it.
        daemon_pid: Option<u32>,
        /// The error about its version.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The first request failed for another reason.
    #[error("the daemon refused the connection")]
    Handshake(#[source] CallError),
}

impl ConnectError {
    /// True if another machine may be reachable soon: its network or its daemon comes back without a person.
    pub fn may_pass(&self) -> bool {
        use RemoteProblem::{Network, Other, Refused};
        match self {
            Self::Remote { problem, .. } => {
                matches!(problem, Network(_) | Other(_) | Refused { .. })
            }
            _ => false,
        }
    }
}

/// Reason for a failed request.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("the daemon refused")]
    Refused(#[source] ControlError),
    /// The daemon closed the connection to make room for others, and did not start the request.
    #[error("the daemon closed the connection")]
    Replaced(#[source] ControlError),
    #[error("the connection to the daemon was lost")]
    Lost {
        /// The error that ended it; `None` if the daemon closed it.
        #[source]
        source: Option<FrameError>,
    },
    /// The daemon did not answer in time.
    #[error("the daemon did not answer `{method}` within {} s", limit.as_secs())]
    TimedOut {
        method: &'static str,
        limit: Duration,
    },
    /// The daemon's answer cannot be deserialized.
    #[error("the daemon's answer to `{method}` cannot be read")]
    Unreadable {
        method: &'static str,
        #[source]
        source: serde_json::Error,
    },
    /// The request does not fit a frame.
    #[error("the request `{method}` is too large")]
    TooLarge {
        method: &'static str,
        /// The error with its size.
        #[source]
        source: FrameError,
    },
}

impl CallError {
    /// True if the connection ended, so that retrying on a new one makes sense: the daemon may have
    /// died, or have closed the connection.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Replaced(_))
    }
}

/// A notification during a request.
#[derive(Debug)]
pub enum Notice {
    /// One runtime event of the turn.
    Progress(Box<RuntimeEvent>),
    /// A piece of a call's result in the turn.
    Piece(Box<TurnPiece>),
    /// One line of the log.
    Line(Box<RawValue>),
    /// A change in a watched workspace.
    Change(Box<WorkspaceChange>),
    /// A change of the watched processes.
    Processes(ProcessChange),
}

/// Time limit of a request.
#[derive(Debug, Clone, Copy)]
pub enum RequestTimeout {
    /// It only reads.
    Query,
    /// It may wait for processes to stop.
    Change,
    /// Unlimited: it ends on its own or when the caller drops it.
    Endless,
}

impl RequestTimeout {
    fn limit(self) -> Option<Duration> {
        match self {
            Self::Query => Some(Duration::from_millis(QUERY_TIMEOUT_MS)),
            Self::Change => Some(Duration::from_millis(CHANGE_TIMEOUT_MS)),
            Self::Endless => None,
        }
    }
}

/// A request as sent. The protocol's own `Request` holds any call; this one is for one method and
/// borrows its parameters.
#[derive(Serialize)]
struct ClientRequest<'a, P: ?Sized> {
    jsonrpc: JsonRpc,
    id: u64,
    method: &'static str,
    params: &'a P,
}

/// Fields of `daemon.status` that exist in every version (`REL-1`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CompatibleStatus {
    version: Version,
    pid: u32,
    state_root: PathBuf,
    #[serde(default)]
    log_dir: Option<PathBuf>,
}

/// `daemon.status` with any further fields.
#[derive(Serialize)]
struct AskAny {}

impl Method for AskAny {
    const NAME: &'static str = Status::NAME;
    type Output = Value;
}

#[derive(Debug)]
pub enum DaemonConnection {
    /// A daemon of our version.
    Same(Client),
    /// A daemon of another version.
    Other(OtherDaemon),
}

/// A daemon of another version. It accepts `daemon.status` and `daemon.shutdown` from any client
/// (`REL-1`).
#[derive(Debug)]
pub struct OtherDaemon {
    /// Only for these two requests.
    pub client: Client,
    /// Its answer to `daemon.status`, in its own form.
    pub status: Value,
    /// The error for all other requests.
    pub why: ConnectError,
}

/// A connection to a daemon of our user and version, except within an [`OtherDaemon`].
#[derive(Debug)]
pub struct Client {
    frames: Framed<Either<Stream, SshStream>, FrameCodec>,
    request_id: u64,
    daemon: ConnectResult,
}

/// True if a daemon owns the state root, even if it does not listen: while it lives, it locks the
/// directory and its pid file.
pub fn is_owned(state_root: &Path) -> bool {
    let is_locked = |path: &Path| {
        let file = File::open(path).ok();
        file.is_some_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    };
    is_locked(state_root) || is_locked(&pid_file(state_root))
}

/// The process id of the daemon that owns the state root, from its pid file.
pub fn owner_pid(state_root: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(pid_file(state_root)).ok()?;
    text.trim().parse().ok()
}

fn pid_file(state_root: &Path) -> PathBuf {
    state_root.join("run").join("orchestrator.pid")
}

/// The socket of the daemon of `state_root`.
pub fn socket_path(state_root: &Path) -> PathBuf {
    state_root.join("run").join("orchestrator.sock")
}

impl Client {
    /// Connects to the daemon and checks its user and version.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if the connection fails.
    pub async fn connect(endpoint: impl Into<Endpoint>) -> Result<Self, ConnectError> {
        let endpoint = endpoint.into();
        match in_time(&endpoint, Self::handshake(&endpoint)).await? {
            (client, None) => Ok(client),
            (_, Some(why)) => Err(why),
        }
    }

    /// Connects to the daemon regardless of its version, for `gdn daemon status` and `gdn daemon shutdown`.
    ///
    /// # Errors
    ///
    /// As [`Self::connect`]. A daemon of another version that does not report its status counts as
    /// unreachable.
    pub async fn reach(endpoint: impl Into<Endpoint>) -> Result<DaemonConnection, ConnectError> {
        let endpoint = endpoint.into();
        let reaching = async {
            match Self::handshake(&endpoint).await? {
                (client, None) => Ok(DaemonConnection::Same(client)),
                (client, Some(why)) => client.introduced(why).await,
            }
        };
        in_time(&endpoint, reaching).await
    }

    async fn introduced(mut self, why: ConnectError) -> Result<DaemonConnection, ConnectError> {
        let Ok(status) = self.exchange(&AskAny {}, &mut |_| {}).await else {
            return Err(why);
        };
        let Ok(known) = CompatibleStatus::deserialize(&status) else {
            return Err(why);
        };
        self.daemon = ConnectResult {
            version: known.version,
            pid: known.pid,
            state_root: known.state_root,
            log_dir: known.log_dir,
        };
        Ok(DaemonConnection::Other(OtherDaemon {
            client: self,
            status,
            why,
        }))
    }

    /// Performs the handshake. The second value is the version error if the daemon has another
    /// version and supports only its status.
    async fn handshake(endpoint: &Endpoint) -> Result<(Self, Option<ConnectError>), ConnectError> {
        let (stream, daemon_pid, state_root) = match endpoint {
            Endpoint::Local(state_root) => {
                let (stream, pid) = open_checked(state_root).await?;
                (Either::Left(stream), pid, state_root.clone())
            }
            Endpoint::Remote(remote) => {
                let opened = ssh::open(remote);
                let stream = opened.map_err(|problem| remote_error(remote, problem))?;
                (Either::Right(stream), None, PathBuf::new())
            }
        };
        let version = Version::current();
        let mut client = Self {
            frames: Framed::new(stream, FrameCodec::new()),
            request_id: 0,
            daemon: ConnectResult {
                version: version.clone(),
                pid: 0,
                state_root,
                log_dir: None,
            },
        };
        let mismatch = |source| Some(ConnectError::VersionMismatch { daemon_pid, source });
        let why = match client.exchange(&Connect { version }, &mut |_| {}).await {
            Ok(connected) => {
                let checked: Result<(), VersionMismatch> = connected.version.check();
                client.daemon = connected;
                checked.err().and_then(|source| mismatch(Box::new(source)))
            }
            Err(CallError::Refused(refused)) if refused.code == ErrorCode::VersionMismatch => {
                mismatch(Box::new(refused))
            }
            // A daemon of a very different version may answer in an unreadable form.
            Err(CallError::Unreadable { source, .. }) => mismatch(Box::new(source)),
            Err(error) => return Err(unconnected(endpoint, error)),
        };
        Ok((client, why))
    }

    pub fn daemon(&self) -> &ConnectResult {
        &self.daemon
    }

    /// Sends a read-only request.
    ///
    /// # Errors
    ///
    /// [`CallError`] if the request fails. After [`CallError::TimedOut`], see [`Self::watch`].
    pub async fn query<M: Method>(&mut self, call: M) -> Result<M::Output, CallError> {
        self.watch(call, RequestTimeout::Query, &mut |_| {}).await
    }

    /// Sends a request that may wait for processes to stop.
    ///
    /// # Errors
    ///
    /// As [`Self::query`].
    pub async fn change<M: Method>(&mut self, call: M) -> Result<M::Output, CallError> {
        self.watch(call, RequestTimeout::Change, &mut |_| {}).await
    }

    /// Sends a request and passes its notifications to `on_notice`.
    ///
    /// After a timeout, or when the future is dropped, the connection must not be used again,
    /// because its next response would belong to this request.
    ///
    /// # Errors
    ///
    /// As [`Self::query`].
    pub async fn watch<M: Method>(
        &mut self,
        call: M,
        request_timeout: RequestTimeout,
        on_notice: &mut dyn FnMut(Notice),
    ) -> Result<M::Output, CallError> {
        let exchange = self.exchange(&call, on_notice);
        within(request_timeout, M::NAME, exchange).await
    }

    /// Forwards a request with raw JSON parameters and result, and passes its notifications to
    /// `on_notification` by method and parameters.
    ///
    /// # Errors
    ///
    /// As [`Self::watch`], including its condition on reuse.
    pub async fn forward(
        &mut self,
        method: &'static str,
        params: &RawValue,
        request_timeout: RequestTimeout,
        mut on_notification: impl FnMut(&str, &RawValue),
    ) -> Result<Box<RawValue>, CallError> {
        let mut on_any = |method: &str, params: &RawValue, _: u64| {
            on_notification(method, params);
            Ok(())
        };
        let answer = self.answer(method, params, &mut on_any);
        within(request_timeout, method, answer).await
    }

    async fn exchange<M: Method>(
        &mut self,
        call: &M,
        on_notice: &mut (impl FnMut(Notice) + ?Sized),
    ) -> Result<M::Output, CallError> {
        let mut on_any = |method: &str, params: &RawValue, request_id: u64| {
            if let Some(notice) = notice(method, params.get(), request_id)? {
                on_notice(notice);
            }
            Ok(())
        };
        let result = self.answer(M::NAME, call, &mut on_any).await?;
        serde_json::from_str(result.get()).map_err(|source| CallError::Unreadable {
            method: M::NAME,
            source,
        })
    }

    /// Sends a request and waits for its result.
    async fn answer<P: Serialize + ?Sized>(
        &mut self,
        method: &'static str,
        params: &P,
        on_notification: &mut impl FnMut(&str, &RawValue, u64) -> Result<(), serde_json::Error>,
    ) -> Result<Box<RawValue>, CallError> {
        let id = self.send(method, params).await?;
        loop {
            let incoming = self.receive(method).await?;
            if let Some(error) = incoming.error {
                return Err(refused(incoming.id, error.into()));
            }
            if incoming.id == Some(id) {
                return Ok(incoming.result.unwrap_or_else(|| RawValue::NULL.to_owned()));
            }
            if let (Some(name), Some(params)) = (&incoming.method, &incoming.params) {
                let unreadable = |source| CallError::Unreadable { method, source };
                on_notification(name, params, id).map_err(unreadable)?;
            }
        }
    }

    /// Sends a request without waiting for its answer. Returns its id.
    async fn send<P: Serialize + ?Sized>(
        &mut self,
        method: &'static str,
        params: &P,
    ) -> Result<u64, CallError> {
        self.request_id += 1;
        let request = ClientRequest {
            jsonrpc: JsonRpc,
            id: self.request_id,
            method,
            params,
        };
        let unreadable = |source| CallError::Unreadable { method, source };
        let body = serde_json::to_vec(&request).map_err(unreadable)?;
        match self.frames.send(Bytes::from(body)).await {
            Ok(()) => Ok(self.request_id),
            Err(source @ FrameError::TooLarge { .. }) => {
                Err(CallError::TooLarge { method, source })
            }
            // The daemon may have given a reason before it closed the connection.
            Err(source) => Err(self.reason().await.unwrap_or(lost(Some(source)))),
        }
    }

    /// Waits for the next answer or notification.
    async fn receive(&mut self, method: &'static str) -> Result<ServerMessage, CallError> {
        let frame = match self.frames.next().await {
            Some(Ok(frame)) => frame,
            Some(Err(source)) => return Err(lost(Some(source))),
            None => return Err(lost(None)),
        };
        serde_json::from_slice(&frame).map_err(|source| CallError::Unreadable { method, source })
    }

    /// The error that the daemon sent, or the end of ssh, before the connection was closed.
    async fn reason(&mut self) -> Option<CallError> {
        loop {
            let frame = match self.frames.next().await? {
                Ok(frame) => frame,
                Err(FrameError::Io(error)) if SshEnded::of(&error).is_some() => {
                    return Some(lost(Some(error.into())));
                }
                Err(_) => return None,
            };
            let incoming: ServerMessage = serde_json::from_slice(&frame).ok()?;
            if let Some(error) = incoming.error {
                return Some(refused(incoming.id, error.into()));
            }
        }
    }

    /// Waits until the daemon closes the connection.
    pub async fn closed(mut self) {
        while let Some(Ok(_)) = self.frames.next().await {}
    }
}

/// Waits for an answer within its time limit.
async fn within<T>(
    request_timeout: RequestTimeout,
    method: &'static str,
    answer: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    match request_timeout.limit() {
        None => answer.await,
        Some(limit) => timeout(limit, answer)
            .await
            .unwrap_or(Err(CallError::TimedOut { method, limit })),
    }
}

/// Parses a notification, if it belongs to the request.
fn notice(
    method: &str,
    params: &str,
    request_id: u64,
) -> Result<Option<Notice>, serde_json::Error> {
    let (of, notice) = match method {
        TURN_PROGRESS => {
            let progress: TurnProgress = serde_json::from_str(params)?;
            let of = progress.request_id;
            (of, Notice::Progress(Box::new(progress.event)))
        }
        TURN_PIECE => {
            let piece: TurnPiece = serde_json::from_str(params)?;
            (piece.request_id, Notice::Piece(Box::new(piece)))
        }
        LOG_LINE => {
            let line: LogLine = serde_json::from_str(params)?;
            (line.request_id, Notice::Line(line.line))
        }
        WORKSPACE_CHANGE => {
            let change: WorkspaceChange = serde_json::from_str(params)?;
            (change.request_id, Notice::Change(Box::new(change)))
        }
        PROCESS_CHANGE => {
            let change: ProcessChange = serde_json::from_str(params)?;
            (change.request_id, Notice::Processes(change))
        }
        // Versions match exactly, so this should not happen; unknown notifications are ignored.
        _ => return Ok(None),
    };
    Ok((of == request_id).then_some(notice))
}

/// Converts an error of the daemon. One without a request's id ends the connection.
fn refused(id: Option<u64>, error: ControlError) -> CallError {
    match (id, error.code) {
        (None, ErrorCode::Overloaded) => CallError::Replaced(error),
        _ => CallError::Refused(error),
    }
}

fn lost(source: Option<FrameError>) -> CallError {
    CallError::Lost { source }
}

/// Waits for a connection within its time limit.
async fn in_time<T>(
    endpoint: &Endpoint,
    connecting: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let limit = Duration::from_millis(match endpoint {
        Endpoint::Local(_) => CONNECT_TIMEOUT_MS,
        Endpoint::Remote(_) => REMOTE_CONNECT_TIMEOUT_MS,
    });
    let connected = timeout(limit, connecting).await;
    connected.unwrap_or(Err(ConnectError::NoAnswer { limit }))
}

fn remote_error(remote: &Remote, problem: RemoteProblem) -> ConnectError {
    ConnectError::Remote {
        remote: Box::new(remote.clone()),
        problem,
    }
}

/// Error of the first request. Through `ssh`, it finds out why the connection ended.
fn unconnected(endpoint: &Endpoint, error: CallError) -> ConnectError {
    let Endpoint::Remote(remote) = endpoint else {
        return ConnectError::Handshake(error);
    };
    let problem = match &error {
        CallError::Lost {
            source: Some(FrameError::Io(error)),
        } => SshEnded::of(error).map(SshEnded::problem),
        // The first bytes of a text are a very large length.
        CallError::Lost { source: Some(_) } => Some(RemoteProblem::Noise),
        _ => None,
    };
    match problem {
        Some(problem) => remote_error(remote, problem),
        None => ConnectError::Handshake(error),
    }
}

/// Connects to the socket of our own user's daemon, without a handshake, for `gdn daemon dial-stdio`.
///
/// # Errors
///
/// As [`Client::connect`].
pub async fn open_socket(state_root: &Path) -> Result<Stream, ConnectError> {
    Ok(open_checked(state_root).await?.0)
}

/// Connects to the socket and checks the peer; returns its process id if the system provides it.
async fn open_checked(state_root: &Path) -> Result<(Stream, Option<u32>), ConnectError> {
    let stream = open(state_root).await?;
    let pid = check_peer(&stream, state_root)?;
    Ok((stream, pid))
}

/// Connects to the socket. Waits for a daemon that owns the state root but does not listen yet.
async fn open(state_root: &Path) -> Result<Stream, ConnectError> {
    let deadline = Instant::now() + Duration::from_millis(LISTEN_TIMEOUT_MS);
    loop {
        match open_once(state_root).await {
            Err(ConnectError::NotRunning { state_root }) if is_owned(&state_root) => {
                if Instant::now() >= deadline {
                    let pid = owner_pid(&state_root);
                    return Err(ConnectError::NotListening { state_root, pid });
                }
                sleep(Duration::from_millis(LISTEN_POLL_MS)).await;
            }
            opened => return opened,
        }
    }
}

async fn open_once(state_root: &Path) -> Result<Stream, ConnectError> {
    let socket = socket_path(state_root);
    let name = socket
        .as_path()
        .to_fs_name::<GenericFilePath>()
        .map_err(|source| ConnectError::BadPath {
            socket: socket.clone(),
            source,
        })?;
    Stream::connect(name).await.map_err(|source| {
        use std::io::ErrorKind;
        match source.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => ConnectError::NotRunning {
                state_root: state_root.to_owned(),
            },
            ErrorKind::InvalidInput | ErrorKind::Unsupported => {
                ConnectError::BadPath { socket, source }
            }
            _ => ConnectError::Unreachable { socket, source },
        }
    })
}

/// Checks that the peer belongs to our user, and returns its process id if the system provides it.
fn check_peer(stream: &Stream, state_root: &Path) -> Result<Option<u32>, ConnectError> {
    let socket = socket_path(state_root);
    let peer = match stream.peer_creds() {
        Ok(peer) => peer,
        Err(source) => return Err(ConnectError::Unreachable { socket, source }),
    };
    check_user(socket, peer.euid(), nix::unistd::geteuid().as_raw())?;
    Ok(peer.pid().and_then(|pid| u32::try_from(pid).ok()))
}

/// Checks that the peer's user is ours. An unknown user is not trusted.
fn check_user(socket: PathBuf, theirs: Option<u32>, ours: u32) -> Result<(), ConnectError> {
    match theirs {
        Some(theirs) if theirs == ours => Ok(()),
        Some(theirs) => Err(ConnectError::ForeignPeer {
            socket,
            theirs,
            ours,
        }),
        None => Err(ConnectError::Unreachable {
            socket,
            source: std::io::Error::other(
                "the system does not report the owner of the listening process",
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_users_daemon_is_trusted() {
        let check = |theirs| check_user(PathBuf::from("s"), theirs, 1000);
        assert!(check(Some(1000)).is_ok());
        assert!(matches!(
            check(Some(0)),
            Err(ConnectError::ForeignPeer { theirs: 0, .. })
        ));
        assert!(check(None).is_err());
    }
}
