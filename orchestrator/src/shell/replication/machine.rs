//! The thread that tracks the state of all workspaces of this node.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use goondan_clock::RunningTime;
use goondan_log::unix_millis_now;
use goondan_protocol::control::{
    ControlError, ErrorCode, FindingSeverity, NodeInfo, NodesCheck, NodesPage, ReplicaInfo,
    ReplicatedWorkspace, ReplicationStall, ServerFinding, ServerVerdict, Verification,
};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::limits::PAUSE_LOOK_MS;
use goondan_protocol::time::Timestamp;
use goondan_replicated_disk::{BatchContent, LogBatch, OpLog};
use goondan_replication::chain::Chain;
use goondan_replication::node::{
    NodeEffect, NodeInput, NotStandby, ReplicationNode, WorkspaceStatus,
};
use goondan_replication::wire::{
    LogAnswer, LogRequest, LogResponse, ServerCheck, ServerCheckVerdict,
};
use tokio::sync::{mpsc, oneshot};

use super::handle::{Replication, UnacknowledgedWorkspaces};
use super::messages::{
    FilesJob, Message, NotOwner, OwnershipWaiter, Release, ReplicationCommand, Verifier,
};
use crate::limits::{REPLICATION_STOP_MS, UNACKNOWLEDGED_LOOK_MS, UNACKNOWLEDGED_TOLD_MS};

/// State of the thread.
pub(super) struct ReplicationMachine {
    node: ReplicationNode,
    asks: Option<mpsc::UnboundedSender<LogRequest>>,
    files: Sender<FilesJob>,
    recording: Arc<OpLog>,
    waiting: HashMap<WorkspaceId, Vec<OwnershipWaiter>>,
    owned: HashSet<WorkspaceId>,
    /// Callers that wait for the release of a workspace.
    releasing: HashMap<WorkspaceId, Vec<Sender<bool>>>,
    deposed: Option<oneshot::Sender<String>>,
    /// Callers that wait for a check of the server.
    checking: Vec<Sender<NodesCheck>>,
    /// Callers that wait for a part of a snapshot.
    forwarded: HashMap<u64, Sender<Option<LogAnswer>>>,
    forwards: u64,
    is_stopping: bool,
    stopped: Option<Sender<()>>,
    /// Workspaces without acknowledgments, each with the start of the stall on this clock.
    unacknowledged: BTreeMap<WorkspaceId, (u64, ReplicationStall)>,
    published: Arc<Mutex<Arc<UnacknowledgedWorkspaces>>>,
    look_due_ms: u64,
    started: Instant,
    time: RunningTime,
}

impl ReplicationMachine {
    pub(super) fn new(
        node: ReplicationNode,
        files: Sender<FilesJob>,
        handle: &Replication,
        deposed: oneshot::Sender<String>,
    ) -> Self {
        Self {
            node,
            asks: None,
            files,
            recording: Arc::clone(&handle.recording),
            waiting: HashMap::new(),
            owned: HashSet::new(),
            releasing: HashMap::new(),
            deposed: Some(deposed),
            checking: Vec::new(),
            forwarded: HashMap::new(),
            forwards: 0,
            is_stopping: false,
            stopped: None,
            unacknowledged: BTreeMap::new(),
            published: Arc::clone(&handle.unacknowledged),
            look_due_ms: 0,
            started: Instant::now(),
            time: RunningTime::default(),
        }
    }

    /// Runs the machine in a thread, until a stop or until another node owns a workspace.
    ///
    /// # Errors
    ///
    /// The operating system's error if the thread cannot be created.
    pub(super) fn start(mut self, incoming: Receiver<Message>) -> std::io::Result<()> {
        let run = move || while self.turn(&incoming) {};
        let builder = thread::Builder::new().name("replication".to_owned());
        builder.spawn(run).map(drop)
    }

    /// Waits for the next message and handles it; false at the end.
    fn turn(&mut self, incoming: &Receiver<Message>) -> bool {
        let now_ms = self.now_ms();
        let wait_ms = self.node.due_ms().saturating_sub(now_ms);
        // The machine checks the clock often enough to notice a pause.
        let wait = Duration::from_millis(wait_ms.min(PAUSE_LOOK_MS / 2));
        match incoming.recv_timeout(wait) {
            Ok(message) => self.take(message),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        let now_ms = self.now_ms();
        if self.node.due_ms() <= now_ms {
            self.give(NodeInput::Tick);
        }
        if now_ms >= self.look_due_ms || self.is_stopping {
            self.recording.hand_over_rest();
        }
        self.look_for_unacknowledged(now_ms);
        self.give_up(now_ms);
        self.deposed.is_some() && !self.has_stopped()
    }

    /// During a shutdown, ends all waits for a log that has confirmed nothing for long.
    fn give_up(&mut self, now_ms: u64) {
        if !self.is_stopping {
            return;
        }
        let mut unanswered = self.node.unanswered();
        if unanswered.any(|(_, since_ms)| now_ms.saturating_sub(since_ms) >= REPLICATION_STOP_MS) {
            let why = "the daemon is stopping, and the log's server does not answer";
            self.recording.end(why.to_owned());
        }
    }

    /// Determines the workspaces without acknowledgments, to notify users.
    fn look_for_unacknowledged(&mut self, now_ms: u64) {
        if now_ms < self.look_due_ms {
            return;
        }
        self.look_due_ms = now_ms.saturating_add(UNACKNOWLEDGED_LOOK_MS);
        let reason = self.node.trouble().unwrap_or(
            "the log's server does not confirm writes; check its settings with `gdn doctor`",
        );
        let mut found = BTreeMap::new();
        for (workspace, since_ms) in self.node.unanswered() {
            let for_ms = now_ms.saturating_sub(since_ms);
            if for_ms < UNACKNOWLEDGED_TOLD_MS {
                continue;
            }
            let known = self.unacknowledged.remove(workspace);
            let at = known.filter(|(at, _)| *at == since_ms).map_or_else(
                || unix_millis_now().saturating_sub(i64::try_from(for_ms).unwrap_or(0)),
                |(_, known)| known.since.as_unix_millis(),
            );
            let told = ReplicationStall {
                since: Timestamp::from_unix_millis(at),
                reason: reason.to_owned(),
            };
            found.insert(workspace.clone(), (since_ms, told));
        }
        self.unacknowledged = found;
        let told: UnacknowledgedWorkspaces = self
            .unacknowledged
            .iter()
            .map(|(workspace, (_, told))| (workspace.clone(), told.clone()))
            .collect();
        let mut last = self
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if **last != told {
            *last = Arc::new(told);
        }
    }

    fn now_ms(&mut self) -> u64 {
        let read = self.time.read(self.started.elapsed(), true);
        u64::try_from(read.counted.as_millis()).unwrap_or(u64::MAX)
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::HandedOver(LogBatch {
                workspace,
                batch,
                content,
                is_awaited,
            }) => self.give(match content {
                BatchContent::Operations(operations) => NodeInput::Batch {
                    workspace,
                    batch,
                    operations,
                    is_awaited,
                },
                BatchContent::Snapshot(reference) => NodeInput::Snapshot {
                    workspace,
                    batch,
                    reference,
                },
            }),
            Message::Connected(asks) => {
                self.asks = Some(asks);
                self.give(NodeInput::Connected(true));
            }
            Message::Disconnected => {
                self.asks = None;
                self.give(NodeInput::Connected(false));
            }
            Message::Answered(LogResponse { id, answer }) => {
                self.give(NodeInput::Answered { id, answer });
            }
            Message::Joined {
                chain,
                files,
                is_wanted,
            } => {
                let workspace = chain.workspace().clone();
                self.give(NodeInput::Joined { chain, files });
                if is_wanted || self.waiting.contains_key(&workspace) {
                    self.give(NodeInput::Wanted(workspace));
                }
            }
            Message::FilesDone(workspace, outcome) => {
                self.give(NodeInput::FilesDone { workspace, outcome });
            }
            Message::Acquire { workspace, answer } => {
                self.waiting
                    .entry(workspace.clone())
                    .or_default()
                    .push(answer);
                if self.node.knows(&workspace) {
                    self.give(NodeInput::Wanted(workspace));
                } else {
                    self.file(FilesJob::Join(workspace));
                }
            }
            Message::Verified {
                workspace,
                found,
                answer,
            } => self.verified(workspace, found, &answer),
            Message::Fit(workspace, unfit) => self.give(NodeInput::Fit { workspace, unfit }),
            Message::Keep(workspace) => {
                // The workspace must start again like a new one.
                self.owned.remove(&workspace);
                self.give(NodeInput::Keep(workspace));
            }
            Message::Asked(asked) => self.asked(asked),
            Message::Stopping => self.is_stopping = true,
            Message::Stop(done) => {
                self.is_stopping = true;
                self.stopped = Some(done);
            }
        }
    }

    /// Handles requests of clients and of threads that copy snapshots.
    fn asked(&mut self, asked: ReplicationCommand) {
        match asked {
            ReplicationCommand::Forward { ask, answer } => {
                self.forwards += 1;
                let id = self.forwards;
                self.forwarded.insert(id, answer);
                self.give(NodeInput::Forward { id, ask });
            }
            ReplicationCommand::Successors(workspace, answer) => {
                let now_ms = self.now_ms();
                // The caller may be gone.
                answer.send(self.node.successors(now_ms, &workspace)).ok();
            }
            ReplicationCommand::Release(release) => self.release(release),
            ReplicationCommand::Verify(workspace, answer) => match self.node.follows(&workspace) {
                Ok(()) => self.file(FilesJob::Verify(workspace, answer)),
                // The caller may be gone.
                Err(why) => drop(answer.send(Err(not_followed(&workspace, why)))),
            },
            ReplicationCommand::Drains(is_so) => self.give(NodeInput::Drains(is_so)),
            ReplicationCommand::Followers(workspace, answer) => {
                let now_ms = self.now_ms();
                // The caller may be gone.
                answer.send(self.node.followers(now_ms, &workspace)).ok();
            }
            ReplicationCommand::Leave(leave) => self.file(FilesJob::PutAway(leave)),
            // The caller may be gone.
            ReplicationCommand::List(answer) => drop(answer.send(self.page())),
            ReplicationCommand::Check(answer) => {
                self.checking.push(answer);
                self.give(NodeInput::Check);
            }
        }
    }

    /// Rebuilds files with unreadable parts; files that need a decision by a person stay.
    fn verified(
        &mut self,
        workspace: WorkspaceId,
        mut found: Result<Verification, ControlError>,
        answer: &Verifier,
    ) {
        if let Ok(found) = &mut found {
            let mut standings = self.node.standings().into_iter();
            let is_stopped =
                standings.any(|standing| standing.workspace == workspace && standing.is_stopped);
            let findings = found.findings.iter_mut();
            let damaged = findings.filter(|it| it.severity == FindingSeverity::Error);
            let mut is_damaged = false;
            for finding in damaged.filter(|_| !is_stopped) {
                "nothing to do: this node rebuilds its files of the workspace from the log"
                    .clone_into(&mut finding.advice);
                is_damaged = true;
            }
            if is_damaged {
                self.give(NodeInput::Rebuild(workspace));
            }
        }
        // The caller may be gone.
        answer.send(found).ok();
    }

    /// Releases a workspace if all its changes are in its log.
    fn release(&mut self, release: Release) {
        let Release {
            workspace,
            to,
            answer,
        } = release;
        let why = format!("it is handed over to node {to}");
        if !self.recording.give_up(&workspace, why) {
            // The caller may be gone.
            answer.send(false).ok();
            return;
        }
        tracing::info!(workspace_id = %workspace, node = to.as_str(), "handing the workspace over to another node");
        let waiting = self.releasing.entry(workspace.clone());
        waiting.or_default().push(answer);
        self.give(NodeInput::Release { workspace, to });
    }

    fn released(&mut self, chain: Chain) {
        let workspace = chain.workspace().clone();
        self.owned.remove(&workspace);
        self.file(FilesJob::Leave(chain));
        for asker in self.releasing.remove(&workspace).into_iter().flatten() {
            // The caller may be gone.
            asker.send(true).ok();
        }
    }

    fn give(&mut self, input: NodeInput) {
        let now_ms = self.now_ms();
        for effect in self.node.handle(now_ms, input) {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: NodeEffect) {
        match effect {
            NodeEffect::Ask(request) => {
                // If the process has ended, its end is reported next.
                let asked = self.asks.as_ref().map(|asks| asks.send(request));
                drop(asked);
            }
            NodeEffect::Files { workspace, work } => self.file(FilesJob::Work(workspace, work)),
            NodeEffect::Found(workspace) => self.file(FilesJob::Join(workspace)),
            NodeEffect::Own(workspace) => self.own(workspace),
            NodeEffect::Acknowledge(workspace, batch) => {
                self.recording.acknowledge(&workspace, batch);
            }
            NodeEffect::Released(chain) => self.released(chain),
            NodeEffect::Elsewhere(workspace, node) => {
                for waiter in self.waiting.remove(&workspace).into_iter().flatten() {
                    drop(waiter.send(Err(NotOwner::Elsewhere(node.clone()))));
                }
            }
            NodeEffect::LogEnded(workspace, node) => {
                for waiter in self.waiting.remove(&workspace).into_iter().flatten() {
                    drop(waiter.send(Err(NotOwner::LogEnded(node.clone()))));
                }
            }
            NodeEffect::Deposed(workspace, why) => {
                tracing::error!(
                    workspace_id = %workspace,
                    error = &why as &dyn std::error::Error,
                    "this node no longer owns the workspace; stopping the daemon"
                );
                let why = format!("this node no longer owns workspace `{workspace}`: {why}");
                self.recording.end(why.clone());
                if let Some(deposed) = self.deposed.take() {
                    drop(deposed.send(why));
                }
            }
            NodeEffect::Forwarded { id, answer } => {
                if let Some(asker) = self.forwarded.remove(&id) {
                    // The caller may be gone.
                    asker.send(answer).ok();
                }
            }
            NodeEffect::Checked(findings) => {
                let found = checked(findings, self.node.trouble());
                for answer in std::mem::take(&mut self.checking) {
                    // The caller may be gone.
                    answer.send(found.clone()).ok();
                }
            }
            NodeEffect::Say(workspace, trouble) => tracing::error!(
                workspace_id = %workspace,
                error = &trouble as &dyn std::error::Error,
                "files of a workspace differ from its log"
            ),
        }
    }

    fn own(&mut self, workspace: WorkspaceId) {
        let waiters = self.waiting.remove(&workspace).unwrap_or_default();
        let is_new = self.owned.insert(workspace.clone());
        if is_new {
            self.recording.own(&workspace);
            tracing::info!(workspace_id = %workspace, "this node owns the workspace");
        }
        self.file(FilesJob::Start {
            workspace,
            waiters,
            is_new,
        });
    }

    fn file(&self, job: FilesJob) {
        if self.files.send(job).is_err() {
            tracing::error!("the thread that changes workspace files has ended");
        }
    }

    /// True if a stop was requested and all changes are in the log; then records which files match
    /// it.
    fn has_stopped(&mut self) -> bool {
        if self.stopped.is_none() {
            return false;
        }
        let is_quiet = |(chain, is_quiet): (&Chain, bool)| {
            is_quiet && self.recording.is_quiet(chain.workspace())
        };
        if !self.node.owned().all(is_quiet) {
            return false;
        }
        for (chain, _) in self.node.owned() {
            self.file(FilesJob::Leave(chain.clone()));
        }
        if let Some(done) = self.stopped.take() {
            self.file(FilesJob::End(done));
        }
        true
    }

    fn page(&self) -> NodesPage {
        let own = self.node.id().as_str().to_owned();
        let workspaces = self.node.standings().into_iter();
        let workspaces = workspaces.map(|it| self.describe(it, &own)).collect();
        let mut page = NodesPage {
            node: Some(own),
            is_connected: self.node.is_connected(),
            trouble: self.node.trouble().map(str::to_owned),
            is_draining: self.node.is_draining(),
            nodes: Vec::new(),
            workspaces,
            next: None,
        };
        page.nodes = nodes_of(&page);
        page
    }
}

impl ReplicationMachine {
    fn describe(&self, standing: WorkspaceStatus, own: &str) -> ReplicatedWorkspace {
        let unacknowledged = self.unacknowledged.get(&standing.workspace);
        let unacknowledged = unacknowledged.map(|(_, told)| told.clone());
        ReplicatedWorkspace {
            unacknowledged,
            ..workspace_info(standing, own)
        }
    }
}

fn not_followed(workspace: &WorkspaceId, why: NotStandby) -> ControlError {
    let (code, advice) = match why {
        NotStandby::Unknown | NotStandby::Owned => (
            ErrorCode::InvalidRequest,
            "find its node: `gdn daemon node list`",
        ),
        NotStandby::Rebuilding | NotStandby::Failed => {
            (ErrorCode::Overloaded, "try again in some seconds")
        }
    };
    ControlError::new(code, format!("workspace `{workspace}`: {why}")).suggest(advice)
}

/// Findings about the server. Without an answer, a finding with the reason.
fn checked(findings: Option<Vec<ServerCheck>>, trouble: Option<&str>) -> NodesCheck {
    let findings = findings.unwrap_or_else(|| {
        vec![ServerCheck {
            what: "connection".to_owned(),
            found: trouble.unwrap_or("none").to_owned(),
            verdict: ServerCheckVerdict::Bad,
            advice: "goondan-replica is not running, or the server does not answer it: see `gdn \
                logs --all --process replica`; nothing is acknowledged until it does"
                .to_owned(),
        }]
    });
    let finding = |it: ServerCheck| ServerFinding {
        what: it.what,
        found: it.found,
        verdict: match it.verdict {
            ServerCheckVerdict::Good => ServerVerdict::Good,
            ServerCheckVerdict::Weak => ServerVerdict::Weak,
            ServerCheckVerdict::Bad => ServerVerdict::Bad,
        },
        advice: Some(it.advice).filter(|advice| !advice.is_empty()),
    };
    NodesCheck {
        findings: findings.into_iter().map(finding).collect(),
    }
}

fn workspace_info(standing: WorkspaceStatus, own: &str) -> ReplicatedWorkspace {
    let mut replicas: Vec<ReplicaInfo> = standing
        .nodes
        .into_iter()
        .filter(|(node, _)| node.as_str() != own)
        .map(|(node, position)| ReplicaInfo {
            node: node.as_str().to_owned(),
            position: position.0,
        })
        .collect();
    replicas.push(ReplicaInfo {
        node: own.to_owned(),
        position: standing.position.0,
    });
    replicas.sort_by(|one, other| one.node.cmp(&other.node));
    ReplicatedWorkspace {
        workspace_id: standing.workspace,
        owner: standing.owner.map(|owner| owner.as_str().to_owned()),
        is_here: standing.is_owned,
        is_owner_heard: standing.is_owner_heard,
        unfit: standing.unfit,
        is_stopped: standing.is_stopped,
        is_failed: standing.is_failed,
        ended_by: standing.ended_by.map(|node| node.as_str().to_owned()),
        epoch: standing.epoch.0,
        head: standing.head.0,
        replicas,
        unacknowledged: None,
    }
}

/// Nodes with recent heartbeats, and the number of workspaces of each.
fn nodes_of(page: &NodesPage) -> Vec<NodeInfo> {
    let mut nodes: Vec<NodeInfo> = Vec::new();
    for workspace in &page.workspaces {
        for replica in &workspace.replicas {
            let at = nodes.iter().position(|it| it.node == replica.node);
            let at = at.unwrap_or_else(|| {
                nodes.push(NodeInfo {
                    node: replica.node.clone(),
                    owns: 0,
                    follows: 0,
                });
                nodes.len() - 1
            });
            if let Some(info) = nodes.get_mut(at) {
                let owns = workspace.owner.as_deref() == Some(&*replica.node);
                info.owns += u64::from(owns);
                info.follows += u64::from(!owns);
            }
        }
    }
    nodes.sort_by(|one, other| one.node.cmp(&other.node));
    nodes
}
