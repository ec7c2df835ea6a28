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
use goondan_outbound::PROXY_AUTHENTICATION_REQUIRED;
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
    EXPORT_ANSWER_BYTES_MAX, EXPORT_ANSWER_CHARS_MAX, EXPORT_ATTEMPTS_MAX, EXPORT_CONNECT_MS,
    EXPORT_LAST_MS, EXPORT_PAUSE_FIRST_MS, EXPORT_REQUEST_MS,
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
    /// Status when all is well, for people.
    shown: String,
    /// The status that was last reported.
    reported: tokio::sync::Mutex<String>,
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
        let shown = format!("exports traces to {url}");
        Ok(Self {
            collector: Arc::new(Collector {
                reported: tokio::sync::Mutex::new(shown.clone()),
                shown,
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
            gateway: gateway.clone(),
            stop: stop.clone(),
        };
        gateway.serve(Arc::new(exporter)).await;
        gateway.report(true, collector.shown.clone()).await;
        tokio::select! {
            () = stop.cancelled() => {}
            () = collector.export_metrics(&gateway) => {}
        }
    }
}

struct Exporter {
    collector: Arc<Collector>,
    gateway: Gateway,
    stop: CancellationToken,
}

impl CallHandler for Exporter {
    fn call(&self, call: CallOrder, _pieces: Pieces) -> BoxFuture<'static, RawCallResult> {
        let (collector, stop) = (Arc::clone(&self.collector), self.stop.clone());
        let gateway = self.gateway.clone();
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
                    delivered = collector.deliver(&collector.url, &body) => {
                        collector.report(&gateway, &delivered).await;
                        delivered?;
                    }
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

    /// Reports the outcome of an export in `gdn ps`, if it differs from the previous one.
    async fn report(&self, gateway: &Gateway, delivered: &Result<Option<String>, CallError>) {
        let status = match delivered {
            Ok(None) => self.shown.clone(),
            Ok(Some(rejected)) => format!("{}; {rejected}", self.shown),
            Err(error) => format!("{}; {}", self.shown, error.message),
        };
        if let Ok(Some(rejected)) = delivered {
            tracing::warn!(reason = rejected, "the collector rejected trace events");
        }
        let mut reported = self.reported.lock().await;
        if *reported != status {
            status.clone_into(&mut reported);
            gateway.report(true, status).await;
        }
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
                Ok(None) => is_failing = false,
                Ok(Some(reason)) | Err(reason) if !is_failing => {
                    tracing::warn!(reason, "failed to export metrics; retrying");
                    is_failing = true;
                }
                Ok(Some(_)) | Err(_) => {}
            }
        }
    }

    /// Sends a batch, with retries if the collector cannot accept it at the moment. Returns the
    /// collector's report of rejected data, if any.
    async fn deliver(&self, url: &Url, body: &str) -> Result<Option<String>, CallError> {
        let mut attempt = 1;
        loop {
            let (error, is_passing) = match self.send(url, body).await {
                Ok(rejected) => return Ok(rejected),
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
    async fn send(&self, url: &Url, body: &str) -> Result<Option<String>, (CallError, bool)> {
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
            Ok(sent) => sent.map_err(goondan_outbound::error_text),
            Err(_elapsed) => Err(format!("no answer within {EXPORT_REQUEST_MS} ms")),
        };
        let response = sent.map_err(|why| {
            let message = format!("failed to connect to the collector: {why}");
            (CallError::new(CallErrorCode::Unavailable, message), true)
        })?;
        let status = response.status();
        let said = answer_of(response).await;
        if status.is_success() {
            return Ok(rejected_in(&said));
        }
        if status.as_u16() == PROXY_AUTHENTICATION_REQUIRED
            && let Some(problem) = goondan_outbound::rejection_by_proxy(url)
        {
            let error = CallError::new(CallErrorCode::Unavailable, problem.to_string());
            return Err((error, false));
        }
        let is_passing = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        let said = shown(&said);
        let message = match said.is_empty() {
            true => format!("the collector answered {status}"),
            false => format!("the collector answered {status}: {said}"),
        };
        Err((CallError::new(CallErrorCode::Refused, message), is_passing))
    }
}

/// The beginning of a response's body, as far as it arrives in time.
async fn answer_of(mut response: reqwest::Response) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(part)) = response.chunk().await {
            let room = EXPORT_ANSWER_BYTES_MAX.saturating_sub(body.len());
            body.extend(part.iter().take(room));
            if part.len() >= room {
                break;
            }
        }
    };
    // A collector that sends no end is not worth a failed export: its status is known.
    timeout(Duration::from_millis(EXPORT_REQUEST_MS), read)
        .await
        .ok();
    body
}

/// The beginning of a body for people.
fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(EXPORT_ANSWER_CHARS_MAX)
        .collect();
    text.trim().to_owned()
}

/// The collector's report of rejected data in a successful response (`partialSuccess`).
fn rejected_in(body: &[u8]) -> Option<String> {
    let said: serde_json::Value = serde_json::from_slice(body).ok()?;
    let partial = said.get("partialSuccess")?;
    let counts = [
        ("rejectedSpans", "spans"),
        ("rejectedDataPoints", "data points"),
    ];
    let rejected = counts.iter().find_map(|(name, items)| {
        let count = partial.get(name)?;
        // 64-bit numbers are strings in this format.
        let count: u64 = count.as_u64().or_else(|| count.as_str()?.parse().ok())?;
        (count > 0).then(|| format!("the collector rejected {count} {items}"))
    });
    let message = partial
        .get("errorMessage")
        .and_then(serde_json::Value::as_str);
    let message = shown(message.unwrap_or_default().as_bytes());
    match (rejected, message.as_str()) {
        (None, "") => None,
        (None, message) => Some(format!("the collector warns: {message}")),
        (Some(rejected), "") => Some(rejected),
        (Some(rejected), message) => Some(format!("{rejected}: {message}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prov_1_partial_success_of_a_collector_is_reported() {
        let of = |body: &str| rejected_in(body.as_bytes());
        let told = of(r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#);
        assert_eq!(told.unwrap(), "the collector rejected 3 spans: too old");
        let told = of(r#"{"partialSuccess":{"rejectedDataPoints":2}}"#);
        assert_eq!(told.unwrap(), "the collector rejected 2 data points");
        for nothing in [
            "",
            "{}",
            r#"{"partialSuccess":{}}"#,
            r#"{"partialSuccess":null}"#,
            "\n\u{0}",
        ] {
            assert_eq!(of(nothing), None, "{nothing}");
        }
    }
}
