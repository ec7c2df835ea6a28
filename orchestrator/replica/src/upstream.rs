//! Keeps one connection: makes it, makes it anew when it is lost, ever more rarely, and says once what has changed.

use std::future::pending;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use goondan_clock::sleep_until;
use goondan_log::error_chain;
use goondan_replication::limits::{RETRY_FIRST_MS, RETRY_MAX_MS};
use tokio::task::JoinSet;

use crate::connection::{Connection, Purpose};
use crate::fault::ConnectFault;
use crate::settings::CurrentSettings;

/// What was said last of a server, and how many connections to it are good; shared by those that are for the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said {
    last: Arc<AtomicU8>,
    good: Arc<AtomicUsize>,
    trouble: Arc<Mutex<Option<String>>>,
}

impl Said {
    const ANSWERS: u8 = 1;
    const DOES_NOT: u8 = 2;

    fn is_news(&self, what: u8) -> bool {
        self.last.swap(what, Ordering::Relaxed) != what
    }

    /// Why the server does not answer; none while it does.
    pub(crate) fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock();
        trouble.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

/// A connection that is kept.
pub(crate) struct Upstream {
    settings: CurrentSettings,
    purpose: Purpose,
    statements: &'static [&'static str],
    state: State,
    /// Tries in a row that came to nothing.
    failures: u32,
    said: Said,
    /// Whether this one is counted among those that are good.
    is_good: bool,
    /// Whether it takes connections and does not finish statements: a connection proves nothing then.
    is_late: bool,
    /// To which host the last connection was.
    host: Option<String>,
}

enum State {
    Pausing(goondan_clock::Instant),
    Connecting(JoinSet<Result<Connection, ConnectFault>>),
    Up(Arc<Connection>),
    /// No connection is wanted until one is given back.
    Held,
}

impl Upstream {
    /// One that begins to connect at once.
    pub(crate) fn new(
        settings: CurrentSettings,
        purpose: Purpose,
        statements: &'static [&'static str],
        said: Said,
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

    /// The connection, if there is one that can be used.
    pub(crate) fn current(&self) -> Option<Arc<Connection>> {
        match &self.state {
            State::Up(connection) if connection.is_good() => Some(Arc::clone(connection)),
            _ => None,
        }
    }

    /// Works on having one, until something has changed. Cancel-safe.
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

    /// The connection is not used any more: another one is made.
    pub(crate) fn leave(&mut self, fault: &ConnectFault) {
        self.failed(fault);
    }

    /// The connection is not used any more, and no other one is made until [`Self::give`] or [`Self::release`].
    pub(crate) fn hold(&mut self, fault: &ConnectFault) {
        self.failed(fault);
        tracing::warn!(
            "so many statements are not finished that for some workspaces nothing is put until one of them ends"
        );
        self.state = State::Held;
    }

    /// If it was held: another one is made.
    pub(crate) fn release(&mut self) {
        if matches!(self.state, State::Held) {
            self.connect();
        }
    }

    /// Uses a connection, if there is no other one yet.
    pub(crate) fn give(&mut self, connection: Arc<Connection>) {
        if self.current().is_none() {
            tracing::debug!(link = self.purpose.name(), "a connection is ready");
            self.host = Some(connection.host().to_owned());
            self.state = State::Up(connection);
        }
    }

    /// A statement was answered on it.
    pub(crate) fn proved(&mut self) {
        self.failures = 0;
        self.is_late = false;
        if self.is_good {
            return;
        }
        self.is_good = true;
        self.said.set_trouble(None);
        self.said.good.fetch_add(1, Ordering::Relaxed);
        if self.said.is_news(Said::ANSWERS) {
            let (host, link) = (self.host.as_deref(), self.purpose.name());
            tracing::info!(host, link, "the server of the log answers");
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
        // While another connection is good, the server is there; it may not finish statements all the same.
        let is_alone = self.said.good.load(Ordering::Relaxed) == 0;
        let counts = is_alone || self.is_late;
        let reason = error_chain(fault);
        // A connection that was lost says less than why there is no other one.
        let says_more = !matches!(fault, ConnectFault::Lost) || self.said.trouble().is_none();
        if counts && says_more {
            self.said.set_trouble(Some(reason.clone()));
        }
        if counts && self.said.is_news(Said::DOES_NOT) {
            let link = self.purpose.name();
            tracing::warn!(
                reason,
                link,
                "the server of the log cannot be reached; it is asked again, ever more rarely"
            );
        }
        let pause_ms = RETRY_FIRST_MS << self.failures.min(u64::BITS / 4);
        self.failures = self.failures.saturating_add(1);
        let pause = Duration::from_millis(pause_ms.min(RETRY_MAX_MS));
        self.state = State::Pausing(goondan_clock::Instant::now() + pause);
    }
}
