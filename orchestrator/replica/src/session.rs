//! Receives requests from the daemon and dispatches them.
//!
//! Each request is a task that ends by its deadline. While [`QUESTIONS_MAX`] of them are in
//! progress, no further request is read. A put without a free slot is answered immediately, so that
//! reads continue while writes are blocked.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use goondan_clock::timeout;
use goondan_log::error_chain;
use goondan_protocol::secret::SecretValue;
use goondan_replication::limits::ANSWER_DEADLINE_MS;
use goondan_replication::log::{PutAnswer, ReadAnswer};
use goondan_replication::names::NodeId;
use goondan_replication::wire::{LogAnswer, LogCommand, LogRequest, LogResponse};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::task::JoinSet;

use crate::doubts::InDoubtPositions;
use crate::limits::{ANSWERS_WAITING_MAX, QUESTIONS_MAX, READS_AT_ONCE_MAX, WRITE_BYTES_MAX};
use crate::link::{DaemonFrames, DaemonSink, LinkError};
use crate::puts::PutLanes;
use crate::reads::Reads;
use crate::settings::{CurrentSettings, PostgresSettings};

/// Handlers of requests, and their capacity.
struct RequestHandlers {
    settings: CurrentSettings,
    /// Node whose name the connections have.
    node: NodeId,
    puts: PutLanes,
    reads: Reads,
    /// Bytes that may wait to be written.
    write_bytes: Semaphore,
    /// Pages and parts that may be held.
    pages: Semaphore,
    answers: mpsc::Sender<Bytes>,
}

/// Answers questions until the daemon closes the socket.
///
/// # Errors
///
/// [`LinkError`] if the daemon cannot be understood, or the socket fails.
pub(crate) async fn run(
    settings: PostgresSettings,
    node: NodeId,
    mut incoming: DaemonFrames,
    outgoing: DaemonSink,
) -> Result<(), LinkError> {
    let (settings, doubts) = (CurrentSettings::new(settings), InDoubtPositions::default());
    let (puts, writers) = PutLanes::new(&settings, &doubts);
    let (reads, keeper) = Reads::new(settings.clone(), doubts, puts.clone());
    let (answers, waiting) = mpsc::channel(ANSWERS_WAITING_MAX);
    let mut workers = JoinSet::new();
    for writer in writers {
        workers.spawn(async move {
            writer.run().await;
            Ok(())
        });
    }
    workers.spawn(async move {
        keeper.run().await;
        Ok(())
    });
    workers.spawn(write(outgoing, waiting));
    let desk = Arc::new(RequestHandlers {
        settings,
        node,
        puts,
        reads,
        write_bytes: Semaphore::new(WRITE_BYTES_MAX),
        pages: Semaphore::new(READS_AT_ONCE_MAX),
        answers,
    });
    let mut questions = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = questions.join_next(), if !questions.is_empty() => {}
            Some(Ok(ended)) = workers.join_next() => ended?,
            frame = incoming.next(), if questions.len() < QUESTIONS_MAX => match frame {
                None => return Ok(()),
                Some(Err(error)) => return Err(LinkError::Read(error)),
                Some(Ok(frame)) => {
                    let request = LogRequest::from_frame(&frame).map_err(LinkError::NotAMessage)?;
                    questions.spawn(Arc::clone(&desk).answer(request));
                }
            },
        }
    }
}

async fn write(
    mut outgoing: DaemonSink,
    mut waiting: mpsc::Receiver<Bytes>,
) -> Result<(), LinkError> {
    while let Some(frame) = waiting.recv().await {
        outgoing.send(frame).await.map_err(LinkError::Write)?;
    }
    Ok(())
}

impl RequestHandlers {
    async fn answer(self: Arc<Self>, request: LogRequest) {
        let id = request.id;
        // Held until the answer is on its way.
        let _page = match &request.ask {
            LogCommand::Read { .. } | LogCommand::ReadPart(_) => match self.page().await {
                Some(page) => Some(page),
                None => return self.send(id, unavailable(&request.ask)).await,
            },
            _ => None,
        };
        let written = match &request.ask {
            LogCommand::Put(put) => put.record.bytes().len(),
            LogCommand::KeepPart(_, bytes) => bytes.len(),
            _ => 0,
        };
        let room = u32::try_from(written).ok();
        let room = room.and_then(|bytes| self.write_bytes.try_acquire_many(bytes).ok());
        if room.is_none() {
            return self.send(id, unavailable(&request.ask)).await;
        }
        let answer = self.ask(request.ask).await;
        self.send(id, answer).await;
    }

    async fn ask(&self, ask: LogCommand) -> LogAnswer {
        match ask {
            LogCommand::Put(put) => LogAnswer::Put(self.puts.offer(put).await),
            LogCommand::Read { workspace, from } => {
                LogAnswer::Read(self.reads.read(workspace, from).await)
            }
            LogCommand::Trim { workspace, before } => self.reads.trim(&workspace, &before).await,
            LogCommand::Heads(workspaces) => self.reads.heads(&workspaces).await,
            LogCommand::List { after } => self.reads.list(after.as_ref()).await,
            LogCommand::Beat(beats) => self.reads.beat(beats).await,
            LogCommand::KeepPart(part, bytes) => self.reads.keep_part(&part, &bytes).await,
            LogCommand::ReadPart(part) => self.reads.read_part(&part).await,
            LogCommand::ForgetSnapshots { workspace, before } => {
                self.reads.forget_snapshots(&workspace, &before).await
            }
            LogCommand::Check => LogAnswer::Checked(self.reads.check().await),
            LogCommand::Standing => LogAnswer::Standing(self.reads.trouble()),
            LogCommand::Probe => self.reads.probe().await,
            LogCommand::Server(url) => self.use_server(&url),
        }
    }

    /// Has connections that are made later be made by another URL.
    fn use_server(&self, url: &SecretValue) -> LogAnswer {
        match PostgresSettings::read(url.expose(), &self.node) {
            Ok(settings) => {
                self.settings.replace(settings);
                tracing::info!("URL of the log's server changed; the next connection uses it");
                LogAnswer::Noted
            }
            Err(fault) => {
                let error = error_chain(&fault);
                tracing::error!(
                    error,
                    "new URL of the log's server is invalid; still using the old one"
                );
                LogAnswer::Unavailable
            }
        }
    }

    /// Reserves memory for a page; `None` if there is not enough until the deadline.
    async fn page(&self) -> Option<SemaphorePermit<'_>> {
        let deadline = Duration::from_millis(ANSWER_DEADLINE_MS);
        timeout(deadline, self.pages.acquire()).await.ok()?.ok()
    }

    async fn send(&self, id: u64, answer: LogAnswer) {
        let frame = match (LogResponse { id, answer }).to_frame() {
            Ok(frame) => frame,
            Err(fault) => {
                tracing::error!(error = error_chain(&fault), "an answer is too long");
                let answer = LogAnswer::Unavailable;
                (LogResponse { id, answer }).to_frame().unwrap_or_default()
            }
        };
        // The session is over when the writer of the socket is gone.
        self.answers.send(Bytes::from(frame)).await.ok();
    }
}

/// Answer to a request that was not attempted.
fn unavailable(ask: &LogCommand) -> LogAnswer {
    match ask {
        LogCommand::Put(_) => LogAnswer::Put(PutAnswer::Unavailable),
        LogCommand::Read { .. } => LogAnswer::Read(ReadAnswer::Unavailable),
        _ => LogAnswer::Unavailable,
    }
}
