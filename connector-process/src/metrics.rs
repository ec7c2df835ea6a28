//! `metrics`: answers `GET /metrics` with what the daemon counts, as OpenMetrics (`OBS-3`). It brings no events.
//!
//! Whoever asks often does not have the daemon asked as often: a snapshot is told to everybody for
//! [`METRICS_FRESH_MS`].

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_clock::Instant;
use goondan_connectors::Values;
use goondan_protocol::JsonObject;
use goondan_protocol::ipc::{EventRefused, RefusalCode};
use goondan_protocol::metrics::open_metrics;
use tokio::sync::Mutex;

use crate::gateway::Gateway;
use crate::limits::METRICS_FRESH_MS;
use crate::listener::{HttpEndpoint, Meaning, Page, Received, Refusal, Service};

/// What was told last, and when.
type Latest = Mutex<Option<(Instant, Arc<str>)>>;

/// One endpoint.
#[derive(Debug)]
pub(crate) struct Metrics {
    http_endpoint: HttpEndpoint,
    latest: Arc<Latest>,
}

impl Metrics {
    pub(crate) fn new(config: &JsonObject) -> Self {
        Self {
            http_endpoint: HttpEndpoint::without_body(&Values::of("metrics", config)),
            latest: Arc::default(),
        }
    }
}

impl Service for Metrics {
    fn http_endpoint(&self) -> &HttpEndpoint {
        &self.http_endpoint
    }

    fn method(&self) -> &'static str {
        "GET"
    }

    fn is_guarded(&self) -> bool {
        false
    }

    fn exposed(&self) -> &'static str {
        "anybody who reaches this address can read the names of the project and what its agents take"
    }

    fn read(&self, _received: &Received<'_>) -> Result<Meaning, Refusal> {
        Ok(Meaning::Page)
    }

    fn page(&self, gateway: Gateway) -> BoxFuture<'static, Result<Page, Refusal>> {
        let latest = Arc::clone(&self.latest);
        async move {
            let text = text(&latest, &gateway).await.map_err(|message| {
                Refusal::ByOrchestrator(EventRefused {
                    code: RefusalCode::Unavailable,
                    message,
                })
            })?;
            Ok(Page {
                content_type: open_metrics::CONTENT_TYPE,
                text,
            })
        }
        .boxed()
    }
}

/// What is told now: one asks the daemon, others wait for that.
async fn text(latest: &Latest, gateway: &Gateway) -> Result<Arc<str>, String> {
    let mut latest = latest.lock().await;
    if let Some((since, text)) = latest.as_ref()
        && Instant::now() - *since < Duration::from_millis(METRICS_FRESH_MS)
    {
        return Ok(Arc::clone(text));
    }
    let snapshot = gateway.metrics().await?;
    let text: Arc<str> = open_metrics::text(&snapshot).into();
    *latest = Some((Instant::now(), Arc::clone(&text)));
    Ok(text)
}
