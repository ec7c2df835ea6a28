//! Everything but offering records: reading, trimming, heartbeats, snapshots. Nothing here waits for a commit.
//!
//! One connection serves all, and the server answers in the order of the questions. No statement on it waits for a
//! row that a put holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use goondan_clock::timeout;
use goondan_log::error_chain;
use goondan_protocol::ids::WorkspaceId;
use goondan_replication::limits::{ANSWER_DEADLINE_MS, HEADS_MAX};
use goondan_replication::log::ReadAnswer;
use goondan_replication::names::Position;
use goondan_replication::wire::{Beat, KeptSnapshot, LogAnswer, ServerCheck, SnapshotPartRef};
use tokio::sync::watch;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use crate::check;
use crate::connection::{Connection, ConnectionUse};
use crate::doubts::InDoubtPositions;
use crate::fault::ConnectFault;
use crate::limits::{HEARD_DAYS, SWEEP_RECORDS_MAX};
use crate::page::{PAGE, page, position, seq};
use crate::puts::PutLanes;
use crate::settings::CurrentSettings;
use crate::upstream::{Upstream, UpstreamHealth};

mod heads;

/// Truncates a log to begin with the given record, if that exists and no put holds the workspace.
/// Returns the oldest remaining position. The truncation is atomic, because no reader may begin
/// with a record between two snapshots.
const TRIM: &str = "
WITH mine AS (
    SELECT h.workspace FROM goondan.heads AS h
    JOIN goondan.records AS r ON r.workspace = h.workspace AND r.seq = $2 AND r.hash = $3
    WHERE h.workspace = $1 AND h.oldest < $2
        AND (SELECT count(*) FROM goondan.parts WHERE workspace = $1 AND reference = $4) = $5
    FOR UPDATE OF h SKIP LOCKED
), cut AS (
    UPDATE goondan.heads AS h SET oldest = $2 FROM mine WHERE h.workspace = mine.workspace
    RETURNING h.oldest
)
SELECT coalesce((SELECT oldest FROM cut), (SELECT oldest FROM goondan.heads WHERE workspace = $1))";

/// Removes some of the records before the beginning of a log, and returns their number.
const SWEEP: &str = "
WITH gone AS (
    DELETE FROM goondan.records WHERE workspace = $1 AND seq IN (
        SELECT r.seq FROM goondan.records AS r JOIN goondan.heads AS h ON h.workspace = r.workspace
        WHERE r.workspace = $1 AND r.seq < h.oldest ORDER BY r.seq LIMIT $2
    )
    RETURNING 1
)
SELECT count(*) FROM gone";

const KEEP_PART: &str = "
INSERT INTO goondan.parts (workspace, reference, number, bytes) VALUES ($1, $2, $3::bigint, $4)
ON CONFLICT (workspace, reference, number) DO UPDATE SET bytes = excluded.bytes";

const READ_PART: &str = "
SELECT bytes FROM goondan.parts WHERE workspace = $1 AND reference = $2 AND number = $3::bigint";

const FORGET_SNAPSHOTS: &str = r#"
DELETE FROM goondan.parts WHERE workspace = $1 AND reference COLLATE "C" < $2 AND EXISTS (
    SELECT FROM goondan.heads AS h
    JOIN goondan.records AS r ON r.workspace = h.workspace AND r.seq = h.oldest
    WHERE h.workspace = $1 AND h.oldest = $3 AND r.hash = $4
)"#;

const STATEMENTS: &[&str] = &[
    PAGE,
    TRIM,
    SWEEP,
    KEEP_PART,
    READ_PART,
    FORGET_SNAPSHOTS,
    heads::HEADS,
    heads::LIST,
    heads::BEAT,
];

/// Executes statements that do not wait for a commit.
#[derive(Clone)]
pub(crate) struct Reads {
    connection: watch::Receiver<Option<Arc<Connection>>>,
    doubts: InDoubtPositions,
    puts: PutLanes,
    said: UpstreamHealth,
}

/// Maintains the connection; runs concurrently with the requests.
pub(crate) struct ConnectionKeeper {
    upstream: Upstream,
    connection: watch::Sender<Option<Arc<Connection>>>,
}

impl ConnectionKeeper {
    /// Runs until it is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            self.upstream.progress().await;
            self.connection.send_replace(self.upstream.current());
        }
    }
}

impl Reads {
    /// Returns the interface for requests, and the keeper of the connection.
    pub(crate) fn new(
        settings: CurrentSettings,
        doubts: InDoubtPositions,
        puts: PutLanes,
    ) -> (Self, ConnectionKeeper) {
        let (sender, connection) = watch::channel(None);
        let said = UpstreamHealth::default();
        let keeper = ConnectionKeeper {
            upstream: Upstream::new(settings, ConnectionUse::Reads, STATEMENTS, said.clone()),
            connection: sender,
        };
        let reads = Self {
            connection,
            doubts,
            puts,
            said,
        };
        (reads, keeper)
    }

    /// Reads a log from a position on.
    pub(crate) async fn read(&self, workspace: WorkspaceId, from: Position) -> ReadAnswer {
        let Some(connection) = self.connection() else {
            return ReadAnswer::Unavailable;
        };
        let read = answered(&connection, page(&connection, &workspace, from)).await;
        let page = match read {
            Some(page) if self.doubts.reach(&workspace, page.head) => {
                self.puts.confirmed(workspace, from).await
            }
            other => other,
        };
        page.map_or(ReadAnswer::Unavailable, ReadAnswer::Page)
    }

    /// Truncates the log before a snapshot's record, and removes as many records as possible until
    /// the deadline; the next call continues.
    pub(crate) async fn trim(&self, workspace: &WorkspaceId, before: &KeptSnapshot) -> LogAnswer {
        let deadline = goondan_clock::Instant::now() + Duration::from_millis(ANSWER_DEADLINE_MS);
        let workspace = workspace.as_str();
        let (at, hash) = (seq(before.at), before.hash.0.as_slice());
        let (reference, parts) = (before.reference.as_str(), i64::from(before.parts));
        let values: [&(dyn ToSql + Sync); 5] = [&workspace, &at, &hash, &reference, &parts];
        let rows = self.ask(TRIM, &values).await;
        let Some(oldest) = rows.and_then(|rows| number(&rows)) else {
            return LogAnswer::Unavailable;
        };
        let at_once = i64::try_from(SWEEP_RECORDS_MAX).unwrap_or(i64::MAX);
        while goondan_clock::Instant::now() < deadline {
            let rows = self.ask(SWEEP, &[&workspace, &at_once]).await;
            if rows.and_then(|rows| number(&rows)) != Some(at_once) {
                break;
            }
        }
        LogAnswer::Trimmed(position(Some(oldest)))
    }

    /// Returns the last positions of logs, and the recent heartbeats of their nodes.
    pub(crate) async fn heads(&self, workspaces: &[WorkspaceId]) -> LogAnswer {
        let workspaces: Vec<_> = workspaces.iter().map(WorkspaceId::as_str).collect();
        let rows = self.ask(heads::HEADS, &[&workspaces, &HEARD_DAYS]).await;
        let read = rows.and_then(|rows| heads::read(&rows));
        read.map_or(LogAnswer::Unavailable, LogAnswer::Heads)
    }

    pub(crate) async fn list(&self, after: Option<&WorkspaceId>) -> LogAnswer {
        // No name is empty, so every name sorts after "".
        let after = after.map_or("", WorkspaceId::as_str);
        let at_once = i64::try_from(HEADS_MAX).unwrap_or(i64::MAX);
        let rows = self.ask(heads::LIST, &[&after, &at_once]).await;
        let listed = rows.and_then(|rows| heads::listed(&rows));
        listed.map_or(LogAnswer::Unavailable, LogAnswer::Listed)
    }

    /// Stores heartbeats of nodes.
    pub(crate) async fn beat(&self, beats: Vec<Beat>) -> LogAnswer {
        // The last heartbeat of each node.
        let latest = beats.into_iter().map(|beat| {
            let key = (beat.workspace.clone(), beat.node.clone());
            (key, beat)
        });
        let latest: BTreeMap<_, _> = latest.collect();
        let columns = heads::Columns::of(latest.values());
        noted(self.ask(heads::BEAT, &columns.values()).await)
    }

    pub(crate) async fn keep_part(&self, part: &SnapshotPartRef, bytes: &[u8]) -> LogAnswer {
        let (workspace, reference) = (part.workspace.as_str(), part.reference.as_str());
        let number = i64::from(part.number);
        let values: [&(dyn ToSql + Sync); 4] = [&workspace, &reference, &number, &bytes];
        noted(self.ask(KEEP_PART, &values).await)
    }

    pub(crate) async fn read_part(&self, part: &SnapshotPartRef) -> LogAnswer {
        let (workspace, reference) = (part.workspace.as_str(), part.reference.as_str());
        let number = i64::from(part.number);
        let Some(rows) = self
            .ask(READ_PART, &[&workspace, &reference, &number])
            .await
        else {
            return LogAnswer::Unavailable;
        };
        let bytes = rows.first().map(|row| row.try_get(0)).transpose();
        bytes.map_or(LogAnswer::Unavailable, LogAnswer::Part)
    }

    /// Deletes the snapshots that are older than the given one.
    pub(crate) async fn forget_snapshots(
        &self,
        workspace: &WorkspaceId,
        before: &KeptSnapshot,
    ) -> LogAnswer {
        let (workspace, reference) = (workspace.as_str(), before.reference.as_str());
        let (at, hash) = (seq(before.at), before.hash.0.as_slice());
        let values: [&(dyn ToSql + Sync); 4] = [&workspace, &reference, &at, &hash];
        noted(self.ask(FORGET_SNAPSHOTS, &values).await)
    }

    /// Reason why puts or reads fail; `None` if they do not.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.puts.trouble().or_else(|| self.said.trouble())
    }

    /// Checks the server's settings, and that it confirms puts.
    pub(crate) async fn check(&self) -> Vec<ServerCheck> {
        let found = match self.connection() {
            Some(connection) => {
                let rows = self.ask(check::LOOK, &[]).await;
                rows.map(|rows| check::findings(connection.host(), &rows))
            }
            None => None,
        };
        let Some(mut findings) = found else {
            return vec![check::unreachable(self.trouble())];
        };
        // An earlier result may be outdated, because an idle node sends no requests.
        if !self.puts.probe().await {
            let trouble = self.puts.trouble();
            let trouble = trouble.unwrap_or_else(|| error_chain(&ConnectFault::LateAnswer));
            findings.push(check::unconfirmed(trouble));
        }
        findings
    }

    /// Checks if the server confirms a commit.
    pub(crate) async fn probe(&self) -> LogAnswer {
        if self.puts.probe().await {
            LogAnswer::Noted
        } else {
            LogAnswer::Unavailable
        }
    }

    fn connection(&self) -> Option<Arc<Connection>> {
        let current = self.connection.borrow().clone();
        current.filter(|connection| connection.is_good())
    }

    async fn ask(&self, text: &'static str, values: &[&(dyn ToSql + Sync)]) -> Option<Vec<Row>> {
        let connection = self.connection()?;
        answered(&connection, connection.query(text, values)).await
    }
}

/// Waits for an answer until the deadline. A connection with a late answer is not used again.
async fn answered<T>(
    connection: &Connection,
    asked: impl Future<Output = Result<T, Error>>,
) -> Option<T> {
    match timeout(Duration::from_millis(ANSWER_DEADLINE_MS), asked).await {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(error)) => {
            tracing::debug!(error = error_chain(&error), "failed to answer a query");
            None
        }
        Err(_elapsed) => {
            connection.condemn();
            None
        }
    }
}

fn noted(rows: Option<Vec<Row>>) -> LogAnswer {
    rows.map_or(LogAnswer::Unavailable, |_| LogAnswer::Noted)
}

/// Number in the result of a statement; 0 if it is null.
fn number(rows: &[Row]) -> Option<i64> {
    let value: Option<i64> = rows.first()?.try_get(0).ok()?;
    Some(value.unwrap_or(0))
}
