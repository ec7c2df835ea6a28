//! `metrics`: answers `GET /metrics` with the daemon's metrics (`OBS-3`), as OpenMetrics, or in
//! Prometheus text format 0.0.4 for clients that accept only that, and `GET /livez` and `GET
//! /readyz`. It produces no events.
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
use goondan_protocol::metrics::{
    Label, Metric, MetricValue, MetricsSnapshot, Micros, OTHER, open_metrics,
};
use tokio::sync::Mutex;

use crate::gateway::Gateway;
use crate::limits::METRICS_FRESH_MS;
use crate::listener::{
    HttpEndpoint, InboundRequest, InboundService, PageFormat, RawRequest, RequestRejection,
    StaticPage,
};

/// Path that answers 200 while the daemon answers.
const LIVE_PATH: &str = "/livez";

/// Path that answers 200 while the workspace works.
const READY_PATH: &str = "/readyz";

/// Metrics that are above 0 if a workspace does not work, with their meaning.
const UNREADY: [(Metric, &str); 3] = [
    (Metric::WorkspaceProblem, "its configuration cannot run"),
    (Metric::UnreadyProcesses, "a process is not ready"),
    (Metric::BackoffProcesses, "a process keeps crashing"),
];

/// The latest snapshot and its time.
type LatestSnapshot = Mutex<Option<(Instant, Texts)>>;

/// One snapshot in both formats.
#[derive(Debug, Clone)]
struct Texts {
    open_metrics: Arc<str>,
    prometheus: Arc<str>,
    /// Reason why the workspace does not work.
    unready: Option<Arc<str>>,
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

    fn further_paths(&self) -> &'static [&'static str] {
        &[LIVE_PATH, READY_PATH]
    }

    fn is_guarded(&self) -> bool {
        false
    }

    fn exposed(&self) -> &'static str {
        "any client that can reach this address can read the project's names and its agents' usage"
    }

    fn read(&self, received: &RawRequest<'_>) -> Result<InboundRequest, RequestRejection> {
        Ok(InboundRequest::Page(match received.path {
            LIVE_PATH => PageFormat::Live,
            READY_PATH => PageFormat::Ready,
            _ => accepted(received.headers),
        }))
    }

    fn page(
        &self,
        gateway: Gateway,
        format: PageFormat,
    ) -> BoxFuture<'static, Result<StaticPage, RequestRejection>> {
        let latest = Arc::clone(&self.latest);
        async move {
            let unavailable = |message: String| {
                let refused = EventRefused::new(RefusalCode::Unavailable, message);
                RequestRejection::ByOrchestrator(refused)
            };
            let texts = texts(&latest, &gateway).await.map_err(unavailable)?;
            Ok(match format {
                PageFormat::Live => short_page("alive\n"),
                PageFormat::Ready => match texts.unready {
                    Some(reason) => return Err(unavailable(reason.to_string())),
                    None => short_page("ready\n"),
                },
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

fn short_page(text: &str) -> StaticPage {
    StaticPage {
        content_type: "text/plain; charset=utf-8",
        text: text.into(),
    }
}

/// Reason why the workspace of a snapshot does not work; `None` if it works. Series of other
/// workspaces, which are combined, do not count.
fn unready(snapshot: &MetricsSnapshot) -> Option<String> {
    for (metric, meaning) in UNREADY {
        let families = snapshot.families.iter();
        let mut series = families
            .filter(|family| family.metric == metric)
            .flat_map(|family| &family.series);
        let found = series.find(|series| {
            let is_above_0 =
                matches!(series.value, MetricValue::Number(value) if value > Micros::default());
            is_above_0 && series.labels.get(Label::Workspace) != Some(OTHER)
        });
        if let Some(series) = found {
            let names = [Label::Connection, Label::Model, Label::Agent];
            let name = names.into_iter().find_map(|label| series.labels.get(label));
            return Some(match name {
                Some(name) => format!("not ready: {meaning}: {name}"),
                None => format!("not ready: {meaning}"),
            });
        }
    }
    None
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
        unready: unready(&snapshot).map(Into::into),
    };
    *latest = Some((Instant::now(), texts.clone()));
    Ok(texts)
}
