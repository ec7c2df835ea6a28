//! `metrics`: answers `GET /metrics` with the daemon's metrics (`OBS-3`), as OpenMetrics, or in
//! Prometheus text format 0.0.4 for clients that accept only that. It produces no events.
//!
//! The daemon is not asked for every request: a snapshot is reused for [`METRICS_FRESH_MS`].

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
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
use crate::listener::{
    HttpEndpoint, InboundRequest, InboundService, PageFormat, RawRequest, RequestRejection,
    StaticPage,
};

/// The latest snapshot and its time.
type LatestSnapshot = Mutex<Option<(Instant, Texts)>>;

/// One snapshot in both formats.
#[derive(Debug, Clone)]
struct Texts {
    open_metrics: Arc<str>,
    prometheus: Arc<str>,
}

/// The format that a client accepts, by its `Accept` header.
fn accepted(headers: &HeaderMap) -> PageFormat {
    let accepts = |name: &str| {
        let mut values = headers.get_all(ACCEPT).iter();
        values.any(|value| value.to_str().is_ok_and(|value| value.contains(name)))
    };
    if accepts("text/plain") && !accepts("application/openmetrics-text") {
        PageFormat::Plain
    } else {
        PageFormat::Usual
    }
}

#[derive(Debug)]
pub(crate) struct Metrics {
    http_endpoint: HttpEndpoint,
    latest: Arc<LatestSnapshot>,
}

impl Metrics {
    pub(crate) fn new(config: &JsonObject) -> Self {
        Self {
            http_endpoint: HttpEndpoint::without_body(&Values::of("metrics", config)),
            latest: Arc::default(),
        }
    }
}

impl InboundService for Metrics {
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
        "any client that can reach this address can read the project's names and its agents' usage"
    }

    fn read(&self, received: &RawRequest<'_>) -> Result<InboundRequest, RequestRejection> {
        Ok(InboundRequest::Page(accepted(received.headers)))
    }

    fn page(
        &self,
        gateway: Gateway,
        format: PageFormat,
    ) -> BoxFuture<'static, Result<StaticPage, RequestRejection>> {
        let latest = Arc::clone(&self.latest);
        async move {
            let texts = texts(&latest, &gateway).await.map_err(|message| {
                RequestRejection::ByOrchestrator(EventRefused::new(
                    RefusalCode::Unavailable,
                    message,
                ))
            })?;
            Ok(match format {
                PageFormat::Usual => StaticPage {
                    content_type: open_metrics::CONTENT_TYPE,
                    text: texts.open_metrics,
                },
                PageFormat::Plain => StaticPage {
                    content_type: open_metrics::PROMETHEUS_CONTENT_TYPE,
                    text: texts.prometheus,
                },
            })
        }
        .boxed()
    }
}

/// The current texts. One request asks the daemon, and concurrent ones wait for its result.
async fn texts(latest: &LatestSnapshot, gateway: &Gateway) -> Result<Texts, String> {
    let mut latest = latest.lock().await;
    if let Some((since, texts)) = latest.as_ref()
        && Instant::now() - *since < Duration::from_millis(METRICS_FRESH_MS)
    {
        return Ok(texts.clone());
    }
    let snapshot = gateway.metrics().await?;
    let texts = Texts {
        open_metrics: open_metrics::text(&snapshot).into(),
        prometheus: open_metrics::prometheus_text(&snapshot).into(),
    };
    *latest = Some((Instant::now(), texts.clone()));
    Ok(texts)
}
