//! The event loop: turns every event into an input of the core, and executes its effects.
//!
//! This task owns every child and every open request; it shares no state and does not poll. It
//! waits only where waiting is the defined reaction to overload: for a place in a writer's queue.
//! When it wakes, it handles all pending events together, and sends the store all resulting jobs in
//! one batch, so that each thread is woken once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use goondan_clock::RunningTime;
use goondan_durable::disk::Disk;
use goondan_log::unix_millis_now;
use goondan_protocol::control::{
    Call, ControlError, EmptyResult, ErrorCode, MoveWorkspace, ProcessesPage, WatchProcesses,
};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::metrics::{MetricsSnapshot, Sample};
use goondan_protocol::time::Timestamp;
use goondan_store::root::Layout;
use goondan_store::writer::{StoreCompletion, StoreJob, Worker};
use goondan_writers::Writers;
use sd_notify::NotifyState;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::cgroups::Cgroups;
use super::child::{self, Reports, RunningChild};
use super::control::client::ControlClient;
use super::conversation_snapshots::JointThread;
use super::event::ShellEvent;
use super::file_watcher::Watches;
use super::launcher::Launcher;
use super::logs::LogHub;
use super::memory::{self, ProcessTree};
use super::oauth::OAuthThread;
use super::orphans_of_agents;
use super::packages::PackageKeeper;
use super::process_watches::{self, Groups, ProcessWatches};
use super::replication::handle::{Replication, UnacknowledgedWorkspaces};
use super::restored;
use super::self_check;
use super::supply;
use super::tasks::TaskThread;
use super::timed_disk::SyncTimes;
use super::workspace_load::Projects;
use crate::limits::{SUPERVISOR_BATCH_EVENTS, TICKS_OF_MEASURE};
use crate::metrics::{Metrics, ShellMetrics};
use goondan_core::limits::TICK_MS;
use goondan_core::{
    ClockTime, Core, CoreInput, LogEvent, ProcessId, RequestToken, Severity, check_person,
};

mod effects;

/// Data that the shell adds to an answer of the core.
#[derive(Debug, Clone, Copy)]
enum Addition {
    DroppedLogLines,
    Memory,
}

/// A request that is not answered yet.
#[derive(Debug)]
struct OpenRequest {
    client: ControlClient,
    id: u64,
    /// Data that the shell adds to the answer.
    addition: Option<Addition>,
}

pub(super) struct EventLoop {
    pub(super) core: Core,
    launcher: Arc<Launcher>,
    /// Set if workspaces are replicated.
    replication: Option<Replication>,
    /// Workspaces without acknowledgments, as last reported to the core.
    unacknowledged: Arc<UnacknowledgedWorkspaces>,
    pub(super) reports: Reports,
    pub(super) writers: Writers<Worker>,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) layout: Layout,
    projects: Projects,
    packages: Arc<PackageKeeper>,
    watches: Watches,
    process_watches: ProcessWatches,
    /// Number of configurations that were queued for storing.
    kept: u64,
    children: HashMap<ProcessId, RunningChild>,
    cgroups: Cgroups,
    tasks_thread: TaskThread,
    joint_thread: JointThread,
    oauth_thread: OAuthThread,
    requests: HashMap<RequestToken, OpenRequest>,
    tasks: JoinSet<()>,
    /// Jobs that are not sent to the store yet.
    jobs: Vec<StoreJob>,
    metrics: Metrics,
    syncs: SyncTimes,
    started_at: Timestamp,
    started: Instant,
    running_time: RunningTime,
    ticks: u64,
    announced_drops: u64,
    /// True if an exited child may have left processes behind.
    strays_are_due: bool,
    is_over: bool,
}

impl EventLoop {
    pub(super) fn new(
        core: Core,
        launcher: Arc<Launcher>,
        reports: Reports,
        writers: Writers<Worker>,
        projects: Projects,
        (cgroups, syncs): (Cgroups, SyncTimes),
        (tasks_thread, joint_thread, oauth_thread): (TaskThread, JointThread, OAuthThread),
    ) -> Self {
        Self {
            core,
            launcher,
            replication: projects.replication.clone(),
            unacknowledged: Arc::default(),
            reports,
            writers,
            disk: projects.disk.clone(),
            layout: projects.layout.clone(),
            packages: Arc::new(PackageKeeper::new(&projects.layout)),
            projects,
            watches: Watches::default(),
            process_watches: ProcessWatches::default(),
            kept: 0,
            children: HashMap::new(),
            cgroups,
            tasks_thread,
            joint_thread,
            oauth_thread,
            requests: HashMap::new(),
            tasks: JoinSet::new(),
            jobs: Vec::new(),
            metrics: Metrics::default(),
            syncs,
            started_at: Timestamp::from_unix_millis(unix_millis_now()),
            started: Instant::now(),
            running_time: RunningTime::default(),
            ticks: 0,
            announced_drops: 0,
            strays_are_due: false,
            is_over: false,
        }
    }

    /// Runs until the core has ended everything, and returns the idle writers and the tasks'
    /// thread.
    pub(super) async fn run(
        mut self,
        mut events: mpsc::Receiver<ShellEvent>,
        mut stored: mpsc::UnboundedReceiver<Vec<StoreCompletion>>,
    ) -> (Writers<Worker>, TaskThread) {
        let mut tick = tokio::time::interval(Duration::from_millis(TICK_MS));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.is_over {
            tokio::select! {
                Some(completions) = stored.recv() => self.on_stored(completions),
                Some(event) = events.recv() => self.on_event(event),
                _ = tick.tick() => {
                    while self.tasks.try_join_next().is_some() {}
                    self.announce_drops();
                    self.cgroups.sweep();
                    drop(sd_notify::notify(&[NotifyState::Watchdog]));
                    self.on_tick(&mut events);
                }
            }
            for _ in 0..SUPERVISOR_BATCH_EVENTS {
                if self.is_over {
                    break;
                }
                if let Ok(completions) = stored.try_recv() {
                    self.on_stored(completions);
                } else if let Ok(event) = events.try_recv() {
                    self.on_event(event);
                } else {
                    break;
                }
            }
            self.submit_jobs().await;
        }
        if self.strays_are_due {
            self.end_strays();
        }
        // Remaining senders then drop their reports instead of waiting for a place. Reports that
        // are being sent are still received, because a report in the channel keeps its client's
        // connection open, and the connection keeps the channel open.
        events.close();
        while events.recv().await.is_some() {}
        self.watches = Watches::default();
        self.tasks.shutdown().await;
        (self.writers, self.tasks_thread)
    }

    /// Sends the collected jobs to the store.
    async fn submit_jobs(&mut self) {
        let jobs = std::mem::take(&mut self.jobs);
        if !jobs.is_empty() && self.writers.submit(jobs).await.is_err() {
            tracing::error!("a writer thread has ended; the daemon cannot continue");
            self.is_over = true;
        }
    }

    fn on_stored(&mut self, completions: Vec<StoreCompletion>) {
        for completion in completions {
            self.step(CoreInput::Stored(completion));
        }
    }

    fn on_event(&mut self, event: ShellEvent) {
        match event {
            ShellEvent::Inputs(inputs, place) => {
                for input in inputs {
                    self.step(input);
                }
                drop(place);
            }
            ShellEvent::Input(input) => {
                if let CoreInput::ClientGone { tokens } = &input {
                    for token in tokens {
                        self.requests.remove(token);
                        self.process_watches.forget(*token);
                    }
                }
                let has_ended = matches!(input, CoreInput::Exited { .. });
                if let CoreInput::Exited { process, .. } = &input {
                    self.bury(*process);
                }
                self.step(input);
                if has_ended && self.core.has_waiting_starts() {
                    // The exit may have freed a place.
                    self.measure();
                }
            }
            ShellEvent::Request {
                token,
                client,
                id,
                call,
            } => self.on_request(token, client, id, call),
            ShellEvent::Answer { token, result } => self.respond(token, result),
            ShellEvent::HandedOver {
                workspace_id,
                token,
                result,
            } => self.on_handed_over(workspace_id, token, result),
        }
    }

    /// Handles the result of a workspace's release to another node. After a failure the workspace
    /// runs here again, once all waiters for its end were notified.
    fn on_handed_over(
        &mut self,
        workspace_id: WorkspaceId,
        token: Option<RequestToken>,
        result: Result<(), ControlError>,
    ) {
        let kept = result.is_err().then(|| workspace_id.clone());
        match token {
            Some(token) => self.respond(token, result.map(|()| json!({}))),
            None => self.step(CoreInput::WorkspaceWritten {
                workspace_id,
                result,
            }),
        }
        if let (Some(id), Some(replication)) = (kept, &self.replication) {
            replication.keep(&id);
        }
    }

    fn on_request(&mut self, token: RequestToken, client: ControlClient, id: u64, call: Box<Call>) {
        let addition = match &*call {
            Call::Status(_) => Some(Addition::DroppedLogLines),
            Call::ListProcesses(_) => Some(Addition::Memory),
            _ => None,
        };
        let peer = client.peer;
        let watch = match &*call {
            Call::WatchProcesses(_) => Some(client.clone()),
            _ => None,
        };
        let request = OpenRequest {
            client,
            id,
            addition,
        };
        self.requests.insert(token, request);
        if let Call::CheckDaemon(_) = &*call {
            let projects = self.projects.clone();
            return self.in_background(move || ShellEvent::Answer {
                token,
                result: self_check::answer(&projects),
            });
        }
        if let Call::ResumeDaemon(_) = &*call {
            let (disk, layout) = (self.disk.clone(), self.layout.clone());
            return self.in_background(move || {
                let removed = check_person(peer, &call)
                    .and_then(|()| restored::remove(disk.as_ref(), &layout));
                match removed {
                    Ok(()) => ShellEvent::Input(CoreInput::Request { token, peer, call }),
                    Err(error) => ShellEvent::Answer {
                        token,
                        result: Err(error),
                    },
                }
            });
        }
        if let Some(replication) = self.replication.clone() {
            match &*call {
                Call::ListNodes(list) => {
                    let list = list.clone();
                    return self.in_background(move || ShellEvent::Answer {
                        token,
                        result: replication.answer(&list),
                    });
                }
                Call::MoveWorkspace(asked) => {
                    let asked = asked.clone();
                    return self.in_background(move || {
                        let MoveWorkspace { workspace_id, to } = asked;
                        match replication.successor(&workspace_id, to.as_deref()) {
                            Ok(to) => {
                                let to = Some(to);
                                let asked = MoveWorkspace { workspace_id, to };
                                let call = Box::new(Call::MoveWorkspace(asked));
                                ShellEvent::Input(CoreInput::Request { token, peer, call })
                            }
                            Err(error) => ShellEvent::Answer {
                                token,
                                result: Err(error),
                            },
                        }
                    });
                }
                Call::VerifyReplica(asked) => {
                    let asked = asked.clone();
                    return self.in_background(move || ShellEvent::Answer {
                        token,
                        result: replication.verify(&asked),
                    });
                }
                Call::DrainNode(asked) => {
                    return self.respond(token, replication.drain(asked.drains));
                }
                Call::LeaveNodes(asked) => {
                    let (asked, layout) = (asked.clone(), self.layout.clone());
                    return self.in_background(move || ShellEvent::Answer {
                        token,
                        result: replication.leave(&asked, &layout),
                    });
                }
                Call::CheckNodes(_) => {
                    return self.in_background(move || ShellEvent::Answer {
                        token,
                        result: replication.check(),
                    });
                }
                _ => {}
            }
        }
        if let (Some(client), Call::WatchProcesses(watch)) = (watch, &*call) {
            return self.watch_processes(token, client, id, watch);
        }
        self.step(CoreInput::Request { token, peer, call });
    }

    /// Handles waiting events first, then the tick, so that a process whose message waits does not
    /// count as silent.
    fn on_tick(&mut self, events: &mut mpsc::Receiver<ShellEvent>) {
        for _ in 0..events.len() {
            if let Ok(event) = events.try_recv() {
                self.on_event(event);
            }
        }
        if self.ticks.is_multiple_of(TICKS_OF_MEASURE) {
            self.measure();
        }
        self.ticks = self.ticks.wrapping_add(1);
        if let Some(replication) = self.replication.clone() {
            if self.core.is_stopping() {
                replication.stopping();
            }
            let found = replication.unacknowledged();
            if self.unacknowledged != found {
                self.unacknowledged = found.clone();
                self.step(CoreInput::Unacknowledged(found.as_ref().clone()));
            }
        }
        self.step(CoreInput::Tick);
        if self.process_watches.is_due() {
            let groups = self.groups();
            for token in self.process_watches.look(&self.core, &groups) {
                self.answer(token, &EmptyResult {});
            }
        }
        self.reap();
    }

    fn watch_processes(
        &mut self,
        token: RequestToken,
        client: ControlClient,
        id: u64,
        watch: &WatchProcesses,
    ) {
        match self.core.watched_processes(watch.workspace_id.as_ref()) {
            Ok(processes) => {
                let groups = self.groups();
                let looks = self.process_watches.add(token, watch, processes, &groups);
                let telling = process_watches::tell(client, id, watch.memory, looks);
                self.tasks.spawn(telling);
            }
            Err(error) => self.respond(token, Err(error)),
        }
    }

    /// The control groups of the children.
    fn groups(&self) -> Groups {
        let children = self.children.values();
        let groups = children.filter_map(|child| Some((child.pid, child.cgroup.clone()?)));
        Arc::new(groups.collect())
    }

    /// Reports the available resources to the core.
    fn measure(&mut self) {
        let supply = supply::measure(self.cgroups.dir());
        self.step(CoreInput::Supply(supply));
    }

    /// Makes the watchers of children check for exits, because a child whose socket is held by
    /// another process does not signal its exit by closing it.
    fn reap(&mut self) {
        if self.strays_are_due {
            self.end_strays();
        }
        let Some(pid) = child::ended_pid() else {
            return;
        };
        match self.children.values().find(|child| child.pid == pid) {
            Some(child) => child.look_for_end(),
            // The task that started the process waits for its exit.
            None if self.replica_pid() == Some(pid) => {}
            None => self.end_strays(),
        }
    }

    /// Process id of the client of the log's server, if it runs.
    fn replica_pid(&self) -> Option<u32> {
        self.replication.as_ref().and_then(Replication::pid)
    }

    /// Ends processes that exited children left behind.
    fn end_strays(&mut self) {
        self.strays_are_due = false;
        let replica = self.replica_pid();
        let started = || {
            let children = self.children.values().map(|child| child.pid);
            children.chain(replica).collect()
        };
        let ended = orphans_of_agents::end_all(started);
        if ended > 0 {
            tracing::warn!(count = ended, "ended processes left over from a child");
        }
    }

    /// Time for the core, without pauses of the daemon.
    fn now(&mut self) -> ClockTime {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let read = self.running_time.read(self.started.elapsed(), true);
        if let Some(pause) = read.pause {
            tracing::warn!(
                duration_ms = millis(pause),
                "the daemon was suspended for a while; deadlines are extended by that time"
            );
        }
        let wall = Timestamp::from_unix_millis(unix_millis_now());
        ClockTime {
            mono_ms: millis(read.counted),
            wall,
        }
    }

    /// Executes one step of the core, and all steps that its effects cause immediately.
    fn step(&mut self, input: CoreInput) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = self.now();
            for effect in self.core.handle(now, input) {
                inputs.extend(self.carry_out(effect));
            }
        }
    }

    fn respond(&mut self, token: RequestToken, result: Result<Value, ControlError>) {
        let Some(request) = self.requests.remove(&token) else {
            return;
        };
        let result = result.map_err(|error| self.reports.hub.masks().error(error));
        match (result, request.addition) {
            (Ok(mut value), Some(Addition::DroppedLogLines)) => {
                if let Some(status) = value.as_object_mut() {
                    let dropped = self.reports.hub.dropped_lines();
                    status.insert("droppedLogLines".to_owned(), Value::from(dropped.count));
                    if let Some(at) = dropped.noticed_at {
                        status.insert("logLinesDroppedAt".to_owned(), Value::from(at.to_string()));
                    }
                }
                request.client.respond(request.id, Ok(value));
            }
            // Reading the memory of many processes takes a while.
            (Ok(page), Some(Addition::Memory)) => {
                let groups = self.groups();
                self.tasks.spawn_blocking(move || {
                    let with_memory = serde_json::from_value(page).and_then(|page| {
                        let mut page: ProcessesPage = page;
                        let families = ProcessTree::read();
                        for process in &mut page.processes {
                            memory::add_to(process, &groups, &families);
                        }
                        serde_json::to_value(page)
                    });
                    let internal = |error: serde_json::Error| {
                        ControlError::new(ErrorCode::Internal, error.to_string())
                    };
                    let page = with_memory.map_err(internal);
                    request.client.respond(request.id, page);
                });
            }
            (result, _) => request.client.respond(request.id, result),
        }
    }

    /// A metrics snapshot, including the core's samples.
    fn metrics(&mut self, samples: Vec<Sample>) -> MetricsSnapshot {
        let own = ShellMetrics {
            at: Timestamp::from_unix_millis(unix_millis_now()),
            started_at: self.started_at,
            syncs: self.syncs.read(),
            dropped_log_lines: self.reports.hub.dropped_lines().count,
            disk: supply::disk(self.layout.root()),
            supply: supply::measure(self.cgroups.dir()),
        };
        self.metrics.snapshot(samples, own)
    }

    /// Removes an exited child and its remaining processes. The search takes longer with more
    /// children, so for orderly exits it is done once for all of them at the next tick.
    fn bury(&mut self, process: ProcessId) {
        let child = self.children.remove(&process);
        let in_order = child.as_ref().is_some_and(|child| child.ends_in_order);
        if let Some(child) = child {
            child.kill_group();
            if let Some(cgroup) = child.cgroup {
                self.cgroups.bury(cgroup);
            }
        }
        if in_order {
            self.strays_are_due = true;
        } else {
            self.end_strays();
        }
    }

    fn announce_drops(&mut self) {
        let dropped = self.reports.hub.dropped_lines().count;
        if dropped > self.announced_drops {
            tracing::warn!(
                dropped = dropped - self.announced_drops,
                dropped_in_all = dropped,
                "log lines dropped: log readers are too slow"
            );
            // If this line was dropped, too, it is logged again with the next count.
            if self.reports.hub.dropped_lines().count == dropped {
                self.announced_drops = dropped;
            }
        }
    }
}

fn write_log(hub: &Arc<LogHub>, event: LogEvent) {
    let level = match event.severity {
        Severity::Debug => tracing::Level::DEBUG,
        Severity::Info => tracing::Level::INFO,
        Severity::Warn => tracing::Level::WARN,
        Severity::Error => tracing::Level::ERROR,
    };
    hub.log(level, event.message, event.fields);
}
