//! The client process of the replication log's server: start, frames, exit.

use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use goondan_clock::timeout;
use goondan_protocol::JsonObject;
use goondan_protocol::frame::{FrameCodec, FrameError};
use goondan_protocol::ipc::ChildRole;
use goondan_protocol::limits::HANDSHAKE_TIMEOUT_MS;
use goondan_protocol::trace::TraceId;
use goondan_replication::wire::{Hello, LogCommand, LogRequest, LogResponse, Welcome, WireFault};
use goondan_store::root::{self, Layout};
use serde_json::json;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::codec::{FramedRead, FramedWrite};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::messages::Message;
use crate::limits::{REPLICA_CONFIG_LOOK_MS, REPLICA_RESTART_FIRST_MS, REPLICA_RESTART_MAX_MS};
use crate::shell::launcher::{LaunchedChild, Launcher};
use crate::shell::logs::{Collector, LogHub, Traces, collect};

/// Everything needed to start the process repeatedly.
pub(super) struct LogClientLauncher {
    pub(super) launcher: Arc<Launcher>,
    pub(super) program: PathBuf,
    pub(super) welcome: Welcome,
    pub(super) hub: Arc<LogHub>,
    /// Its pid; 0 while it does not run.
    pub(super) pid: Arc<AtomicU32>,
    pub(super) machine: Sender<Message>,
    /// Location of `config.json`, which names the server.
    pub(super) layout: Layout,
}

/// Id of the request that changes the server. The ids of the machine start at 1.
const SERVER_REQUEST: u64 = 0;

/// Reason that the process cannot be used.
#[derive(Debug, thiserror::Error)]
enum LinkFault {
    #[error("it failed to start")]
    Start(#[source] std::io::Error),
    #[error("it sent no greeting within {HANDSHAKE_TIMEOUT_MS} ms")]
    NoHello,
    #[error("its socket failed")]
    Socket(#[source] FrameError),
    #[error("it sent an invalid message")]
    Wire(#[source] WireFault),
    #[error("it closed its socket")]
    Closed,
}

impl LogClientLauncher {
    /// Keeps the process running until the daemon ends.
    pub(super) async fn run(mut self, ending: CancellationToken) {
        let mut pause_ms = REPLICA_RESTART_FIRST_MS;
        loop {
            let mut has_spoken = false;
            let since = Instant::now();
            let ended = tokio::select! {
                ended = self.live(&mut has_spoken) => ended,
                () = ending.cancelled() => return,
            };
            // A process that greets and then fails, for example because of its URL, will fail again.
            if since.elapsed() >= Duration::from_millis(REPLICA_RESTART_MAX_MS) {
                pause_ms = REPLICA_RESTART_FIRST_MS;
            }
            if has_spoken {
                drop(self.machine.send(Message::Disconnected));
            }
            if let Err(fault) = ended {
                tracing::error!(
                    error = &fault as &dyn std::error::Error,
                    restart_ms = pause_ms,
                    "goondan-replica ended; restarting it"
                );
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(pause_ms)) => {}
                () = ending.cancelled() => return,
            }
            pause_ms = pause_ms.saturating_mul(2).min(REPLICA_RESTART_MAX_MS);
        }
    }

    /// Runs the process once.
    async fn live(&mut self, has_spoken: &mut bool) -> Result<(), LinkFault> {
        self.reload_server();
        let (launcher, program) = (self.launcher.clone(), self.program.clone());
        let launched = tokio::task::spawn_blocking(move || launcher.launch_program(program)).await;
        let launched = launched.map_err(|error| LinkFault::Start(std::io::Error::other(error)))?;
        let LaunchedChild {
            child,
            socket,
            output,
        } = launched.map_err(LinkFault::Start)?;
        let child = ChildReaper(Some(child), self.pid.clone());
        let pid = child.pid();
        self.pid.store(pid, Ordering::Relaxed);
        let opened = || -> std::io::Result<_> {
            let socket = StdUnixStream::from(socket);
            socket.set_nonblocking(true)?;
            Ok((
                UnixStream::from_std(socket)?,
                pipe::Receiver::from_owned_fd(output)?,
            ))
        };
        let (socket, output) = opened().map_err(LinkFault::Start)?;
        let collector = Collector {
            hub: self.hub.clone(),
            identity: JsonObject::from_iter([
                ("process".to_owned(), json!("replica")),
                ("pid".to_owned(), json!(pid)),
            ]),
            traces: Arc::new(Traces::new(
                TraceId::from_uuid(Uuid::now_v7()),
                ChildRole::Connector,
            )),
        };
        let mut reading = JoinSet::new();
        reading.spawn(async move {
            if let Err(error) = collect(output, collector).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "output of goondan-replica truncated"
                );
            }
        });
        let ended = self.speak(socket, has_spoken).await;
        // Its last output contains the reason for its exit.
        drop(child);
        while reading.join_next().await.is_some() {}
        ended
    }

    /// Reads the server and password from `config.json`; true if the URL has changed.
    fn reload_server(&mut self) -> bool {
        // While the file is being written, or without a server in it, the previous value applies.
        let Ok(named) = root::replication_config(&self.layout) else {
            return false;
        };
        match named {
            Some(named) if named.postgres != self.welcome.server => {
                self.welcome.server = named.postgres;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Notifies the process when `config.json` names another server, so that a password can be
    /// rotated without restarting the daemon.
    async fn watch_config(&mut self, asks: &mpsc::UnboundedSender<LogRequest>) {
        loop {
            tokio::time::sleep(Duration::from_millis(REPLICA_CONFIG_LOOK_MS)).await;
            if self.reload_server() {
                let request = LogRequest {
                    id: SERVER_REQUEST,
                    ask: LogCommand::Server(self.welcome.server.clone()),
                };
                // If the writer is gone, this run of the process is over.
                asks.send(request).ok();
            }
        }
    }

    async fn speak(&mut self, socket: UnixStream, has_spoken: &mut bool) -> Result<(), LinkFault> {
        let (reader, writer) = socket.into_split();
        let mut incoming = FramedRead::new(reader, FrameCodec::new());
        let mut outgoing = FramedWrite::new(writer, FrameCodec::new());
        let deadline = Duration::from_millis(HANDSHAKE_TIMEOUT_MS);
        let hello = timeout(deadline, next(&mut incoming)).await;
        let hello = hello.map_err(|_elapsed| LinkFault::NoHello)??;
        Hello::from_frame(&hello).map_err(LinkFault::Wire)?;
        let welcome = self.welcome.to_frame().map_err(LinkFault::Wire)?;
        let sent = outgoing.send(Bytes::from(welcome)).await;
        sent.map_err(LinkFault::Socket)?;
        let (asks, waiting) = mpsc::unbounded_channel();
        *has_spoken = true;
        drop(self.machine.send(Message::Connected(asks.clone())));
        let machine = self.machine.clone();
        tokio::select! {
            ended = read(incoming, &machine) => ended,
            ended = write(outgoing, waiting) => ended,
            () = self.watch_config(&asks) => Ok(()),
        }
    }
}

async fn read(
    mut incoming: FramedRead<OwnedReadHalf, FrameCodec>,
    machine: &Sender<Message>,
) -> Result<(), LinkFault> {
    loop {
        let frame = next(&mut incoming).await?;
        let response = LogResponse::from_frame(&frame).map_err(LinkFault::Wire)?;
        drop(machine.send(Message::Answered(response)));
    }
}

async fn next(incoming: &mut FramedRead<OwnedReadHalf, FrameCodec>) -> Result<Bytes, LinkFault> {
    match incoming.next().await {
        Some(frame) => frame.map_err(LinkFault::Socket),
        None => Err(LinkFault::Closed),
    }
}

/// Writes requests in batches. Their number is bounded, because each machine has at most one
/// request in flight.
async fn write(
    mut outgoing: FramedWrite<OwnedWriteHalf, FrameCodec>,
    mut waiting: mpsc::UnboundedReceiver<LogRequest>,
) -> Result<(), LinkFault> {
    while let Some(request) = waiting.recv().await {
        let mut request = Some(request);
        while let Some(next) = request {
            let frame = next.to_frame().map_err(LinkFault::Wire)?;
            let fed = outgoing.feed(Bytes::from(frame)).await;
            fed.map_err(LinkFault::Socket)?;
            request = waiting.try_recv().ok();
        }
        let flushed = futures_util::SinkExt::<Bytes>::flush(&mut outgoing).await;
        flushed.map_err(LinkFault::Socket)?;
    }
    Ok(())
}

/// Kills and reaps the process when dropped.
struct ChildReaper(Option<Child>, Arc<AtomicU32>);

impl ChildReaper {
    fn pid(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }
}

impl Drop for ChildReaper {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It exits when its socket is closed; otherwise it would keep running.
            child.kill().ok();
            child.wait().ok();
        }
        self.1.store(0, Ordering::Relaxed);
    }
}
