//! Structured log lines: one JSON object per line, identical in every goondan process (`LOG-1`).
//!
//! [`JsonLines`] is a `tracing` layer. A line contains, in this order: `timestamp`, `level`,
//! `message`, the process's [`Identity`] (`process`, `pid`, and the workspace, agent or connection
//! it works for), `traceId`, then the fields of the enclosing spans and the event's own. An inner
//! value replaces an outer one of the same name; names written in Rust's `snake_case` appear as
//! `camelCase`.
//!
//! # Invariants
//!
//! * Every line is one valid JSON object and ends with one newline.
//! * Every line has a `traceId`: the one of the enclosing span, else the process's own (`LOG-3`).
//! * The layer does no I/O: a [`LineSink`], such as [`BufferedStdout`], receives the finished line.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use goondan_protocol::JsonObject;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceId;
use serde_json::{Value, json};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope};
use tracing_subscriber::{Layer, filter::LevelFilter};

use self::fields::Fields;
pub use self::line_limit::LineLimit;
pub use self::stdout::BufferedStdout;
pub use self::text::{TEXT_BYTES_MAX, TextPart, text_parts, whole_characters};

mod fields;
mod line_limit;
mod stdout;
mod text;

/// The environment variable for the minimum log level: `error`, `warn`, `info` (default), `debug`
/// or `trace`.
pub const LEVEL_VAR: &str = goondan_protocol::ipc::LOG_LEVEL_VAR;

/// Takes finished lines, each with its newline.
pub trait LineSink: Send + Sync + 'static {
    /// Receives one line and its level.
    fn line(&self, level: Level, line: Vec<u8>);
}

impl<S: LineSink> LineSink for Arc<S> {
    fn line(&self, level: Level, line: Vec<u8>) {
        S::line(self, level, line);
    }
}

/// The process that writes the lines; added to each line.
#[derive(Debug, Clone)]
pub struct Identity {
    /// `orchestrator`, `agent` or `connector`.
    pub process: &'static str,
    pub pid: u32,
    /// Trace of events outside any other trace.
    pub trace_id: TraceId,
    /// Fields that name the workspace, agent or connection: `workspace_id`, `agent_name`,
    /// `instance_key`, `connection`.
    pub fields: Vec<(&'static str, Value)>,
}

impl Identity {
    fn written(&self) -> Fields {
        let mut fields = Fields::default();
        fields.put("process", self.process);
        fields.put("pid", &self.pid);
        for (name, value) in &self.fields {
            fields.put(name, value);
        }
        fields.put("trace_id", &self.trace_id);
        fields
    }
}

/// Milliseconds since the epoch, for [`Timestamp::from_unix_millis`].
#[must_use]
pub fn unix_millis_now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Parses the level filter from the value of [`LEVEL_VAR`]. An invalid level means `info`.
#[must_use]
pub fn level_filter(text: Option<&str>) -> LevelFilter {
    text.and_then(|text| text.trim().parse().ok())
        .unwrap_or(LevelFilter::INFO)
}

/// Name of a level in log lines.
#[must_use]
pub fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// The layer that converts events to lines.
#[derive(Debug)]
pub struct JsonLines<W> {
    identity: Fields,
    sink: W,
}

impl<W: LineSink> JsonLines<W> {
    /// Creates a layer that writes lines of `identity` to `sink`.
    pub fn new(identity: &Identity, sink: W) -> Self {
        Self {
            identity: identity.written(),
            sink,
        }
    }
}

/// The first fields of every line.
#[must_use]
pub fn line_head(at: Timestamp, level: &str, message: &str) -> JsonObject {
    let mut line = JsonObject::new();
    line.insert("timestamp".into(), json!(at));
    line.insert("level".into(), json!(level));
    line.insert("message".into(), json!(message));
    line
}

/// Serializes a line with its newline.
#[must_use]
pub fn line_bytes(line: &JsonObject) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Formats an error with all its sources: `a: b: c`.
#[must_use]
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

impl<S, W> Layer<S> for JsonLines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: LineSink,
{
    fn on_new_span(&self, attrs: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        if let Some(span) = ctx.span(id) {
            let mut fields = Fields::default();
            attrs.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        if let Some(span) = ctx.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let mut own = Fields::of_line();
        event.record(&mut own);
        let level = *event.metadata().level();
        let mut line = Fields::of_line();
        line.put("timestamp", &Timestamp::from_unix_millis(unix_millis_now()));
        line.put("level", level_name(level));
        if !line.copy(&own, "message") {
            line.put("message", "");
        }
        line.extend(&self.identity);
        for span in ctx
            .event_scope(event)
            .into_iter()
            .flat_map(Scope::from_root)
        {
            if let Some(outer) = span.extensions().get::<Fields>() {
                line.extend(outer);
            }
        }
        line.extend(&own);
        self.sink.line(level, line.line());
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::Mutex;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct CapturedLines(Arc<Mutex<Vec<Vec<u8>>>>);

    impl LineSink for CapturedLines {
        fn line(&self, _: Level, line: Vec<u8>) {
            self.0.lock().unwrap().push(line);
        }
    }

    fn lines_of(work: impl FnOnce()) -> Vec<JsonObject> {
        let lines = CapturedLines::default();
        let identity = Identity {
            process: "agent",
            pid: 7,
            trace_id: TraceId::from_random([1; 16]),
            fields: vec![("agent_name", json!("a"))],
        };
        let layer = JsonLines::new(&identity, lines.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
        let lines = lines.0.lock().unwrap();
        lines
            .iter()
            .map(|line| {
                assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
                serde_json::from_slice(line).unwrap()
            })
            .collect()
    }

    #[test]
    fn a_line_has_identity_trace_and_fields() {
        let lines = lines_of(|| {
            tracing::info!("outside");
            let span = tracing::info_span!("turn", trace_id = "t-1", turn_id = "x");
            let _guard = span.enter();
            tracing::warn!(tool_name = "bash__exec", count = 3, "in\nside");
        });
        assert_eq!(lines[0]["message"], "outside");
        assert_eq!(lines[0]["traceId"], "01".repeat(16));
        assert_eq!(lines[0]["agentName"], "a");
        assert_eq!(lines[1]["traceId"], "t-1");
        assert_eq!(lines[1]["turnId"], "x");
        assert_eq!(lines[1]["toolName"], "bash__exec");
        assert_eq!(lines[1]["count"], 3);
        assert_eq!(lines[1]["level"], "warn");
    }

    #[test]
    fn an_error_is_written_with_its_sources_once() {
        #[derive(Debug)]
        struct WrappedError(std::io::Error);
        impl fmt::Display for WrappedError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("cannot open")
            }
        }
        impl std::error::Error for WrappedError {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        let error = WrappedError(std::io::Error::other("disk gone"));
        assert_eq!(error_chain(&error), "cannot open: disk gone");
    }

    #[test]
    fn the_level_is_read_or_info() {
        assert_eq!(level_filter(Some("debug")), LevelFilter::DEBUG);
        assert_eq!(level_filter(Some("nonsense")), LevelFilter::INFO);
        assert_eq!(level_filter(None), LevelFilter::INFO);
    }
}
