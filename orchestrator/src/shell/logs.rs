//! The single log stream (`LOG-2`): lines of the daemon and of all children.
//!
//! [`LogHub`] receives every line. It never blocks unless configured to: lines are queued in a
//! bounded queue for stdout or the log files. When the queue is full, lines are dropped and
//! counted, and the count is reported in the stream (`LOG-3`).

use std::collections::VecDeque;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use goondan_log::{
    Identity, JsonLines, LEVEL_VAR, LineSink, line_bytes, line_head, unix_millis_now,
};
use goondan_protocol::JsonObject;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceId;
use goondan_store::root::{LogConfig, LogOverflow};
use serde_json::json;
use tokio::sync::broadcast;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;

use super::masking::Masks;
use crate::limits::{
    LOG_FOLLOW_LINES, LOG_PAUSE_MS, LOG_QUEUE_LINES, LOG_TAIL_BYTES, LOG_TAIL_LINES,
    LOG_WRITE_BYTES,
};

mod collect;
pub(super) mod journal;
mod own_line;
mod rotate;
mod split;
mod traces;

pub(super) use collect::{Collector, collect};
pub(super) use traces::Traces;

/// Destination of every log line.
#[derive(Debug)]
pub(super) struct LogHub {
    out: NonBlocking,
    dropped: ErrorCounter,
    dropped_before: Mutex<DroppedLines>,
    tail: Mutex<Tail>,
    follow: broadcast::Sender<Bytes>,
    identity: OnceLock<Identity>,
    /// The most detailed level that is written.
    level: LevelFilter,
    masks: Arc<Masks>,
}

/// The latest lines, for clients.
#[derive(Debug, Default)]
struct Tail {
    lines: VecDeque<Bytes>,
    bytes: usize,
}

/// Lines dropped because the queue was full, which means that stdout is read too slowly.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DroppedLines {
    pub(super) count: u64,
    /// Time at which the latest increase was noticed.
    pub(super) noticed_at: Option<Timestamp>,
}

impl Tail {
    fn push(&mut self, line: Bytes) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.bytes > LOG_TAIL_BYTES || self.lines.len() > LOG_TAIL_LINES {
            match self.lines.pop_front() {
                Some(oldest) => self.bytes -= oldest.len(),
                None => break,
            }
        }
    }
}

impl LogHub {
    /// Creates a hub that writes to stdout, or to rotated files in `log_dir`. Dropping the guard
    /// writes the queued lines.
    pub(super) fn start(
        log_dir: Option<&Path>,
        config: &LogConfig,
        masks: Arc<Masks>,
    ) -> io::Result<(Arc<Self>, WorkerGuard)> {
        let out: Box<dyn Write + Send> = match log_dir {
            Some(dir) => Box::new(rotate::RotatingFile::open(
                dir,
                config.max_file_bytes,
                config.max_files,
            )?),
            // The writer thread flushes whenever the queue is empty, so this does not delay lines.
            None => {
                let stdout = BufWriter::with_capacity(LOG_WRITE_BYTES, io::stdout());
                if journal::is_stream(io::stdout()) {
                    Box::new(journal::PriorityWriter(stdout))
                } else {
                    Box::new(stdout)
                }
            }
        };
        let (out, guard) = NonBlockingBuilder::default()
            .lossy(config.overflow == LogOverflow::Drop)
            .buffered_lines_limit(LOG_QUEUE_LINES)
            .thread_name("log")
            .finish(ThrottledWriter(out));
        let dropped = out.error_counter();
        let (follow, _) = broadcast::channel(LOG_FOLLOW_LINES);
        Ok((
            Arc::new(Self {
                out,
                dropped,
                dropped_before: Mutex::default(),
                tail: Mutex::default(),
                follow,
                identity: OnceLock::new(),
                level: goondan_log::level_filter(std::env::var(LEVEL_VAR).ok().as_deref()),
                masks,
            }),
            guard,
        ))
    }

    /// Makes this hub the destination of the daemon's own log lines.
    pub(super) fn install(self: &Arc<Self>, trace_id: TraceId) {
        let identity = Identity {
            process: "orchestrator",
            pid: std::process::id(),
            trace_id,
            fields: Vec::new(),
        };
        let layer = JsonLines::new(&identity, self.clone()).with_filter(self.level);
        drop(self.identity.set(identity));
        let subscriber = tracing_subscriber::registry().with(layer);
        // Set once per process. Two daemons in one process are not supported.
        drop(tracing::subscriber::set_global_default(subscriber));
        std::panic::set_hook(Box::new(|panic| {
            tracing::error!(panic = %panic, "a bug in goondan: please report it");
        }));
    }

    /// Writes a log line of the daemon with dynamic fields.
    pub(super) fn log(self: &Arc<Self>, level: tracing::Level, message: &str, fields: JsonObject) {
        if level > self.level {
            return;
        }
        let at = Timestamp::from_unix_millis(unix_millis_now());
        let mut line = line_head(at, goondan_log::level_name(level), message);
        if let Some(identity) = self.identity.get() {
            line.insert("process".to_owned(), json!(identity.process));
            line.insert("pid".to_owned(), json!(identity.pid));
            line.insert("traceId".to_owned(), json!(identity.trace_id));
        }
        line.extend(fields);
        self.write(line_bytes(&line));
    }

    /// Writes one line, including its newline.
    fn write(&self, line: Vec<u8>) {
        let line = Bytes::from(self.masks.line(line));
        {
            let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
            tail.push(line.clone());
            // An error means that there are no followers.
            drop(self.follow.send(line.clone()));
        }
        // The writer counts lines dropped by a full queue.
        drop(self.out.clone().write_all(&line));
    }

    /// The values that are masked in all lines (`SEC-2`).
    pub(super) fn masks(&self) -> &Masks {
        &self.masks
    }

    /// Number of dropped lines. Must be called regularly, so that the recorded time is accurate.
    pub(super) fn dropped_lines(&self) -> DroppedLines {
        let count = u64::try_from(self.dropped.dropped_lines()).unwrap_or(u64::MAX);
        let before = self.dropped_before.lock();
        let mut before = before.unwrap_or_else(PoisonError::into_inner);
        if before.count != count {
            let noticed_at = Some(Timestamp::from_unix_millis(unix_millis_now()));
            *before = DroppedLines { count, noticed_at };
        }
        *before
    }

    /// The latest lines, oldest first, and a receiver for new lines, without a gap.
    pub(super) fn follow(&self) -> (Vec<Bytes>, broadcast::Receiver<Bytes>) {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        (
            tail.lines.iter().cloned().collect(),
            self.follow.subscribe(),
        )
    }
}

/// Delays after each flush, which happens whenever the queue is empty. Otherwise nearly every line
/// of a busy daemon would wake the writer thread, at the cost of the logging thread.
struct ThrottledWriter<W>(W);

impl<W: Write> Write for ThrottledWriter<W> {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.0.write(lines)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()?;
        std::thread::sleep(Duration::from_millis(LOG_PAUSE_MS));
        Ok(())
    }
}

impl LineSink for LogHub {
    fn line(&self, _: tracing::Level, line: Vec<u8>) {
        self.write(line);
    }
}
