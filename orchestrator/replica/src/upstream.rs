//! Maintains one connection: connects, reconnects with growing delays, and logs each change once.

use std::future::pending;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use goondan_clock::sleep_until;
use goondan_log::error_chain;
use goondan_replication::limits::{RETRY_FIRST_MS, RETRY_MAX_MS};
use tokio::task::JoinSet;

use crate::connection::{Connection, ConnectionUse};
use crate::fault::ConnectFault;
use crate::settings::CurrentSettings;

/// Last logged state of a server and number of its usable connections; shared by connections to the
/// same server.
#[derive(Debug, Clone, Default)]
pub(crate) struct UpstreamHealth {
    last: Arc<AtomicU8>,
    good: Arc<AtomicUsize>,
    trouble: Arc<Mutex<Option<String>>>,
}

impl UpstreamHealth {
    const ANSWERS: u8 = 1;
    const DOES_NOT: u8 = 2;

    fn is_news(&self, what: u8) -> bool {
        self.last.swap(what, Ordering::Relaxed) != what
    }

    /// The reason that the server does not respond; `None` while it does.
    pub(crate) fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock();
        trouble.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

/// A maintained connection.
pub(crate) struct Upstream {
    settings: CurrentSettings,
    purpose: ConnectionUse,
    statements: &'static [&'static str],
    state: State,
    failures: u32,
    said: UpstreamHealth,
    /// True if this connection is counted as usable.
    is_good: bool,
    /// True if the server accepts connections but does not finish statements, so connecting proves
    /// nothing.
    is_late: bool,
    /// Host of the last connection.
    host: Option<String>,
}

enum State {
    Pausing(goondan_clock::Instant),
    Connecting(JoinSet<Result<Connection, ConnectFault>>),
    Up(Arc<Connection>),
    /// No connection is created until one is given or released.
    Held,
}

impl Upstream {
    /// Starts connecting immediately.
    pub(crate) fn new(
        settings: CurrentSettings,
        purpose: ConnectionUse,
        statements: &'static [&'static str],
        said: UpstreamHealth,
    ) -> Self {
        Self {
            settings,
            purpose,
            statements,
            state: State::Pausing(goondan_clock::Instant::now()),
            failures: 0,
            said,
            is_good: false,
            is_late: false,
            host: None,
        }
    }

    /// The connection, if usable.
    pub(crate) fn current(&self) -> Option<Arc<Connection>> {
        match &self.state {
            State::Up(connection) if connection.is_good() => Some(Arc::clone(connection)),
            _ => None,
        }
    }

    /// Works on a connection until its state changes. Cancel-safe.
    pub(crate) async fn progress(&mut self) {
        match &mut self.state {
            State::Pausing(until) => {
                sleep_until(*until).await;
                self.connect();
            }
            State::Connecting(attempt) => {
                let made = attempt.join_next().await;
                match made {
                    Some(Ok(Ok(connection))) => {
                        self.give(Arc::new(connection));
                        if !self.is_late {
                            self.proved();
                        }
                    }
                    Some(Ok(Err(fault))) => self.failed(&fault),
                    Some(Err(_)) | None => self.failed(&ConnectFault::Lost),
                }
            }
            State::Up(connection) => {
                connection.ended().await;
                self.failed(&ConnectFault::Lost);
            }
            State::Held => pending().await,
        }
    }

    /// Abandons the connection and creates another one.
    pub(crate) fn leave(&mut self, fault: &ConnectFault) {
        self.failed(fault);
    }

    /// Abandons the connection without creating another one until [`Self::give`] or
    /// [`Self::release`].
    pub(crate) fn hold(&mut self, fault: &ConnectFault) {
        self.failed(fault);
        tracing::warn!("too many unfinished statements; appends of some workspaces wait");
        self.state = State::Held;
    }

    /// Creates another connection after [`Self::hold`].
    pub(crate) fn release(&mut self) {
        if matches!(self.state, State::Held) {
            self.connect();
        }
    }

    /// Uses a connection, unless another one exists.
    pub(crate) fn give(&mut self, connection: Arc<Connection>) {
        if self.current().is_none() {
            tracing::debug!(link = self.purpose.name(), "connection ready");
            self.host = Some(connection.host().to_owned());
            self.state = State::Up(connection);
        }
    }

    /// Records that a statement was answered.
    pub(crate) fn proved(&mut self) {
        self.failures = 0;
        self.is_late = false;
        if self.is_good {
            return;
        }
        self.is_good = true;
        self.said.set_trouble(None);
        self.said.good.fetch_add(1, Ordering::Relaxed);
        if self.said.is_news(UpstreamHealth::ANSWERS) {
            let (host, link) = (self.host.as_deref(), self.purpose.name());
            tracing::info!(host, link, "log server reachable");
        }
    }

    fn connect(&mut self) {
        let (settings, purpose, statements) = (self.settings.get(), self.purpose, self.statements);
        let mut attempt = JoinSet::new();
        attempt.spawn(async move { Connection::make(&settings, purpose, statements).await });
        self.state = State::Connecting(attempt);
    }

    fn failed(&mut self, fault: &ConnectFault) {
        self.is_late |= matches!(fault, ConnectFault::LateAnswer);
        if std::mem::take(&mut self.is_good) {
            self.said.good.fetch_sub(1, Ordering::Relaxed);
        }
        // If another connection is usable, the server is up, but it may still not finish
        // statements.
        let is_alone = self.said.good.load(Ordering::Relaxed) == 0;
        let counts = is_alone || self.is_late;
        let reason = error_chain(fault);
        // The reason of a failed connection attempt is more specific than the loss of a connection.
        let says_more = !matches!(fault, ConnectFault::Lost) || self.said.trouble().is_none();
        if counts && says_more {
            self.said.set_trouble(Some(reason.clone()));
        }
        if counts && self.said.is_news(UpstreamHealth::DOES_NOT) {
            let link = self.purpose.name();
            tracing::warn!(
                reason,
                link,
                "log server unreachable; retrying with backoff"
            );
        }
        let pause_ms = RETRY_FIRST_MS << self.failures.min(u64::BITS / 4);
        self.failures = self.failures.saturating_add(1);
        let pause = Duration::from_millis(pause_ms.min(RETRY_MAX_MS));
        self.state = State::Pausing(goondan_clock::Instant::now() + pause);
    }
}
