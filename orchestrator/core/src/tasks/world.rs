//! World for tests of tasks: a daemon that can be killed, a disk that can fail, and processes that
//! the test plays.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use goondan_cli_agents::CliEvent;
use goondan_config::{ConnectionDefinition, Lifecycle, ProjectConfig, TaskPolicy};
use goondan_protocol::JsonObject;
use goondan_protocol::budget::Budget;
use goondan_protocol::call::{CallOrder, CallOutcome, CallResult};
use goondan_protocol::control::{
    Call, CheckpointInfo, ControlError, ErrorCode, MERGE_QUEUE, RestoredFrom, TaskDrill,
    TaskRemoved, TaskRestored,
};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::ipc::{
    Assignment, ChildRole, Hello, Status, ToChild, ToConnector, ToOrchestrator, ToTask,
};
use goondan_protocol::observe::ObservationBounds;
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::sandbox::SandboxPolicy;
use goondan_protocol::task::{
    AgentFormat, CliAgentDefinition, Notify, PromptChannel, RepositorySource, SecretVariables,
    TaskAssignment, TaskDelivery, TaskExited, TaskId, TaskSource, TaskStarted, TaskTold,
};
use goondan_protocol::time::Timestamp;
use goondan_protocol::version::Version;
use goondan_store::ledger::LedgerEntry;
use goondan_store::root::Layout;
use goondan_store::workspace::WorkspaceRecord;
use goondan_store::writer::{Op, Report, StoreCompletion};
use goondan_tasks::fact::{HistoryEntry, TaskEvent};
use goondan_tasks::state::State;
use serde_json::{Value, json};

use crate::exchange::tasks::{
    Clear, DiskMeasurement, LoadedTask, TaskCreationFailure, TaskResult, TaskWork,
    UnreadableSecrets,
};
use crate::exchange::{ProposalWork, ProposalsResult};
use crate::limits::TICK_MS;
use crate::{
    Accounts, ClockTime, Core, CoreEffect, CoreInput, Facts, LoadPurpose, LoadedWorkspace, Peer,
    ProcessId, RequestToken, WorkspaceLoadResult,
};
use crate::{StandingApprovals, UnknownCalls};

/// A process of a run.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) task: String,
    pub(super) assignment: Option<TaskAssignment>,
    pub(super) is_asked_to_end: bool,
    pub(super) is_held: bool,
    /// Ids of requests for permissions that were answered, and whether they were allowed.
    pub(super) permissions: Vec<(String, bool)>,
}

pub(super) fn not_created(found: Option<LoadedTask>) -> Box<TaskCreationFailure> {
    let error = ControlError::new(ErrorCode::Storage, "the disk is full");
    Box::new(TaskCreationFailure { error, found })
}

pub(super) struct World {
    pub(super) core: Core,
    pub(super) now_ms: u64,
    /// Offset of the wall clock.
    pub(super) wall_ahead_ms: u64,
    pub(super) disk: BTreeMap<TaskId, Vec<HistoryEntry>>,
    pub(super) secrets: BTreeMap<(TaskId, String), String>,
    /// Pending operations on work areas, in order.
    pub(super) works: VecDeque<TaskWork>,
    /// Details of all proposals.
    pub(super) proposals: Vec<Value>,
    /// Pending operations on sandboxes, in order.
    pub(super) proposal_works: VecDeque<ProposalWork>,
    pub(super) children: BTreeMap<ProcessId, Child>,
    pub(super) answers: BTreeMap<RequestToken, Result<Value, ControlError>>,
    pub(super) logged: Vec<String>,
    /// The task whose work area cannot be read.
    pub(super) unreadable: Option<&'static str>,
    /// True if the next write fails.
    pub(super) is_disk_full: bool,
    /// True if the next creation writes only the history.
    pub(super) is_full_behind_history: bool,
    pub(super) has_exited: bool,
    /// Runs of each task whose process was started.
    pub(super) begun: BTreeSet<(TaskId, u64)>,
    pub(super) checkpoints: u64,
    /// Disk usage of every work area.
    pub(super) disk_use: DiskMeasurement,
    /// Problem that a drill finds.
    pub(super) drill_problem: Option<String>,
    /// The task whose drill fails.
    pub(super) without_drill: Option<&'static str>,
    /// True if the configuration is unreadable when the workspace is opened.
    pub(super) is_unconfigured: bool,
    pub(super) audited: Vec<String>,
    /// The process of the connection, if there is one.
    pub(super) connector: Option<ProcessId>,
    pub(super) calls: Vec<CallOrder>,
    /// Messages to the connection about decisions.
    pub(super) chat: Vec<ToConnector>,
    /// The ledger of the workspace.
    pub(super) ledger: Vec<LedgerEntry>,
    /// True if writes to the ledger are neither executed nor answered.
    pub(super) is_ledger_stuck: bool,
    next_token: u64,
    bundle: ProjectConfig,
}

/// Milliseconds of a day.
pub(super) const DAY_MS: u64 = 86_400_000;

pub(super) fn workspace() -> WorkspaceId {
    "w".parse().unwrap()
}

fn agent() -> CliAgentDefinition {
    CliAgentDefinition {
        name: "coder".parse().unwrap(),
        description: None,
        command: vec!["coder".to_owned()],
        resume: vec!["coder".to_owned(), "{session}".to_owned()],
        format: AgentFormat::ClaudeStreamJson,
        prompt: PromptChannel::Stdin,
        environment: BTreeMap::new(),
        guide: Some("/guide".into()),
        limits: ProcessLimits::default(),
        tools: Default::default(),
        preamble: Some(String::new()),
        session_model: None,
        session_mode: None,
        secrets: SecretVariables::default(),
        disk_bytes: None,
        source: Default::default(),
        repository: Default::default(),
        deliver: Default::default(),
        setup: Vec::new(),
        verify: Vec::new(),
        fallbacks: Vec::new(),
        account: Default::default(),
        sandbox: SandboxPolicy::off(),
    }
}

fn connection() -> ConnectionDefinition {
    ConnectionDefinition {
        name: "ops".parse().unwrap(),
        connector: "telegram".parse().unwrap(),
        entry: None,
        entry_digest: None,
        config: JsonObject::new(),
        secrets: BTreeMap::new(),
        rules: Vec::new(),
        header: None,
        keeps_payload: true,
        limits: ProcessLimits::default(),
        sandbox: SandboxPolicy::default(),
        egress: Vec::new(),
    }
}

fn bundle() -> ProjectConfig {
    let coder = agent();
    ProjectConfig {
        package: None,
        swarm: None,
        idle_swarms: Vec::new(),
        conversation_key: None,
        entry_agent: None,
        agents: BTreeMap::new(),
        cli_agents: [(coder.name.clone(), coder)].into(),
        notify: BTreeMap::new(),
        connections: BTreeMap::new(),
        local: None,
        models: BTreeMap::new(),
        oauth_apps: BTreeMap::new(),
        oauth_needs: BTreeSet::new(),
        prices: BTreeMap::new(),
        budgets: Vec::new(),
        grace_period_ms: 1_000,
        lifecycle: Lifecycle::default(),
        observation: ObservationBounds::default(),
        approvals: goondan_config::ApprovalPolicy::default(),
        changesets: None,
        undecided_permissions: Vec::new(),
        appliers: BTreeMap::new(),
        tasks: TaskPolicy {
            keep_ms: Some(2 * DAY_MS),
            drill_ms: Some(DAY_MS),
            ..TaskPolicy::default()
        },
        digest: "1".to_owned(),
    }
}

fn new_core(restored: Option<RestoredFrom>) -> Core {
    let facts = Facts {
        layout: Layout::new("/state"),
        pid: 1,
        started_at: Timestamp::from_unix_millis(0),
        log_dir: None,
        cgroup: None,
        program: None,
        is_memory_open: false,
        restored,
        node: None,
    };
    let mut next = 0_u128;
    Core::new(facts, move || {
        next += 1;
        uuid::Uuid::from_u128(next)
    })
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(bundle())
    }

    /// With an agent whose work is verified.
    pub(super) fn verifying() -> Self {
        let mut bundle = bundle();
        for agent in bundle.cli_agents.values_mut() {
            agent.verify = vec!["test".to_owned()];
        }
        Self::with(bundle)
    }

    /// With an agent whose work is verified, and becomes pull requests through a connection.
    pub(super) fn requesting() -> Self {
        let mut bundle = bundle();
        let ops = connection();
        for agent in bundle.cli_agents.values_mut() {
            agent.verify = vec!["test".to_owned()];
            agent.source = TaskSource::Repository(RepositorySource {
                repository: "https://git.example/acme/shop".to_owned(),
                reference: Some("main".to_owned()),
            });
            agent.repository.connection = Some(ops.name.clone());
            agent.deliver = TaskDelivery::PullRequest;
        }
        bundle.connections.insert(ops.name.clone(), ops);
        Self::with(bundle)
    }

    /// With a connection that sends these notifications.
    pub(super) fn notifying(notify: &[Notify]) -> Self {
        let mut bundle = bundle();
        for agent in bundle.cli_agents.keys() {
            bundle.notify.insert(agent.clone(), notify.to_vec());
        }
        let ops = connection();
        bundle.connections.insert(ops.name.clone(), ops);
        Self::with(bundle)
    }

    /// With a connection that shows decisions to the users 5 and 7.
    pub(super) fn asking() -> Self {
        Self::asking_by(json!({"chat": -1, "users": [5, 7]}))
    }

    /// With a connection that has this setting `approvals`.
    pub(super) fn asking_by(approvals: Value) -> Self {
        let mut bundle = bundle();
        let mut ops = connection();
        ops.config.insert("approvals".to_owned(), approvals);
        bundle.connections.insert(ops.name.clone(), ops);
        Self::with(bundle)
    }

    pub(super) fn budgeted(budgets: Vec<Budget>) -> Self {
        Self::with(ProjectConfig {
            budgets,
            ..bundle()
        })
    }

    fn with(bundle: ProjectConfig) -> Self {
        let mut world = Self {
            core: new_core(None),
            now_ms: 1_000_000,
            wall_ahead_ms: 0,
            disk: BTreeMap::new(),
            secrets: BTreeMap::new(),
            works: VecDeque::new(),
            proposals: Vec::new(),
            proposal_works: VecDeque::new(),
            children: BTreeMap::new(),
            answers: BTreeMap::new(),
            logged: Vec::new(),
            unreadable: None,
            is_disk_full: false,
            is_full_behind_history: false,
            has_exited: false,
            begun: BTreeSet::new(),
            checkpoints: 0,
            disk_use: DiskMeasurement {
                bytes: 1_000,
                free_bytes: Some(1 << 40),
            },
            drill_problem: None,
            without_drill: None,
            is_unconfigured: false,
            audited: Vec::new(),
            connector: None,
            calls: Vec::new(),
            chat: Vec::new(),
            ledger: Vec::new(),
            is_ledger_stuck: false,
            next_token: 0,
            bundle,
        };
        world.open();
        world.settle();
        world
    }

    pub(super) fn open(&mut self) {
        let record = WorkspaceRecord {
            workspace_id: workspace(),
            project_root: "/project".into(),
            package: None,
            registered: true,
            watch: false,
            env_files: Vec::new(),
            swarm: None,
            extra: JsonObject::new(),
        };
        let loaded = WorkspaceLoadResult {
            purpose: LoadPurpose::Start,
            workspace_id: Some(workspace()),
            sources: Default::default(),
            result: Ok(LoadedWorkspace {
                record,
                bundle: if self.is_unconfigured {
                    Err(ControlError::new(
                        ErrorCode::InvalidConfiguration,
                        "it is no YAML",
                    ))
                } else {
                    Ok(self.bundle.clone())
                },
                fallback: None,
                may_be_kept: false,
                accounts: {
                    let entries = self.ledger.iter().cloned();
                    let lines: Vec<_> = entries.map(LedgerEntry::into_line).collect();
                    Accounts::of(&lines)
                },
                unknown_calls: UnknownCalls::default(),
                standing: StandingApprovals::default(),
                schedules: Vec::new(),
                with_work: Vec::new(),
                parked: BTreeMap::new(),
                to_begin_anew: Vec::new(),
            }),
        };
        self.step(CoreInput::Loaded(Box::new(loaded)));
    }

    /// The agent leaves the configuration, or comes back.
    pub(super) fn configure(&mut self, has_agent: bool) {
        self.bundle = bundle();
        if !has_agent {
            self.bundle.cli_agents.clear();
            self.bundle.digest = "2".to_owned();
        }
        self.open();
    }

    pub(super) fn set_budgets(&mut self, budgets: Vec<Budget>) {
        self.bundle.budgets = budgets;
        self.bundle.digest.push('+');
        self.open();
    }

    /// The daemon and all its children are killed, and another starts.
    pub(super) fn kill_daemon(&mut self) {
        self.start_daemon(None);
    }

    /// The state root is restored from a backup, and a daemon starts paused.
    pub(super) fn restore_daemon(&mut self) {
        let at = Timestamp::from_unix_millis(0);
        self.start_daemon(Some(RestoredFrom {
            backup_id: "b".to_owned(),
            taken_at: at,
            restored_at: at,
        }));
    }

    fn start_daemon(&mut self, restored: Option<RestoredFrom>) {
        self.core = new_core(restored);
        self.works.clear();
        self.proposal_works.clear();
        self.children.clear();
        self.connector = None;
        self.has_exited = false;
        self.open();
    }

    pub(super) fn step(&mut self, input: CoreInput) {
        let now = ClockTime {
            mono_ms: self.now_ms,
            wall: Timestamp::from_unix_millis(
                i64::try_from(self.now_ms + self.wall_ahead_ms).unwrap(),
            ),
        };
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for effect in self.core.handle(now, input) {
                match effect {
                    CoreEffect::Spawn(spawn) if spawn.role == ChildRole::Connector => {
                        let process = spawn.process;
                        self.connector = Some(process);
                        inputs.push_back(CoreInput::Spawned { process, pid: 6 });
                    }
                    CoreEffect::Spawn(spawn) => {
                        assert_eq!(spawn.role, ChildRole::Task);
                        let task = spawn.identity["taskId"].as_str().unwrap().to_owned();
                        let is_there = self.children.values().any(|child| child.task == task);
                        assert!(!is_there, "two processes for `{task}`");
                        let child = Child {
                            task,
                            assignment: None,
                            is_asked_to_end: false,
                            is_held: false,
                            permissions: Vec::new(),
                        };
                        let process = spawn.process;
                        self.children.insert(process, child);
                        inputs.push_back(CoreInput::Spawned { process, pid: 7 });
                    }
                    CoreEffect::Send {
                        process, message, ..
                    } => self.on_message_to_child(process, *message),
                    CoreEffect::Kill { process } => {
                        let killed = self.children.remove(&process);
                        inputs.extend(killed.map(|_| CoreInput::Exited {
                            process,
                            how: "killed".to_owned(),
                        }));
                    }
                    CoreEffect::Store(job) => {
                        let token = job.token;
                        let report = match job.op {
                            Op::Audit(audit) => {
                                self.audited.push(format!("{audit:?}"));
                                Report::Audit(Ok(()))
                            }
                            Op::RecordUsage(_) if self.is_ledger_stuck => continue,
                            Op::RecordUsage(record) => {
                                self.ledger.push(*record.entry);
                                Report::RecordUsage(Ok(()))
                            }
                            op => panic!("{op:?}"),
                        };
                        inputs.push_back(CoreInput::Stored(StoreCompletion { token, report }));
                    }
                    CoreEffect::Tasks(work) => self.works.push_back(*work),
                    CoreEffect::Proposals {
                        work: work @ (ProposalWork::List(_) | ProposalWork::Show(_)),
                        ..
                    } => {
                        let answer = self.read_proposals(&work);
                        inputs.push_back(CoreInput::Proposals {
                            workspace_id: work.workspace_id().clone(),
                            is_asked: true,
                            done: ProposalsResult {
                                answer: Ok(answer),
                                happened: Vec::new(),
                            },
                        });
                    }
                    CoreEffect::Proposals { work, .. } => self.proposal_works.push_back(work),
                    CoreEffect::Respond { token, result } => {
                        let before = self.answers.insert(token, result);
                        assert!(before.is_none(), "{token:?} was answered twice");
                    }
                    CoreEffect::WriteWorkspace(record) => {
                        inputs.push_back(CoreInput::WorkspaceWritten {
                            workspace_id: record.workspace_id,
                            result: Ok(()),
                        });
                    }
                    CoreEffect::Log(event) => self.logged.push(event.message.to_owned()),
                    CoreEffect::Exit => self.has_exited = true,
                    _ => {}
                }
            }
        }
    }

    fn on_message_to_child(&mut self, process: ProcessId, message: ToChild) {
        let message = match message {
            ToChild::Task(message) => message,
            ToChild::Connector(ToConnector::Call(order)) => return self.calls.push(*order),
            ToChild::Connector(
                message @ (ToConnector::DecisionShow(_)
                | ToConnector::DecisionClosed(_)
                | ToConnector::DecisionVerdict(_)),
            ) => return self.chat.push(message),
            ToChild::Connector(_) => return,
            ToChild::Agent(message) => panic!("{message:?}"),
        };
        let Some(child) = self.children.get_mut(&process) else {
            return;
        };
        match message {
            ToTask::Welcome(welcome) => {
                let Assignment::Task(assignment) = welcome.assignment else {
                    panic!("{:?}", welcome.assignment);
                };
                // A proof is not a run of its task.
                if child.task != MERGE_QUEUE {
                    let run = (assignment.task_id.clone(), assignment.run);
                    assert!(self.begun.insert(run), "a run began twice: {assignment:?}");
                    let facts = &self.disk[&assignment.task_id];
                    let is_durable = facts.iter().any(
                        |entry| matches!(&entry.fact, TaskEvent::RunRequested { run, .. } if *run == assignment.run),
                    );
                    assert!(is_durable, "a run began before that was durable");
                }
                child.assignment = Some(*assignment);
            }
            ToTask::Shutdown(_) => child.is_asked_to_end = true,
            ToTask::Pause(_) => child.is_held = true,
            ToTask::Continue(_) => child.is_held = false,
            ToTask::Permission(answer) => child
                .permissions
                .push((answer.request, answer.refusal.is_none())),
            ToTask::Ping(_) => {}
        }
    }

    pub(super) fn ask_as(&mut self, peer: Peer, method: &str, params: &Value) -> RequestToken {
        self.next_token += 1;
        let token = RequestToken(self.next_token);
        let mut params = params.clone();
        if !method.starts_with("daemon.") {
            params["workspaceId"] = json!("w");
        }
        let call: Call =
            serde_json::from_value(json!({"method": method, "params": params})).unwrap();
        let call = Box::new(call);
        self.step(CoreInput::Request { token, peer, call });
        token
    }

    pub(super) fn ask(&mut self, method: &str, params: &Value) -> RequestToken {
        self.ask_as(Peer::person(), method, params)
    }

    fn read_proposals(&self, work: &ProposalWork) -> Value {
        match work {
            ProposalWork::Show(show) => {
                let mut proposals = self.proposals.iter();
                let is_it = |it: &&Value| it["runId"] == show.at.run_id.as_str();
                proposals.find(is_it).cloned().unwrap()
            }
            _ => json!({ "proposals": self.proposals }),
        }
    }

    /// Sends a request and runs until idle.
    pub(super) fn get(&mut self, method: &str, params: &Value) -> Result<Value, ControlError> {
        let token = self.ask(method, params);
        self.settle();
        self.answers.remove(&token).unwrap()
    }

    pub(super) fn status(&mut self, task: &str) -> String {
        self.settle();
        let shown = self.get("task.show", &json!({"taskId": task})).unwrap();
        shown["info"]["status"].as_str().unwrap().to_owned()
    }

    /// True if the next operation on sandboxes matches `is_it`.
    pub(super) fn is_next_about_sandboxes(&self, is_it: impl Fn(&ProposalWork) -> bool) -> bool {
        self.proposal_works.front().is_some_and(is_it)
    }

    /// The next thing about sandboxes is done, with this result.
    pub(super) fn sandbox_done(&mut self, answer: Result<Value, ControlError>) {
        let work = self.proposal_works.pop_front().unwrap();
        let happened = Vec::new();
        self.step(CoreInput::Proposals {
            workspace_id: work.workspace_id().clone(),
            is_asked: true,
            done: ProposalsResult { answer, happened },
        });
        self.settle();
    }

    /// Executes the next operation; false if there is none.
    pub(super) fn work(&mut self) -> bool {
        let Some(work) = self.works.pop_front() else {
            return false;
        };
        if let Some(done) = self.perform(work) {
            self.step(CoreInput::Tasks(Box::new(done)));
        }
        true
    }

    pub(super) fn settle(&mut self) {
        while self.work() {}
    }

    pub(super) fn read(&self, task: &TaskId) -> LoadedTask {
        let facts = &self.disk[task];
        let TaskEvent::TaskCreated(new) = &facts[0].fact else {
            panic!("{facts:?}");
        };
        let mut state = State::new(new.clone(), facts[0].timestamp);
        for entry in &facts[1..] {
            state.apply(entry);
        }
        let result = match self.unreadable == Some(task.as_str()) {
            true => Err("the history is damaged".to_owned()),
            false => Ok((state, Vec::new())),
        };
        LoadedTask {
            task_id: task.clone(),
            result,
        }
    }

    fn perform(&mut self, work: TaskWork) -> Option<TaskResult> {
        let fails = std::mem::take(&mut self.is_disk_full);
        Some(match work {
            TaskWork::Load { workspace_id } => TaskResult::Loaded {
                workspace_id,
                found: Ok(self.disk.keys().map(|task| self.read(task)).collect()),
            },
            TaskWork::Reload { at } => TaskResult::Reloaded {
                workspace_id: at.workspace_id,
                found: self.read(&at.task_id),
            },
            TaskWork::Create { at, new, now, .. } => {
                let result = if fails {
                    Err(not_created(None))
                } else {
                    let fact = TaskEvent::TaskCreated(*new);
                    let created = HistoryEntry {
                        timestamp: now,
                        fact,
                    };
                    let before = self.disk.insert(at.task_id.clone(), vec![created]);
                    assert!(before.is_none(), "a task was made twice");
                    match std::mem::take(&mut self.is_full_behind_history) {
                        true => Err(not_created(Some(self.read(&at.task_id)))),
                        false => Ok(()),
                    }
                };
                TaskResult::Created { at, result }
            }
            TaskWork::Write { at, facts, state } => {
                let result = if fails {
                    Err(ControlError::new(ErrorCode::Storage, "the disk is full"))
                } else {
                    self.disk.get_mut(&at.task_id).unwrap().extend(facts);
                    let (read, _) = self.read(&at.task_id).result.unwrap();
                    assert_eq!(read, *state, "the shown state differs from the disk");
                    Ok(())
                };
                TaskResult::Written { at, result }
            }
            TaskWork::Log { .. }
            | TaskWork::ReadLog { .. }
            | TaskWork::EndLogs { .. }
            | TaskWork::ForgetReaders { .. }
            | TaskWork::Close { .. } => {
                return None;
            }
            TaskWork::KeepSecret {
                at,
                token,
                id,
                value,
                ..
            } => {
                let key = (at.task_id.clone(), id.clone());
                self.secrets.insert(key, value.0);
                let result = Ok(());
                TaskResult::SecretKept {
                    at,
                    token,
                    id,
                    result,
                }
            }
            TaskWork::ReadSecrets {
                at,
                run,
                references,
            } => {
                let mut found = BTreeMap::new();
                let mut lost = Vec::new();
                for (name, id) in references {
                    match self.secrets.get(&(at.task_id.clone(), id)) {
                        Some(value) => drop(found.insert(name, Clear(value.clone()))),
                        None => lost.push(name),
                    }
                }
                let error = "another System Root keeps it".to_owned();
                let result = match lost.as_slice() {
                    [] => Ok(found),
                    _ => Err(UnreadableSecrets { names: lost, error }),
                };
                TaskResult::SecretsRead { at, run, result }
            }
            TaskWork::Import { .. } | TaskWork::ListCheckpoints { .. } => return None,
            TaskWork::MakeCheckpoint {
                at,
                token,
                about,
                now,
                ..
            } => {
                self.checkpoints += 1;
                let result = Ok(CheckpointInfo {
                    checkpoint_id: format!("checkpoint_{:03}", self.checkpoints),
                    kind: about.kind.to_owned(),
                    name: about.name,
                    phase: about.phase,
                    created_at: Some(now),
                    snapshot_size: 1,
                    files: Some(1),
                    damaged: None,
                });
                let disk = Some(self.disk_use);
                TaskResult::CheckpointMade {
                    at,
                    token,
                    result,
                    disk,
                }
            }
            TaskWork::CheckHandoff { .. } => return None,
            TaskWork::FindDocuments { at, documents, .. } => TaskResult::DocumentsFound {
                at,
                missing: documents
                    .into_iter()
                    .filter(|document| document.contains("missing"))
                    .collect(),
            },
            TaskWork::Measure { at, .. } => TaskResult::Measured {
                at,
                result: Ok(self.disk_use),
            },
            TaskWork::Restore {
                at,
                token,
                is_rehearsal,
                ..
            } => {
                let is_running = self.process_of(at.task_id.as_str()).is_some();
                assert!(is_rehearsal || !is_running, "a run is under way");
                let result = Ok(TaskRestored {
                    checkpoint_id: "checkpoint_001".to_owned(),
                    skipped: Vec::new(),
                    added: Vec::new(),
                    changed: Vec::new(),
                    removed: Vec::new(),
                    pre_restore: (!is_rehearsal).then(|| "checkpoint_009".to_owned()),
                });
                TaskResult::Restored {
                    at,
                    token,
                    is_rehearsal,
                    result,
                }
            }
            TaskWork::Drill { at, token, .. }
                if self.without_drill == Some(at.task_id.as_str()) =>
            {
                let result = Err(ControlError::new(ErrorCode::Storage, "no room"));
                TaskResult::Drilled { at, token, result }
            }
            TaskWork::Drill { at, token, now, .. } => {
                let result = Ok(TaskDrill {
                    checkpoint_id: "checkpoint_001".to_owned(),
                    at: now,
                    entries: 3,
                    problem: self.drill_problem.clone(),
                });
                TaskResult::Drilled { at, token, result }
            }
            TaskWork::Remove {
                at,
                reply,
                with_backup,
            } => {
                let result = if fails {
                    Err(ControlError::new(ErrorCode::Storage, "the disk is full"))
                } else {
                    self.disk.remove(&at.task_id);
                    let backup = with_backup.then(|| format!("/backups/{}", at.task_id).into());
                    Ok(TaskRemoved { backup })
                };
                TaskResult::Removed { at, reply, result }
            }
        })
    }

    pub(super) fn process_of(&self, task: &str) -> Option<ProcessId> {
        let mut children = self.children.iter();
        let found = children.find(|(_, child)| child.task == task);
        found.map(|(process, _)| *process)
    }

    pub(super) fn say(&mut self, process: ProcessId, message: ToOrchestrator) {
        self.step(CoreInput::Message {
            process,
            message: Box::new(message),
            request_id: None,
            trace: None,
        });
    }

    pub(super) fn greet(&mut self, process: ProcessId) {
        let hello = Hello {
            version: Version::current(),
            role: ChildRole::Agent,
            pid: 7,
        };
        self.say(process, ToOrchestrator::Hello(hello));
    }

    /// The connection is ready, or not.
    pub(super) fn connect(&mut self, ready: bool) {
        let process = self.connector.unwrap();
        let hello = Hello {
            version: Version::current(),
            role: ChildRole::Connector,
            pid: 6,
        };
        self.say(process, ToOrchestrator::Hello(hello));
        let detail = "as the test says".to_owned();
        self.say(
            process,
            ToOrchestrator::Status(Status {
                ready,
                detail,
                token: None,
            }),
        );
        self.pass(TICK_MS);
        self.settle();
    }

    /// Result of the last request to the connection.
    pub(super) fn called(&mut self, outcome: CallOutcome) {
        let call_id = self.calls.last().unwrap().call_id;
        let result = ToOrchestrator::CallResult(CallResult {
            call_id,
            outcome,
            looked_back: None,
        });
        self.say(self.connector.unwrap(), result);
        self.settle();
    }

    pub(super) fn started(&mut self, process: ProcessId) {
        let started = TaskStarted {
            pid: 8,
            start_time: 9,
        };
        self.say(process, ToOrchestrator::TaskStarted(started));
    }

    pub(super) fn tell(&mut self, process: ProcessId, events: &[CliEvent]) {
        let events = events
            .iter()
            .map(|event| serde_json::value::to_raw_value(event).unwrap());
        let told = TaskTold {
            events: events.collect(),
        };
        self.say(process, ToOrchestrator::TaskTold(told));
    }

    /// A run's program exits, and its process with it.
    pub(super) fn exit(&mut self, process: ProcessId, code: Option<i32>) {
        self.say(process, ToOrchestrator::TaskExited(TaskExited { code }));
        self.vanish(process);
    }

    /// A run's process exits without a message.
    pub(super) fn vanish(&mut self, process: ProcessId) {
        if self.children.remove(&process).is_some() {
            let how = "exit code 0".to_owned();
            self.step(CoreInput::Exited { process, how });
        }
    }

    /// Time passes, with a tick of the daemon.
    pub(super) fn pass(&mut self, millis: u64) {
        self.now_ms += millis;
        self.step(CoreInput::Tick);
    }

    /// Begins the run that a task waits for: its process greets and starts the program.
    pub(super) fn run(&mut self, task: &str) -> ProcessId {
        self.settle();
        let process = self.process_of(task).unwrap();
        self.greet(process);
        self.started(process);
        self.settle();
        process
    }

    pub(super) fn facts(&self, task: &str) -> Vec<String> {
        let task = TaskId::try_from(task.to_owned()).unwrap();
        let event = |entry: &HistoryEntry| {
            let value = serde_json::to_value(entry).unwrap();
            value["event"].as_str().unwrap().to_owned()
        };
        self.disk[&task].iter().map(event).collect()
    }
}
