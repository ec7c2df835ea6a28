//! Offers records to the server: those that wait go together, in one statement and one commit.
//!
//! **Workspaces are dealt to a few lanes**, each with a connection on which one statement is under way at a time. What
//! comes meanwhile goes into the next one, so that many workspaces share one wait for the disk and for a standby, as the
//! batches of one workspace do; the lanes share it by the server's group commit, and one works while another waits. A
//! connection for each workspace would be as fast and cost a server process each. A warning that comes while the one
//! statement of a connection is under way belongs to it.
//!
//! **A statement that is late is left where it is.** It mostly waits for a synchronous standby that is gone. To cut it
//! short would make its records readable, and the standby does not have them; to forget the connection would leave a
//! server process behind at each try. So at most [`LATE_STATEMENTS_MAX`] of a lane are left, each with its connection,
//! and the connection of one that ends is used again.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use goondan_clock::{Instant, timeout, timeout_at};
use goondan_protocol::ids::WorkspaceId;
use goondan_replication::limits::ANSWER_DEADLINE_MS;
use goondan_replication::log::{Page, Put, PutAnswer};
use goondan_replication::names::Position;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::connection::{Connection, Purpose};
use crate::doubts::Doubts;
use crate::fault::ConnectFault;
use crate::limits::{
    BATCH_BYTES_MAX, BATCH_RECORDS_MAX, GATHER_MS, LATE_STATEMENTS_MAX, PUT_LANES, QUESTIONS_MAX,
};
use crate::page::PAGE;
use crate::settings::CurrentSettings;
use crate::upstream::{Said, Upstream};

mod batch;

/// What is prepared on the connection.
const STATEMENTS: &[&str] = &[batch::PUT, PAGE];

/// A record that is offered.
struct Offer {
    put: Put,
    reply: oneshot::Sender<PutAnswer>,
}

enum Job {
    Offer(Offer),
    /// Read, and have what is read be as durable as what was put.
    Confirm {
        workspace: WorkspaceId,
        from: Position,
        reply: oneshot::Sender<Page>,
    },
    /// Make a commit with nothing in it.
    Probe(oneshot::Sender<()>),
}

impl Job {
    /// Whether nobody waits for it any more. It was not begun, and is not to be.
    fn is_over(&self) -> bool {
        match self {
            Self::Offer(offer) => offer.reply.is_closed(),
            Self::Confirm { reply, .. } => reply.is_closed(),
            Self::Probe(reply) => reply.is_closed(),
        }
    }
}

/// Takes records that are offered.
#[derive(Clone)]
pub(crate) struct Puts {
    lanes: Arc<[mpsc::Sender<Job>]>,
    said: Said,
}

impl Puts {
    /// Whoever takes them, and those who do the work: to be run beside it.
    pub(crate) fn new(settings: &CurrentSettings, doubts: &Doubts) -> (Self, Vec<Writer>) {
        let said = Said::default();
        let lane = |_| {
            let (jobs, waiting) = mpsc::channel(QUESTIONS_MAX);
            let settings = settings.clone();
            let writer = Writer {
                upstream: Upstream::new(settings, Purpose::Puts, STATEMENTS, said.clone()),
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

    /// Why nothing can be put; none if nothing stands in the way.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.said.trouble()
    }

    /// Offers a record; answers by the deadline.
    pub(crate) async fn offer(&self, put: Put) -> PutAnswer {
        let lane = self.lane(put.record.workspace());
        let (reply, answer) = oneshot::channel();
        let job = Job::Offer(Offer { put, reply });
        if lane.is_none_or(|lane| lane.try_send(job).is_err()) {
            return PutAnswer::Unavailable;
        }
        within_deadline(answer).await.unwrap_or(PutAnswer::Unknown)
    }

    /// Reads a page of which something was in doubt, and puts a commit behind it; none if that was not confirmed.
    pub(crate) async fn confirmed(&self, workspace: WorkspaceId, from: Position) -> Option<Page> {
        let lane = self.lane(&workspace)?;
        let (reply, answer) = oneshot::channel();
        let job = Job::Confirm {
            workspace,
            from,
            reply,
        };
        lane.try_send(job).ok()?;
        within_deadline(answer).await
    }

    /// Makes a commit with nothing in it; true if the server confirms it by the deadline. All lanes wait for the same disk and
    /// the same standbys, so that one of them says it for all.
    pub(crate) async fn probe(&self) -> bool {
        let (reply, answer) = oneshot::channel();
        let lane = self.lanes.first();
        let is_asked = lane.is_some_and(|lane| lane.try_send(Job::Probe(reply)).is_ok());
        is_asked && within_deadline(answer).await.is_some()
    }

    /// That of a workspace, which is always the same one.
    fn lane(&self, workspace: &WorkspaceId) -> Option<&mpsc::Sender<Job>> {
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

/// Does the work of a lane, one statement at a time.
pub(crate) struct Writer {
    upstream: Upstream,
    doubts: Doubts,
    waiting: mpsc::Receiver<Job>,
    /// One that was taken and did not fit into the last statement.
    held: Option<Job>,
    /// How many records the last statement had.
    together: usize,
    /// Statements that are not finished, each with its connection.
    late: JoinSet<Arc<Connection>>,
}

impl Writer {
    /// Works until nobody offers anything any more.
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

    async fn work(&mut self, job: Job) {
        let Some(connection) = self.upstream.current() else {
            if let Job::Offer(offer) = job {
                // Whoever does not wait for it any more has its answer.
                offer.reply.send(PutAnswer::Unavailable).ok();
            }
            return;
        };
        let mut under_way = JoinSet::new();
        let (shared, doubts) = (Arc::clone(&connection), self.doubts.clone());
        match job {
            Job::Offer(offer) => {
                let offers = self.gather(offer).await;
                under_way.spawn(async move {
                    batch::put(&shared, offers, &doubts).await;
                    shared
                });
            }
            Job::Confirm {
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
            Job::Probe(reply) => {
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

    /// The first offer, and those that wait: of each workspace one, as the next follows it. Those who were answered
    /// together a moment ago come again together, and the first of them waits a little for the others.
    async fn gather(&mut self, first: Offer) -> Vec<Offer> {
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
                Some(Job::Offer(offer))
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
