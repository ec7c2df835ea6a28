//! One connection to one server, and how its session is set.

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
use crate::settings::{HostSettings, Settings};

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Offering records: each commit waits for the disk and for synchronous standbys.
    Puts,
    /// Everything else. What it writes is worth no wait: a heartbeat, a trim that is lost with a crash, parts of
    /// snapshots that the record behind them makes durable.
    Reads,
}

impl Purpose {
    /// For the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Puts => "puts",
            Self::Reads => "reads",
        }
    }
}

/// Nothing of the server's ends a statement: a deadline of the server's would not free a commit whose standby is gone.
/// A role may have been told not to hear warnings, and it is a warning that says that a commit was not confirmed.
/// Whatever the planner believes of tables that it has not looked at yet, each row is found by its key; and it thinks of
/// that once: planning a put takes longer than the put.
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

/// On the disk of the server, and of its synchronous standbys if it has any; what asks for more stays.
const COMMITS_WAIT: &str = "
SELECT set_config('synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)";

const COMMITS_DO_NOT_WAIT: &str = "SET synchronous_commit = off";

/// A connection that is ready for use.
pub(crate) struct Connection {
    client: Client,
    /// Prepared, by their texts.
    statements: HashMap<&'static str, Statement>,
    warnings: Arc<AtomicU64>,
    ended: CancellationToken,
    host: String,
    /// Moves bytes between the client and its socket, and ends with it.
    _driver: JoinSet<()>,
}

impl Connection {
    /// The first host of the settings that takes a connection and writes.
    ///
    /// # Errors
    ///
    /// [`ConnectFault`] of the first host that refuses who asks, or else of the last host.
    pub(crate) async fn make(
        settings: &Settings,
        purpose: Purpose,
        statements: &[&'static str],
    ) -> Result<Self, ConnectFault> {
        let mut fault = ConnectFault::Lost;
        // A standby refuses everybody, which says nothing of the password that another host refuses.
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
        purpose: Purpose,
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
        if purpose == Purpose::Reads {
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

    /// Asks a statement and waits for its end, the commit included.
    ///
    /// # Errors
    ///
    /// Whatever the server or the connection says.
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

    /// To which host.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// How many warnings the server has sent. One that belongs to a statement comes before its end.
    pub(crate) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Relaxed)
    }

    /// Waits for its end. Cancel-safe.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Is not to be used any more: whoever waits for an answer on it gets none.
    pub(crate) fn condemn(&self) {
        self.ended.cancel();
    }

    /// Whether it can be used still.
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
        // The messages of a connection come in its order, so what is counted here is counted before the statement
        // that it belongs to is known to have ended.
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

/// By class 01 of SQLSTATE: the severity is a word in the server's language.
fn is_warning(notice: &DbError) -> bool {
    notice.code().code().starts_with("01")
}
