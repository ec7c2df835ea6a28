//! Actions of a listening connector for agents, and the state of its token.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_protocol::call::{CallError, CallErrorCode, CallOrder};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::calls::{CallHandler, Pieces, RawCallResult};
use crate::gateway::Gateway;
use crate::limits::{SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS};

/// Outgoing side of a listening connector.
pub(crate) trait Outbox: CallHandler {
    /// Checks that the service accepts the token, and returns the account. Succeeds if there is
    /// nothing to check.
    fn check(&self) -> BoxFuture<'static, Result<Option<String>, CallError>>;
}

/// Performs an outbox's calls and detects when the token is no longer accepted.
pub(crate) struct MonitoredOutbox {
    outbox: Arc<dyn Outbox>,
    rejected: Arc<Notify>,
}

impl MonitoredOutbox {
    /// Wraps `outbox`.
    pub(crate) fn new(outbox: Arc<dyn Outbox>) -> Self {
        Self {
            outbox,
            rejected: Arc::default(),
        }
    }

    /// Continuously reports to people if agents can write, appended to the fixed `detail`.
    pub(crate) fn watch(
        &self,
        gateway: Gateway,
        detail: String,
    ) -> impl Future<Output = ()> + Send + 'static + use<> {
        let (outbox, rejected) = (Arc::clone(&self.outbox), Arc::clone(&self.rejected));
        async move {
            let mut pause = Duration::from_millis(SERVICE_BACK_OFF_FIRST_MS);
            let longest = Duration::from_millis(SERVICE_BACK_OFF_MAX_MS);
            let mut said = (true, detail.clone());
            loop {
                let checked = outbox.check().await;
                let now = match &checked {
                    Ok(None) => (true, detail.clone()),
                    Ok(Some(who)) => (true, format!("{detail}, writing as {who}")),
                    Err(error) if error.code == CallErrorCode::Unauthorized => {
                        (false, format!("{detail}, but agents cannot write: {error}"))
                    }
                    Err(error) => (true, format!("{detail}; {error}; trying again")),
                };
                if said != now {
                    if checked.is_err() {
                        tracing::warn!(reason = now.1, "agents cannot write");
                    }
                    gateway.report(now.0, now.1.clone()).await;
                    said = now;
                }
                match checked {
                    Ok(_) => {
                        rejected.notified().await;
                        pause = Duration::from_millis(SERVICE_BACK_OFF_FIRST_MS);
                    }
                    // Only a person can fix the token.
                    Err(error) if error.code == CallErrorCode::Unauthorized => sleep(longest).await,
                    Err(error) => {
                        let asked = Duration::from_millis(error.retry_after_ms.unwrap_or(0));
                        sleep(pause.max(asked)).await;
                        pause = (pause * 2).min(longest);
                    }
                }
            }
        }
    }
}

impl CallHandler for MonitoredOutbox {
    fn call(&self, call: CallOrder, pieces: Pieces) -> BoxFuture<'static, RawCallResult> {
        let rejected = Arc::clone(&self.rejected);
        let made = self.outbox.call(call, pieces);
        async move {
            let outcome = made.await;
            if let Err(error) = &outcome
                && error.code == CallErrorCode::Unauthorized
            {
                rejected.notify_one();
            }
            outcome
        }
        .boxed()
    }
}
