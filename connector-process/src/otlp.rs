//! `otlp`: exports traces and metrics to a collector, with OTLP over HTTP in its JSON encoding.
//!
//! The orchestrator supplies the runtime events; [`spans`] converts them to spans by the semantic
//! conventions for generative AI, and [`wire`] serializes them. A batch that the collector cannot
//! accept at the moment is retried a few times; then the orchestrator is notified and counts the
//! loss.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_clock::{sleep, timeout};
use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallError, CallErrorCode, CallOrder};
use goondan_protocol::export::{EXPORT, Export, OTLP};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Url};
use serde_json::value::to_raw_value;
use tokio_util::sync::CancellationToken;

use crate::calls::{CallHandler, Pieces, RawCallResult};
use crate::gateway::Gateway;
use crate::http;
use crate::limits::{
    EXPORT_ATTEMPTS_MAX, EXPORT_CONNECT_MS, EXPORT_LAST_MS, EXPORT_PAUSE_FIRST_MS,
    EXPORT_REQUEST_MS,
};
use crate::otlp::spans::Spans;

mod metrics;
mod spans;
mod wire;

/// Path of traces, appended to the address of a collector.
const TRACES_PATH: &str = "/v1/traces";

const METRICS_PATH: &str = "/v1/metrics";

/// The collector's URL of one signal.
fn url_of(endpoint: &str, path: &str) -> Result<Url, String> {
    let url = Url::parse(&format!("{endpoint}{path}")).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| {
        "`endpoint` is not the URL of a collector; write it like `http://127.0.0.1:4318`".to_owned()
    })
}

/// The exporter of one connection.
pub(crate) struct Otlp {
    collector: Arc<Collector>,
    shown: String,
}

struct Collector {
    client: Client,
    url: Url,
    metrics_url: Url,
    /// Interval of metrics exports; `None` disables them.
    metrics_every: Option<Duration>,
    authorization: Option<HeaderValue>,
    service: String,
    spans: Mutex<Spans>,
}

impl Otlp {
    /// Creates an exporter from validated settings.
    ///
    /// # Errors
    ///
    /// A description of the failure.
    pub(crate) fn new(
        config: &JsonObject,
        secrets: &std::collections::BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let text = |name: &str| config.get(name).and_then(serde_json::Value::as_str);
        let endpoint = text("endpoint").unwrap_or("http://127.0.0.1:4318");
        let endpoint = endpoint.trim_end_matches('/');
        let endpoint = endpoint.strip_suffix(TRACES_PATH).unwrap_or(endpoint);
        let url = url_of(endpoint, TRACES_PATH)?;
        let metrics_url = url_of(endpoint, METRICS_PATH)?;
        let every_s = goondan_connectors::Values::of(OTLP, config).number("metricsSeconds");
        let metrics_every = every_s.filter(|every_s| *every_s > 0);
        let authorization = match secrets.get("authorization") {
            Some(secret) => {
                let value = HeaderValue::from_str(secret).ok();
                let mut value =
                    value.ok_or("the secret `authorization` is not a valid header value")?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        let client = http::client(Duration::from_millis(EXPORT_CONNECT_MS));
        let client = client.map_err(|error| goondan_log::error_chain(&error))?;
        Ok(Self {
            shown: format!("exports traces to {url}"),
            collector: Arc::new(Collector {
                client,
                url,
                metrics_url,
                metrics_every: metrics_every.map(Duration::from_secs),
                authorization,
                service: text("serviceName").unwrap_or("goondan").to_owned(),
                spans: Mutex::default(),
            }),
        })
    }

    /// Exports until `stop`.
    pub(crate) async fn run(self, gateway: Gateway, stop: CancellationToken) {
        let collector = Arc::clone(&self.collector);
        let exporter = Exporter {
            collector: self.collector,
            stop: stop.clone(),
        };
        gateway.serve(Arc::new(exporter)).await;
        gateway.report(true, self.shown).await;
        tokio::select! {
            () = stop.cancelled() => {}
            () = collector.export_metrics(&gateway) => {}
        }
    }
}

struct Exporter {
    collector: Arc<Collector>,
    stop: CancellationToken,
}

impl CallHandler for Exporter {
    fn call(&self, call: CallOrder, _pieces: Pieces) -> BoxFuture<'static, RawCallResult> {
        let (collector, stop) = (Arc::clone(&self.collector), self.stop.clone());
        async move {
            if call.method != EXPORT {
                let message = format!("unknown method of an exporter: `{}`", call.method);
                return Err(CallError::new(CallErrorCode::NotFound, message));
            }
            let export: Export = serde_json::from_str(call.params.get())
                .map_err(|error| CallError::new(CallErrorCode::Invalid, error.to_string()))?;
            let body = collector.body_of(&export);
            if let Some(body) = body {
                let given_up = async {
                    stop.cancelled().await;
                    sleep(Duration::from_millis(EXPORT_LAST_MS)).await;
                };
                tokio::select! {
                    delivered = collector.deliver(&collector.url, &body) => delivered?,
                    () = given_up => {
                        let message = "the connection is ending, and the collector does not answer";
                        return Err(CallError::new(CallErrorCode::Cancelled, message));
                    }
                }
            }
            to_raw_value(&())
                .map_err(|error| CallError::new(CallErrorCode::Internal, error.to_string()))
        }
        .boxed()
    }
}

impl Collector {
    /// Serializes the spans ended by these events; `None` if no span has ended.
    fn body_of(&self, export: &Export) -> Option<String> {
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = export.events.iter();
        let ended: Vec<_> = ended
            .filter_map(|exported| spans.take(&export.workspace_id, exported))
            .collect();
        (!ended.is_empty()).then(|| wire::request(&self.service, &ended))
    }

    /// Exports metrics periodically. A failed export is not stored, because the next one contains
    /// all totals.
    async fn export_metrics(&self, gateway: &Gateway) {
        let Some(every) = self.metrics_every else {
            return std::future::pending().await;
        };
        let mut is_failing = false;
        loop {
            sleep(every).await;
            let delivered = match gateway.metrics().await {
                Ok(snapshot) => {
                    let body = metrics::request(&self.service, &snapshot);
                    let delivered = self.deliver(&self.metrics_url, &body).await;
                    delivered.map_err(|error| error.message)
                }
                Err(problem) => Err(problem),
            };
            match delivered {
                Ok(()) => is_failing = false,
                Err(reason) if !is_failing => {
                    tracing::warn!(reason, "failed to export metrics; retrying");
                    is_failing = true;
                }
                Err(_) => {}
            }
        }
    }

    /// Sends a batch, with retries if the collector cannot accept it at the moment.
    async fn deliver(&self, url: &Url, body: &str) -> Result<(), CallError> {
        let mut attempt = 1;
        loop {
            let (error, is_passing) = match self.send(url, body).await {
                Ok(()) => return Ok(()),
                Err(problem) => problem,
            };
            if !is_passing || attempt >= EXPORT_ATTEMPTS_MAX {
                return Err(error);
            }
            let pause_ms = EXPORT_PAUSE_FIRST_MS << (attempt - 1);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            attempt += 1;
        }
    }

    /// Sends a batch once. The error's flag is true if a retry may help.
    async fn send(&self, url: &Url, body: &str) -> Result<(), (CallError, bool)> {
        let mut request = self
            .client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_owned());
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let sent = timeout(Duration::from_millis(EXPORT_REQUEST_MS), request.send()).await;
        let sent = match sent {
            Ok(sent) => sent.map_err(|error| goondan_log::error_chain(&error.without_url())),
            Err(_elapsed) => Err(format!("no answer within {EXPORT_REQUEST_MS} ms")),
        };
        let response = sent.map_err(|why| {
            let message = format!("failed to connect to the collector: {why}");
            (CallError::new(CallErrorCode::Unavailable, message), true)
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let is_passing = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        let message = format!("the collector answered {status}");
        Err((CallError::new(CallErrorCode::Refused, message), is_passing))
    }
}
