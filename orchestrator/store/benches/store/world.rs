//! Instances, events and messages for the benchmarks.

use std::collections::VecDeque;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use goondan_durable::disk::{Disk, RealDisk};
use goondan_protocol::event::{AgentEvent, EventSource, TurnOutcome};
use goondan_protocol::ids::{InstanceRef, WorkspaceId};
use goondan_protocol::time::Timestamp;
use goondan_store::index::InstanceIndex;
use goondan_store::root::Layout;
use goondan_store::workspace;
use goondan_store::writer::operation::{Accept, AppendEvent, BeginTurn};
use goondan_store::writer::{Op, StoreCompletion, StoreJob, Worker};
use goondan_writers::Writers;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc::UnboundedReceiver;

/// Number of writer threads, as in the daemon.
pub(crate) const WRITER_THREADS: usize = 4;
/// Size of a message, in bytes.
pub(crate) const MESSAGE_BYTES: usize = 1_000;

pub(crate) fn at() -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000)
}

pub(crate) fn completed() -> TurnOutcome {
    TurnOutcome::Completed {
        reply: "done".into(),
    }
}

pub(crate) fn event(id: &str) -> Result<AgentEvent, Box<dyn Error>> {
    Ok(AgentEvent {
        id: id.parse()?,
        kind: "message".into(),
        created_at: at(),
        trace_id: None,
        parent_span_id: None,
        input: Some("x".into()),
        header: None,
        properties: goondan_protocol::JsonObject::new(),
        instance_key: None,
        source: EventSource::Connector {
            name: "cli".parse()?,
        },
        auth: None,
        reply_to: None,
        chain: None,
        join: None,
        metadata: goondan_protocol::JsonObject::new(),
    })
}

/// Returns a message of about [`MESSAGE_BYTES`].
pub(crate) fn message(id: &str) -> serde_json::Value {
    json!({
        "id": id, "data": {"role": "user", "content": "x".repeat(MESSAGE_BYTES - 150)},
        "metadata": {}, "createdAt": "2026-01-01T00:00:00.000Z", "source": {"type": "user"},
    })
}

pub(crate) fn append(id: &str) -> Result<Box<RawValue>, Box<dyn Error>> {
    let event = json!({"type": "append", "message": message(id)});
    Ok(serde_json::value::to_raw_value(&event)?)
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed())
}

/// Writer threads over a new workspace.
pub(crate) struct BenchWriters {
    writers: Writers<Worker>,
    completed: UnboundedReceiver<Vec<StoreCompletion>>,
    reported: VecDeque<StoreCompletion>,
    pub(crate) layout: Layout,
    pub(crate) workspace_id: WorkspaceId,
    runtime: tokio::runtime::Runtime,
}

impl BenchWriters {
    pub(crate) fn new(dir: &Path) -> Result<Self, Box<dyn Error>> {
        let layout = Layout::new(dir);
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        std::fs::create_dir_all(layout.workspaces())?;
        let record = workspace::open(disk.as_ref(), &layout, Path::new("/p"), None)?;
        let index = InstanceIndex::default();
        let workers = Worker::for_threads(&disk, &layout, &index, WRITER_THREADS, u64::MAX);
        let (writers, completed) = Writers::start(workers)?;
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        Ok(Self {
            writers,
            completed,
            reported: VecDeque::new(),
            layout,
            workspace_id: record.workspace_id,
            runtime,
        })
    }

    pub(crate) fn instance(&self, key: &str) -> Result<InstanceRef, Box<dyn Error>> {
        Ok(InstanceRef {
            workspace_id: self.workspace_id.clone(),
            instance_key: key.parse()?,
        })
    }

    pub(crate) fn submit(&self, token: u64, op: Op) -> Result<(), Box<dyn Error>> {
        let submitted = self
            .runtime
            .block_on(self.writers.submit(vec![StoreJob { token, op }]));
        submitted.map_err(|_| "a writer thread has ended".into())
    }

    /// Returns the next report's token.
    pub(crate) fn next(&mut self) -> Result<u64, Box<dyn Error>> {
        while self.reported.is_empty() {
            let reports = self.completed.blocking_recv().ok_or("no report came")?;
            self.reported.extend(reports);
        }
        let completion = self.reported.pop_front().ok_or("no report came")?;
        completion.report.into_done()?;
        Ok(completion.token)
    }

    pub(crate) fn run(&mut self, op: Op) -> Result<(), Box<dyn Error>> {
        self.submit(0, op)?;
        self.next().map(drop)
    }

    /// An instance in the middle of a turn.
    pub(crate) fn in_turn(&mut self, key: &str) -> Result<InstanceRef, Box<dyn Error>> {
        let instance = self.instance(key)?;
        self.run(Op::from(Accept {
            instance: instance.clone(),
            agent: "agent".parse()?,
            event: Box::new(event("e1")?),
            former_id: None,
        }))?;
        self.run(Op::from(BeginTurn {
            config_digest: None,
            observation: goondan_protocol::observe::ObservationBounds::default(),
            instance: instance.clone(),
            turn_id: "t1".parse()?,
            event_id: "e1".parse()?,
            at: at(),
        }))?;
        Ok(instance)
    }

    pub(crate) fn append(
        &self,
        token: u64,
        instance: &InstanceRef,
        seq: u64,
    ) -> Result<(), Box<dyn Error>> {
        let op = Op::from(AppendEvent {
            instance: instance.clone(),
            turn_id: "t1".parse()?,
            seq,
            event: append(&format!("m{seq}"))?,
        });
        self.submit(token, op)
    }
}
