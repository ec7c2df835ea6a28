//! A connection to one server, and its session settings.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use goondan_clock::timeout;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio_postgres::error::DbError;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, NoTls, Row, Statement};
use tokio_util::sync::CancellationToken;

use crate::fault::ConnectFault;
use crate::limits::CONNECT_DEADLINE_MS;
use crate::schema;
use crate::settings::{HostSettings, PostgresSettings};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionUse {
    /// Puts records: each commit waits for the disk and for synchronous standbys.
    Puts,
    /// Everything else. Its writes do not need to wait: heartbeats, trims that may be lost in a
    /// crash, and parts of snapshots, which a later record makes durable.
    Reads,
}

impl ConnectionUse {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Puts => "puts",
            Self::Reads => "reads",
        }
    }
}

/// Server timeouts are disabled, because they would not free a commit whose standby is gone.
/// Warnings are enabled even if the role suppresses them, because a warning reports an unconfirmed
/// commit. Every row is found by its key, independent of statistics, and plans are cached, because
/// planning a put takes longer than the put.
const SESSION: &str = "
SET client_min_messages = warning;
SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN (
    'statement_timeout', 'lock_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout',
    'transaction_timeout');
SET default_transaction_isolation = 'read committed';
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET jit = off;
SET plan_cache_mode = force_generic_plan;
";

/// Commits wait for the disk of the server and its synchronous standbys; a stricter setting is
/// kept.
const COMMITS_WAIT: &str = "
SELECT set_config('synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)";

const COMMITS_DO_NOT_WAIT: &str = "SET synchronous_commit = off";

/// A connection that is ready for use.
pub(crate) struct Connection {
    client: Client,
    /// Prepared statements, by text.
    statements: HashMap<&'static str, Statement>,
    warnings: Arc<AtomicU64>,
    ended: CancellationToken,
    host: String,
    /// Moves bytes between the client and its socket, and ends with the connection.
    _driver: JoinSet<()>,
}

impl Connection {
    /// Connects to the first host of the settings that accepts connections and writes.
    ///
    /// # Errors
    ///
    /// [`ConnectFault`] of the first host that rejects the credentials, or of the last host.
    pub(crate) async fn make(
        settings: &PostgresSettings,
        purpose: ConnectionUse,
        statements: &[&'static str],
    ) -> Result<Self, ConnectFault> {
        let mut fault = ConnectFault::Lost;
        // A standby rejects every client, so its error is less relevant than a rejected password of
        // another host.
        let says_less = |fault: &ConnectFault| !fault.is_of_credentials();
        for host in settings.hosts() {
            let deadline = Duration::from_millis(CONNECT_DEADLINE_MS);
            let made = timeout(deadline, Self::make_at(host, purpose, statements)).await;
            match made {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(other)) if says_less(&fault) => fault = other,
                Err(_elapsed) if says_less(&fault) => {
                    fault = ConnectFault::Late {
                        host: host.name.clone(),
                    };
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
        Err(fault)
    }

    async fn make_at(
        host: &HostSettings,
        purpose: ConnectionUse,
        statements: &[&'static str],
    ) -> Result<Self, ConnectFault> {
        let (warnings, ended) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let mut driver = JoinSet::new();
        let refused = |source| ConnectFault::Refused {
            host: host.name.clone(),
            source,
        };
        let client = match &host.tls {
            None => {
                let connected = host.config.connect(NoTls).await;
                let (client, driven) = connected.map_err(refused)?;
                driver.spawn(drive(driven, Arc::clone(&warnings), ended.clone()));
                client
            }
            Some(tls) => {
                let connected = host.config.connect(tls.clone()).await;
                let (client, driven) = connected.map_err(refused)?;
                driver.spawn(drive(driven, Arc::clone(&warnings), ended.clone()));
                client
            }
        };
        let session = |source| ConnectFault::Session { source };
        client.batch_execute(SESSION).await.map_err(session)?;
        client.batch_execute(COMMITS_WAIT).await.map_err(session)?;
        schema::ensure(&client).await?;
        if purpose == ConnectionUse::Reads {
            let set = client.batch_execute(COMMITS_DO_NOT_WAIT).await;
            set.map_err(session)?;
        }
        let mut prepared = HashMap::new();
        for text in statements {
            prepared.insert(*text, client.prepare(text).await.map_err(session)?);
        }
        Ok(Self {
            client,
            statements: prepared,
            warnings,
            ended,
            host: host.name.clone(),
            _driver: driver,
        })
    }

    /// Executes a statement and waits for its end, including the commit.
    ///
    /// # Errors
    ///
    /// The error of the server or the connection.
    pub(crate) async fn query(
        &self,
        text: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        match self.statements.get(text) {
            Some(statement) => self.client.query(statement, values).await,
            None => self.client.query(text, values).await,
        }
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Number of warnings from the server. A statement's warning arrives before its end.
    pub(crate) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Relaxed)
    }

    /// Waits for its end. Cancel-safe.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Marks the connection as unusable. Pending queries get no answer.
    pub(crate) fn condemn(&self) {
        self.ended.cancel();
    }

    /// True if the connection is usable.
    pub(crate) fn is_good(&self) -> bool {
        !self.ended.is_cancelled() && !self.client.is_closed()
    }
}

async fn drive<S, T>(
    mut driven: tokio_postgres::Connection<S, T>,
    warnings: Arc<AtomicU64>,
    ended: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let condemned = ended.clone();
    let work = async {
        // Messages arrive in order, so a warning is counted before the end of its statement is
        // reported.
        while let Some(Ok(message)) = poll_fn(|context| driven.poll_message(context)).await {
            if let AsyncMessage::Notice(notice) = message
                && is_warning(&notice)
            {
                warnings.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let work = pin!(work);
    tokio::select! {
        () = work => {}
        () = condemned.cancelled() => {}
    }
    ended.cancel();
}

/// Checks for SQLSTATE class 01, because the severity is a localized word.
fn is_warning(notice: &DbError) -> bool {
    notice.code().code().starts_with("01")
}
