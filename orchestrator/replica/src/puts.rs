//! Puts records: waiting records are combined into one statement and one commit.
//!
//! **Workspaces are distributed over a few lanes**, each with a connection and one statement in
//! progress at a time. Records that arrive meanwhile go into the next statement, so that many
//! workspaces share one wait for the disk and for a standby, as the batches of one workspace do.
//! Lanes share that wait by the server's group commit, and one lane works while another waits. A
//! connection for each workspace would be no faster and cost a server process each. A warning that
//! arrives while a connection has one statement in progress belongs to that statement.
//!
//! **A late statement is left running.** Usually it waits for a synchronous standby that is gone.
//! Canceling it would make its records readable although the standby does not have them; dropping
//! the connection would leave a server process behind at each attempt. So at most
//! [`LATE_STATEMENTS_MAX`] statements of a lane are left running, each with its connection, and the
//! connection is reused when its statement ends.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use goondan_clock::{Instant, timeout, timeout_at};
use goondan_protocol::ids::WorkspaceId;
use goondan_replication::limits::ANSWER_DEADLINE_MS;
use goondan_replication::log::{LogPage, PutAnswer, PutRequest};
use goondan_replication::names::Position;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::connection::{Connection, ConnectionUse};
use crate::doubts::InDoubtPositions;
use crate::fault::ConnectFault;
use crate::limits::{
    BATCH_BYTES_MAX, BATCH_RECORDS_MAX, GATHER_MS, LATE_STATEMENTS_MAX, PUT_LANES, QUESTIONS_MAX,
};
use crate::page::PAGE;
use crate::settings::CurrentSettings;
use crate::upstream::{Upstream, UpstreamHealth};

mod batch;

/// Statements that are prepared on the connection.
const STATEMENTS: &[&str] = &[batch::PUT, PAGE];

/// An offered record.
struct PutOffer {
    put: PutRequest,
    reply: oneshot::Sender<PutAnswer>,
}

enum PutJob {
    Offer(PutOffer),
    /// Read a page with the durability of a put.
    Confirm {
        workspace: WorkspaceId,
        from: Position,
        reply: oneshot::Sender<LogPage>,
    },
    /// Make an empty commit.
    Probe(oneshot::Sender<()>),
}

impl PutJob {
    /// True if the caller no longer waits for this job. A waiting job is then dropped.
    fn is_over(&self) -> bool {
        match self {
            Self::Offer(offer) => offer.reply.is_closed(),
            Self::Confirm { reply, .. } => reply.is_closed(),
            Self::Probe(reply) => reply.is_closed(),
        }
    }
}

/// Accepts offered records.
#[derive(Clone)]
pub(crate) struct PutLanes {
    lanes: Arc<[mpsc::Sender<PutJob>]>,
    said: UpstreamHealth,
}

impl PutLanes {
    /// Returns the queue of puts, and the writers, which the caller must run.
    pub(crate) fn new(
        settings: &CurrentSettings,
        doubts: &InDoubtPositions,
    ) -> (Self, Vec<Writer>) {
        let said = UpstreamHealth::default();
        let lane = |_| {
            let (jobs, waiting) = mpsc::channel(QUESTIONS_MAX);
            let settings = settings.clone();
            let writer = Writer {
                upstream: Upstream::new(settings, ConnectionUse::Puts, STATEMENTS, said.clone()),
                doubts: doubts.clone(),
                waiting,
                held: None,
                together: 1,
                late: JoinSet::new(),
            };
            (jobs, writer)
        };
        let (lanes, writers): (Vec<_>, Vec<_>) = (0..PUT_LANES).map(lane).unzip();
        let lanes = lanes.into();
        (Self { lanes, said }, writers)
    }

    /// Reason why puts fail; `None` if they do not.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.said.trouble()
    }

    /// Offers a record; answers by the deadline.
    pub(crate) async fn offer(&self, put: PutRequest) -> PutAnswer {
        let lane = self.lane(put.record.workspace());
        let (reply, answer) = oneshot::channel();
        let job = PutJob::Offer(PutOffer { put, reply });
        if lane.is_none_or(|lane| lane.try_send(job).is_err()) {
            return PutAnswer::Unavailable;
        }
        within_deadline(answer).await.unwrap_or(PutAnswer::Unknown)
    }

    /// Reads a page with records in doubt, and confirms them by a later commit; `None` if that was
    /// not confirmed.
    pub(crate) async fn confirmed(
        &self,
        workspace: WorkspaceId,
        from: Position,
    ) -> Option<LogPage> {
        let lane = self.lane(&workspace)?;
        let (reply, answer) = oneshot::channel();
        let job = PutJob::Confirm {
            workspace,
            from,
            reply,
        };
        lane.try_send(job).ok()?;
        within_deadline(answer).await
    }

    /// Makes an empty commit; true if the server confirms it by the deadline. One lane is enough,
    /// because all lanes wait for the same disk and the same standbys.
    pub(crate) async fn probe(&self) -> bool {
        let (reply, answer) = oneshot::channel();
        let lane = self.lanes.first();
        let is_asked = lane.is_some_and(|lane| lane.try_send(PutJob::Probe(reply)).is_ok());
        is_asked && within_deadline(answer).await.is_some()
    }

    /// The lane of a workspace, which is always the same.
    fn lane(&self, workspace: &WorkspaceId) -> Option<&mpsc::Sender<PutJob>> {
        let mut hasher = DefaultHasher::new();
        workspace.as_str().hash(&mut hasher);
        let lane = usize::try_from(hasher.finish() % PUT_LANES).ok()?;
        self.lanes.get(lane)
    }
}

async fn within_deadline<T>(answer: oneshot::Receiver<T>) -> Option<T> {
    let deadline = Duration::from_millis(ANSWER_DEADLINE_MS);
    timeout(deadline, answer).await.ok()?.ok()
}

/// Executes the jobs of a lane, one statement at a time.
pub(crate) struct Writer {
    upstream: Upstream,
    doubts: InDoubtPositions,
    waiting: mpsc::Receiver<PutJob>,
    /// An offer that did not fit into the last statement.
    held: Option<PutJob>,
    /// Number of records in the last statement.
    together: usize,
    /// Statements that are not finished, each with its connection.
    late: JoinSet<Arc<Connection>>,
}

impl Writer {
    /// Runs until all senders are dropped.
    pub(crate) async fn run(mut self) {
        loop {
            let job = match self.held.take() {
                Some(job) => Some(job),
                None => tokio::select! {
                    () = self.upstream.progress() => continue,
                    Some(ended) = self.late.join_next(), if !self.late.is_empty() => {
                        self.came_back(ended.ok());
                        continue;
                    }
                    job = self.waiting.recv() => job,
                },
            };
            match job {
                Some(job) if job.is_over() => {}
                Some(job) => self.work(job).await,
                None => return,
            }
        }
    }

    async fn work(&mut self, job: PutJob) {
        let Some(connection) = self.upstream.current() else {
            if let PutJob::Offer(offer) = job {
                // A caller that no longer waits needs no answer.
                offer.reply.send(PutAnswer::Unavailable).ok();
            }
            return;
        };
        let mut under_way = JoinSet::new();
        let (shared, doubts) = (Arc::clone(&connection), self.doubts.clone());
        match job {
            PutJob::Offer(offer) => {
                let offers = self.gather(offer).await;
                under_way.spawn(async move {
                    batch::put(&shared, offers, &doubts).await;
                    shared
                });
            }
            PutJob::Confirm {
                workspace,
                from,
                reply,
            } => {
                under_way.spawn(async move {
                    if let Some(page) = batch::confirm(&shared, &workspace, from, &doubts).await {
                        // As above.
                        reply.send(page).ok();
                    }
                    shared
                });
            }
            PutJob::Probe(reply) => {
                under_way.spawn(async move {
                    if batch::barrier(&shared).await {
                        // As above.
                        reply.send(()).ok();
                    }
                    shared
                });
            }
        }
        let deadline = Duration::from_millis(ANSWER_DEADLINE_MS);
        match timeout(deadline, under_way.join_next()).await {
            Ok(_) if connection.is_good() => self.upstream.proved(),
            Ok(_) => self.upstream.leave(&ConnectFault::Lost),
            Err(_elapsed) => self.left_behind(connection, under_way),
        }
    }

    /// Collects waiting offers, at most one of each workspace, because the next one follows it.
    /// Workspaces that were answered together tend to return together, so the first one waits
    /// briefly for the others.
    async fn gather(&mut self, first: PutOffer) -> Vec<PutOffer> {
        let until = Instant::now() + Duration::from_millis(GATHER_MS);
        let mut workspaces = HashSet::from([first.put.record.workspace().clone()]);
        let mut bytes = first.put.record.bytes().len();
        let mut offers = vec![first];
        while offers.len() < BATCH_RECORDS_MAX && bytes < BATCH_BYTES_MAX {
            let job = match self.waiting.try_recv() {
                Ok(job) => Some(job),
                Err(_) if offers.len() >= self.together => None,
                Err(_) => timeout_at(until, self.waiting.recv()).await.ok().flatten(),
            };
            match job {
                Some(job) if job.is_over() => {}
                Some(PutJob::Offer(offer))
                    if workspaces.insert(offer.put.record.workspace().clone()) =>
                {
                    bytes += offer.put.record.bytes().len();
                    offers.push(offer);
                }
                Some(other) => {
                    self.held = Some(other);
                    break;
                }
                None => break,
            }
        }
        self.together = offers.len();
        offers
    }

    fn left_behind(
        &mut self,
        connection: Arc<Connection>,
        mut under_way: JoinSet<Arc<Connection>>,
    ) {
        self.late.spawn(async move {
            under_way.join_next().await;
            connection
        });
        if self.late.len() < LATE_STATEMENTS_MAX {
            self.upstream.leave(&ConnectFault::LateAnswer);
        } else {
            self.upstream.hold(&ConnectFault::LateAnswer);
        }
    }

    fn came_back(&mut self, connection: Option<Arc<Connection>>) {
        match connection {
            Some(connection) if connection.is_good() => {
                self.upstream.give(connection);
                self.upstream.proved();
            }
            Some(_) | None => self.upstream.release(),
        }
    }
}
