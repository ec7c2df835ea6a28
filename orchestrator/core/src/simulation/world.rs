//! The simulated world: time, children, clients, a user, and the real store on a simulated disk.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use goondan_config::ProjectConfig;
use goondan_durable::disk::{CallFault, Crash, Disk, SimulatedDisk};
use goondan_protocol::agents::AgentAsk;
use goondan_protocol::call::CallOutcome;
use goondan_protocol::control::{ApprovalInfo, Call, EventInfo, Stop};
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ids::{EventId, InstanceKey, WorkspaceId};
use goondan_protocol::ipc::{ChildRole, ToAgent, ToChild, ToConnector, ToOrchestrator};
use goondan_protocol::time::Timestamp;
use goondan_store::audit;
use goondan_store::ledger;
use goondan_store::root::Layout;
use goondan_store::workspace::{self, WorkspaceRecord};
use goondan_store::writer::{Op, StoreJob, Worker};

mod chat_buttons;
mod children;
mod reply_requests;
mod store_content;
mod watchers;

use super::agent::{Act, Agent};
use super::chat::{Chat, PendingPresses};
use super::config::{self, Edit, OTHER_MODEL};
use super::oracle::{Oracle, ResponseEffect, SimulatedRequest};
use super::places::SlotSnapshots;
use super::replies::{Replies, Requests};
use super::watcher::Watcher;
use crate::fleet::agents::CONFIGURATION_CHANGED;
use crate::limits::TICK_MS;
use crate::{
    Accounts, ClockTime, Core, CoreEffect, CoreInput, Facts, InstanceListing, ListPurpose,
    LoadPurpose, LoadedWorkspace, Peer, ProcessId, ProposalsResult, RequestToken, ResourceLevel,
    ResourceUsage, TaskResult, TaskWork, WorkspaceLoadResult, control_error, parked_among,
};
use crate::{StandingApprovals, UnknownCalls};

/// Fault rates, in thousandths.
#[derive(Debug, Clone, Copy)]
pub(super) struct FaultRates {
    /// A process crashes, per action.
    pub(super) crash: u64,
    /// A process hangs permanently, per message it receives.
    pub(super) hang: u64,
    /// A process violates the protocol, per action.
    pub(super) garbage: u64,
    /// The disk fails once, per external action.
    pub(super) disk: u64,
    /// The daemon is killed, per external action.
    pub(super) kill: u64,
    /// A user edits, restarts, deletes, stops or starts, per external action.
    pub(super) person: u64,
    pub(super) work: u64,
}

#[derive(Debug)]
pub(super) enum ScheduledEvent {
    Input(CoreInput),
    Deliver(ProcessId, Box<ToChild>, Option<u64>),
    Act(ProcessId, Act),
    Die(ProcessId, &'static str),
    Store,
    Load(LoadPurpose, Option<WorkspaceId>),
    Write(Box<WorkspaceRecord>),
    List(ListPurpose, WorkspaceId),
    Tick,
}

#[derive(Debug)]
enum ProcessRole {
    Agent(Box<Agent>),
    Connector,
    Model,
}

#[derive(Debug)]
pub(super) struct Child {
    owner: String,
    /// Its kind, and the name of the agent, connection or model.
    name: (ChildRole, String),
    started_with: Option<Arc<ProjectConfig>>,
    role: ProcessRole,
    is_hung: bool,
    /// True if the core asked it to stop or killed it.
    was_asked: bool,
    /// True if the core asked it to stop.
    was_told: bool,
    is_dying: bool,
    is_greeted: bool,
    /// Keeps messages in order in both directions.
    last_heard_ms: u64,
    last_said_ms: u64,
    next_request: u64,
    /// Unacknowledged posts, by request.
    posts: HashMap<u64, EventId>,
    /// Replies that it waits for.
    replies: Requests,
    /// Questions to users that it waits for, by request.
    pub(super) questions: BTreeSet<u64>,
    /// Button presses without a verdict.
    pressed: PendingPresses,
}

impl Child {
    /// The agent's unanswered request with this id.
    fn asked(&self, request: Option<u64>) -> Option<&AgentAsk> {
        match &self.role {
            ProcessRole::Agent(agent) => agent.asked(request?),
            ProcessRole::Connector | ProcessRole::Model => None,
        }
    }
}

/// An external event that is posted until it is accepted.
#[derive(Debug)]
pub(super) struct PostedEvent {
    pub(super) event_id: EventId,
    pub(super) key: InstanceKey,
    pub(super) is_in_flight: bool,
}

pub(super) struct World {
    pub(super) rng: fastrand::Rng,
    pub(super) plan: FaultRates,
    pub(super) is_healing: bool,
    pub(super) core: Core,
    pub(super) disk: SimulatedDisk,
    pub(super) layout: Layout,
    worker: Worker,
    batch: Vec<StoreJob>,
    /// For each conversation, the configuration of its latest turn, and the number of model
    /// replacements before it.
    begun: HashMap<String, (Option<String>, usize)>,
    /// Configurations that replaced the model with a change of more than the key.
    replaced_under: Vec<Option<String>>,
    /// Number of turns that began with the commit of the previous one.
    pub(super) begun_behind: u64,
    pub(super) mono_ms: u64,
    pub(super) booted_ms: u64,
    /// Offset of the wall clock from the monotonic clock.
    pub(super) wall_skew_ms: i64,
    queue: BTreeMap<(u64, u64), ScheduledEvent>,
    next_happening: u64,
    last_stored_ms: u64,
    pub(super) children: HashMap<ProcessId, Child>,
    /// The slots after the previous step.
    pub(super) places: SlotSnapshots,
    /// The process that exited in this step without a request.
    pub(super) crashed: Option<ProcessId>,
    /// The process that exited in this step because it was killed without being asked to stop.
    pub(super) killed: Option<ProcessId>,
    /// Number of processes that could not be started in this step.
    pub(super) failed_starts: u32,
    /// Processes that could not be started, unknown to the core so far: their owners, and true if
    /// the core wanted them to stop in the meantime.
    pub(super) unstarted: HashMap<ProcessId, (String, bool)>,
    next_pid: u32,
    next_token: u64,
    next_event: u64,
    pub(super) posts: Vec<PostedEvent>,
    pub(super) chat: Chat,
    pub(super) edit: Edit,
    /// The latest valid configuration that was loaded.
    applied: Option<Arc<ProjectConfig>>,
    /// Number of processes restarted because of an edit.
    pub(super) edits_felt: u64,
    /// The parked events in the latest list.
    pub(super) parked: Option<Vec<EventInfo>>,
    /// The pending approvals in the latest list.
    pub(super) waiting_calls: Vec<ApprovalInfo>,
    pub(super) oracle: Oracle,
    pub(super) replies: Replies,
    pub(super) watcher: Watcher,
    pub(super) has_exited: bool,
    pub(super) steps: u64,
    pub(super) trace: VecDeque<String>,
    is_traced: bool,
}

const TRACE_MAX: usize = 400;

fn new_core(layout: &Layout, seed: u64) -> Core {
    let facts = Facts {
        layout: layout.clone(),
        pid: 1,
        started_at: Timestamp::from_unix_millis(0),
        log_dir: None,
        cgroup: None,
        program: None,
        is_memory_open: false,
        restored: None,
        node: None,
    };
    let mut rng = fastrand::Rng::with_seed(seed);
    Core::new(facts, move || uuid::Uuid::from_u128(rng.u128(..)))
}

impl World {
    pub(super) fn new(seed: u64, plan: FaultRates, is_traced: bool) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = SimulatedDisk::new();
        let layout = Layout::new("/root");
        for dir in [layout.root().to_owned(), layout.workspaces()] {
            disk.create_dir(&dir).unwrap();
        }
        for dir in [layout.root(), layout.root().parent().unwrap()] {
            disk.sync_dir(dir).unwrap();
        }
        workspace::open(&disk, &layout, config::PROJECT.as_ref(), None).unwrap();
        let core = new_core(&layout, rng.u64(..));
        let worker = Worker::new(Arc::new(disk.clone()), layout.clone());
        let mut world = Self {
            rng,
            plan,
            is_healing: false,
            core,
            disk,
            layout,
            worker,
            batch: Vec::new(),
            begun: HashMap::new(),
            replaced_under: Vec::new(),
            begun_behind: 0,
            mono_ms: 0,
            booted_ms: 0,
            wall_skew_ms: 0,
            queue: BTreeMap::new(),
            next_happening: 0,
            last_stored_ms: 0,
            children: HashMap::new(),
            places: SlotSnapshots::default(),
            crashed: None,
            killed: None,
            failed_starts: 0,
            unstarted: HashMap::new(),
            next_pid: 100,
            next_token: 0,
            next_event: 0,
            posts: Vec::new(),
            chat: Chat::default(),
            edit: Edit::Valid(0),
            applied: None,
            edits_felt: 0,
            parked: None,
            waiting_calls: Vec::new(),
            oracle: Oracle::default(),
            replies: Replies::default(),
            watcher: Watcher::new(seed),
            has_exited: false,
            steps: 0,
            trace: VecDeque::new(),
            is_traced,
        };
        world.boot();
        world
    }

    pub(super) fn chance(&mut self, permille: u64) -> bool {
        !self.is_healing && self.rng.u64(..1_000) < permille
    }

    /// Adds a line to the trace for failure reports.
    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        if self.is_traced {
            if self.trace.len() == TRACE_MAX {
                self.trace.pop_front();
            }
            self.trace.push_back(format!("{:>8} {what}", self.mono_ms));
        }
    }

    fn at(&mut self, due_ms: u64, happening: ScheduledEvent) {
        self.next_happening += 1;
        self.queue.insert((due_ms, self.next_happening), happening);
    }

    pub(super) fn soon(&mut self, within_ms: u64, happening: ScheduledEvent) {
        let due_ms = self.mono_ms + self.rng.u64(0..=within_ms);
        self.at(due_ms, happening);
    }

    /// Executes the next scheduled event.
    pub(super) fn step(&mut self) {
        let Some(((due_ms, _), happening)) = self.queue.pop_first() else {
            panic!("nothing will ever happen again");
        };
        self.steps += 1;
        self.mono_ms = self.mono_ms.max(due_ms);
        match happening {
            ScheduledEvent::Input(input) => self.input(input),
            ScheduledEvent::Deliver(process, message, request) => {
                self.deliver(process, *message, request);
            }
            ScheduledEvent::Act(process, act) => self.act(process, act),
            ScheduledEvent::Die(process, how) => self.die(process, how),
            ScheduledEvent::Store => self.run_store(),
            ScheduledEvent::Load(purpose, id) => self.load(purpose, id),
            ScheduledEvent::Write(record) => {
                let written = workspace::write(&self.disk, &self.layout, &record);
                let workspace_id = record.workspace_id.clone();
                self.oracle.forgive_all();
                let result = written.map_err(|error| control_error(&error));
                self.input(CoreInput::WorkspaceWritten {
                    workspace_id,
                    result,
                });
            }
            ScheduledEvent::List(purpose, workspace_id) => {
                let instances = self.layout.instances(&workspace_id);
                let listed = workspace::list_instances(&self.disk, &instances);
                let result = listed.map(InstanceListing::of);
                let result = result.map_err(|error| control_error(&error));
                self.input(CoreInput::Listed {
                    workspace_id,
                    purpose,
                    result,
                });
            }
            ScheduledEvent::Tick => {
                self.at(self.mono_ms + TICK_MS, ScheduledEvent::Tick);
                self.measure();
                self.input(CoreInput::Tick);
            }
        }
    }

    /// Reports a shortage of descriptors, or its end, to the core.
    fn measure(&mut self) {
        let limit = 1_000;
        let used = if self.is_healing {
            0
        } else if self.core.fleet.view().is_short_of_anything() || self.chance(self.plan.person) {
            self.rng.u64(0..=limit)
        } else {
            return;
        };
        let descriptors = Some(ResourceLevel { used, limit });
        self.input(CoreInput::Supply(ResourceUsage {
            descriptors,
            ..ResourceUsage::default()
        }));
    }

    pub(super) fn input(&mut self, input: CoreInput) {
        if let CoreInput::Message {
            process, message, ..
        } = &input
            && let ToOrchestrator::CallResult(_) = **message
            && let Some(child) = self.children.get(process)
        {
            // A process that makes a call is working.
            self.oracle.forgive(&child.owner);
        }
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            if let CoreInput::Exited { process, .. } = &input
                && let Some((owner, is_wanted)) = self.unstarted.remove(process)
            {
                self.oracle.end(&owner, *process, !is_wanted, self.mono_ms);
            }
            self.note(format_args!("> {input:?}"));
            let wall_ms = i64::try_from(self.mono_ms).unwrap() + self.wall_skew_ms;
            let now = ClockTime {
                mono_ms: self.mono_ms - self.booted_ms,
                wall: Timestamp::from_unix_millis(1_700_000_000_000 + wall_ms),
            };
            for effect in self.core.handle(now, input) {
                self.note(format_args!("  < {effect:?}"));
                inputs.extend(self.carry_out(effect));
            }
        }
        self.check();
    }

    fn carry_out(&mut self, effect: CoreEffect) -> Vec<CoreInput> {
        assert!(!self.has_exited, "it said that it had ended");
        match effect {
            CoreEffect::Spawn(spawn) => return self.spawn(&spawn),
            CoreEffect::Send {
                process,
                head,
                message,
            } => {
                let Some(child) = self.children.get_mut(&process) else {
                    return Vec::new();
                };
                match &*message {
                    ToChild::Agent(ToAgent::TurnCommitted(_)) => self.oracle.forgive(&child.owner),
                    ToChild::Agent(ToAgent::Shutdown(shutdown))
                    | ToChild::Connector(ToConnector::Shutdown(shutdown)) => {
                        (child.was_asked, child.was_told) = (true, true);
                        if shutdown.reason == CONFIGURATION_CHANGED {
                            let (role, name) = &child.name;
                            assert!(
                                config::concerns(
                                    child.started_with.as_deref(),
                                    self.applied.as_deref(),
                                    *role,
                                    name
                                ),
                                "{role:?} {name} is restarted by an edit that does not concern it"
                            );
                            self.edits_felt += 1;
                            if *role == ChildRole::Model && name == OTHER_MODEL {
                                let mut workspaces = self.core.fleet.workspaces().values();
                                let bundle = workspaces.find_map(|w| w.bundle.as_ref());
                                let digest = bundle.map(|bundle| bundle.digest.clone());
                                self.replaced_under.push(digest);
                            }
                        }
                    }
                    ToChild::Agent(ToAgent::Event(_)) => {
                        let (begun_under, before) = &self.begun[&child.owner];
                        let mut since = self.replaced_under.iter().skip(*before);
                        assert!(
                            since.all(|digest| digest == begun_under),
                            "{} is given a turn that began on {begun_under:?}, whose model was replaced",
                            child.owner
                        );
                    }
                    // The providers of a turn in progress stay available until it is over, or its
                    // process is killed.
                    ToChild::Agent(ToAgent::CallResult(result)) if !child.is_dying => {
                        if let CallOutcome::Error(error) = &result.outcome {
                            let why = &error.message;
                            assert!(
                                !why.contains("it is being stopped"),
                                "{}: {why}",
                                child.owner
                            );
                        }
                    }
                    ToChild::Agent(ToAgent::AgentAnswer(answer)) => {
                        self.oracle
                            .answer_agent(child.asked(head.in_reply_to), answer);
                    }
                    ToChild::Connector(ToConnector::EventAccepted(accepted)) => {
                        self.oracle.forgive(&child.owner);
                        self.oracle
                            .acknowledge(&accepted.event_id, accepted.duplicate);
                        self.posts.retain(|post| post.event_id != accepted.event_id);
                        // A client may want the reply.
                        let key = accepted.instance_key.as_ref().filter(|_| self.rng.bool());
                        if let Some(key) = key {
                            self.replies.want(accepted.event_id.clone(), key.clone());
                        }
                    }
                    ToChild::Connector(message) => {
                        self.promise_of_buttons(process, message, head.in_reply_to);
                    }
                    _ => {}
                }
                let Some(child) = self.children.get_mut(&process) else {
                    return Vec::new();
                };
                let due_ms = child.last_heard_ms.max(self.mono_ms + self.rng.u64(0..20));
                child.last_heard_ms = due_ms;
                self.at(
                    due_ms,
                    ScheduledEvent::Deliver(process, message, head.in_reply_to),
                );
            }
            CoreEffect::Kill { process } => {
                if let Some(child) = self.children.get_mut(&process) {
                    child.was_asked = true;
                    if !child.is_dying {
                        child.is_dying = true;
                        self.soon(30, ScheduledEvent::Die(process, "signal 9"));
                    }
                }
                if let Some((_, is_wanted)) = self.unstarted.get_mut(&process) {
                    *is_wanted = true;
                }
            }
            CoreEffect::Store(job) => {
                if let Op::BeginTurn(begin) = &job.op {
                    let is_behind = |job: &StoreJob| matches!(&job.op, Op::CompleteTurn(complete) if complete.instance == begin.instance);
                    self.begun_behind += u64::from(self.batch.last().is_some_and(is_behind));
                    let key = serde_json::json!(begin.instance.instance_key);
                    let begun = (begin.config_digest.clone(), self.replaced_under.len());
                    self.begun.insert(format!("instanceKey {key}"), begun);
                }
                if let Op::ParkEvent(_) = &job.op {
                    // The listed events are no longer complete.
                    self.parked = None;
                }
                self.batch.push(job);
                if self.batch.len() == 1 {
                    self.soon(5, ScheduledEvent::Store);
                }
            }
            CoreEffect::LoadWorkspace {
                purpose,
                workspace_id,
                ..
            } => self.soon(20, ScheduledEvent::Load(purpose, workspace_id)),
            // Its connectors have no persistent state, and no other nodes exist.
            CoreEffect::ConnectionState { .. } | CoreEffect::HandOver { .. } => {}
            CoreEffect::WriteWorkspace(record) => self.soon(20, ScheduledEvent::Write(record)),
            CoreEffect::Respond { token, .. } if self.watcher.ended(Some(token)) => {}
            CoreEffect::Tell { token, told, .. } => self.watcher.on_notification(token, *told),
            CoreEffect::Respond { token, result } => {
                match self.oracle.answer(token, &result, self.mono_ms) {
                    ResponseEffect::Nothing => {}
                    ResponseEffect::PostAgain(event_id) => self.post_again(&event_id),
                    ResponseEffect::Parked(found) => self.parked = Some(found),
                    ResponseEffect::WaitingCalls(found) => self.waiting_calls = found,
                }
            }
            CoreEffect::Progress { token, .. } | CoreEffect::Piece { token, .. } => {
                self.oracle.progress(token);
            }
            CoreEffect::Exit => {
                assert!(self.children.is_empty(), "it ended before its children");
                assert!(self.batch.is_empty(), "it ended before its store was done");
                self.has_exited = true;
            }
            // This world has no tasks.
            CoreEffect::Tasks(work) => {
                if let TaskWork::Load { workspace_id } = *work {
                    let found = Ok(Vec::new());
                    return vec![CoreInput::Tasks(Box::new(TaskResult::Loaded {
                        workspace_id,
                        found,
                    }))];
                }
            }
            // This world has no proposals.
            CoreEffect::Proposals { work, .. } => {
                return vec![CoreInput::Proposals {
                    workspace_id: work.workspace_id().clone(),
                    is_asked: true,
                    done: ProposalsResult {
                        answer: Ok(serde_json::json!({ "proposals": [] })),
                        happened: Vec::new(),
                    },
                }];
            }
            CoreEffect::ListMetadata {
                purpose,
                workspace_id,
            } => self.soon(20, ScheduledEvent::List(purpose, workspace_id)),
            CoreEffect::SetTrace { .. }
            | CoreEffect::KeepConfiguration { .. }
            | CoreEffect::Watch { .. }
            | CoreEffect::ListInstances { .. }
            | CoreEffect::Read { .. }
            | CoreEffect::Secrets { .. }
            | CoreEffect::StorePackage { .. }
            | CoreEffect::PrunePackages { .. }
            | CoreEffect::Joint(_)
            | CoreEffect::Bundle(_)
            | CoreEffect::OAuth(_)
            | CoreEffect::Count(_)
            | CoreEffect::TellMetrics { .. }
            | CoreEffect::Log(_) => {}
        }
        Vec::new()
    }

    fn run_store(&mut self) {
        // Jobs submitted together are not always executed together.
        let mut taken = std::mem::take(&mut self.batch);
        if self.rng.u64(..4) == 0 {
            self.batch = taken.split_off(self.rng.usize(0..=taken.len()));
        }
        if !self.batch.is_empty() {
            self.soon(5, ScheduledEvent::Store);
        }
        let completions = self.worker.work(&mut taken);
        if self.rng.u64(..20) == 0 {
            self.worker.tidy(true);
        }
        for completion in completions {
            Oracle::assert_none_begins_paused(&completion);
            let due_ms = self.last_stored_ms.max(self.mono_ms + self.rng.u64(0..3));
            self.last_stored_ms = due_ms;
            self.at(due_ms, ScheduledEvent::Input(CoreInput::Stored(completion)));
        }
    }

    fn load(&mut self, purpose: LoadPurpose, workspace_id: Option<WorkspaceId>) {
        if matches!(purpose, LoadPurpose::Restart { .. }) {
            self.oracle.forgive_all();
        }
        let result = self.read_workspace();
        // A stopping daemon or workspace applies no new configuration.
        let mut workspaces = self.core.fleet.workspaces().values();
        let is_taken_up = !self.core.fleet.is_stopping()
            && workspaces.all(|workspace| workspace.closing.is_none());
        if is_taken_up && let Ok(Ok(bundle)) = result.as_ref().map(|found| &found.bundle) {
            self.applied = Some(Arc::new(bundle.clone()));
        }
        self.input(CoreInput::Loaded(Box::new(WorkspaceLoadResult {
            purpose,
            workspace_id,
            sources: Arc::default(),
            result,
        })));
    }

    fn read_workspace(
        &mut self,
    ) -> Result<LoadedWorkspace, goondan_protocol::control::ControlError> {
        let failed = |error| control_error(&error);
        let record = workspace::open(&self.disk, &self.layout, config::PROJECT.as_ref(), None)
            .map_err(failed)?;
        let instances = self.layout.instances(&record.workspace_id);
        let (with_work, _) =
            workspace::instances_with_work(&self.disk, &instances).map_err(failed)?;
        let (to_begin_anew, _) =
            workspace::list_instances(&self.disk, &instances).map_err(failed)?;
        let parked = parked_among(&to_begin_anew);
        let bundle: Result<ProjectConfig, _> = self.edit.bundle();
        let ledger = ledger::read(&self.disk, &self.layout, &record.workspace_id);
        let accounts = Accounts::of(&ledger.map_err(failed)?.lines);
        let mut unknown_calls = UnknownCalls::default();
        let (id, records) = (&record.workspace_id, UnknownCalls::RECORDS);
        audit::each_with(&self.disk, &self.layout, id, &records, |record| {
            unknown_calls.follow(record);
        })
        .map_err(failed)?;
        let mut standing = StandingApprovals::default();
        audit::each_with(
            &self.disk,
            &self.layout,
            id,
            &StandingApprovals::RECORDS,
            |record| standing.follow(record),
        )
        .map_err(failed)?;
        standing.retain_existing(&to_begin_anew);
        Ok(LoadedWorkspace {
            record,
            bundle,
            fallback: None,
            may_be_kept: true,
            accounts,
            unknown_calls,
            standing,
            schedules: workspace::schedules_among(&self.disk, &instances, &to_begin_anew),
            with_work,
            parked,
            to_begin_anew,
        })
    }

    /// Starts the daemon with the state on disk.
    fn boot(&mut self) {
        self.booted_ms = self.mono_ms;
        self.at(self.mono_ms + TICK_MS, ScheduledEvent::Tick);
        let listed = workspace::list(&self.disk, &self.layout).unwrap();
        for record in listed.0.into_iter().filter(|record| record.registered) {
            let id = Some(record.workspace_id);
            self.soon(50, ScheduledEvent::Load(LoadPurpose::Start, id));
        }
    }

    /// Kills the daemon or the whole machine in the middle of store operations.
    pub(super) fn kill_daemon(&mut self) {
        let call = self.disk.calls() + self.rng.u64(0..40);
        self.disk.crash_at(call);
        self.worker.work(&mut self.batch);
        let crash = match self.rng.u64(0..4) {
            0 => Crash::LoseUnsynced,
            1 => Crash::KeepUnsynced,
            2 => Crash::ProcessOnly,
            _ => Crash::Subset(self.rng.u64(..)),
        };
        self.note(format_args!("== the daemon is killed: {crash:?}"));
        self.disk = self.disk.after_crash(crash);
        self.worker = Worker::new(Arc::new(self.disk.clone()), self.layout.clone());
        self.batch.clear();
        self.core = new_core(&self.layout, self.rng.u64(..));
        self.watcher.ended(None);
        self.queue.clear();
        self.children.clear();
        self.places = SlotSnapshots::default();
        self.oracle.forget_processes();
        self.replies.lose_all();
        for event_id in self.oracle.leave(|_| true) {
            self.post_again(&event_id);
        }
        for post in &mut self.posts {
            post.is_in_flight = false;
        }
        self.has_exited = false;
        self.boot();
    }

    pub(super) fn fail_disk_once(&mut self) {
        let call = self.disk.calls() + self.rng.u64(0..60);
        let fault = match self.rng.u64(0..4) {
            0 => CallFault::Errno(libc_errno::EIO),
            1 => CallFault::Errno(libc_errno::ENOSPC),
            2 => CallFault::Errno(libc_errno::EMFILE),
            _ => CallFault::ShortWrite(self.rng.usize(0..20)),
        };
        self.note(format_args!("== the disk will fail: {fault:?}"));
        self.disk.fail_at(call, fault, false);
    }

    pub(super) fn new_event(&mut self, key: &InstanceKey) -> EventId {
        self.new_event_as("e", key)
    }

    /// A new event that [`config::CONNECTION`] submits.
    pub(super) fn new_post(&mut self, key: &InstanceKey) -> EventId {
        self.new_event_as(&format!("{}:e", config::CONNECTION), key)
    }

    fn new_event_as(&mut self, prefix: &str, key: &InstanceKey) -> EventId {
        self.next_event += 1;
        let event_id: EventId = format!("{prefix}{}", self.next_event).parse().unwrap();
        self.oracle.submit(&event_id, key);
        event_id
    }

    pub(super) fn ask(&mut self, asked: SimulatedRequest, call: Call) -> RequestToken {
        self.next_token += 1;
        let token = RequestToken(self.next_token);
        self.oracle.ask(token, asked);
        let call = Box::new(call);
        self.input(CoreInput::Request {
            token,
            peer: Peer::person(),
            call,
        });
        token
    }

    /// Submits an event of unknown durability again, unless a user deleted its conversation.
    fn post_again(&mut self, event_id: &EventId) {
        if let Some(post) = self.posts.iter_mut().find(|p| p.event_id == *event_id) {
            post.is_in_flight = false;
        }
    }

    /// Posts the pending events through their connection, if it listens.
    pub(super) fn post(&mut self) {
        self.posts
            .retain(|post| !self.oracle.is_excused(&post.event_id));
        let listening = self.listening(config::CONNECTION);
        for n in 0..self.posts.len() {
            if self.posts[n].is_in_flight {
                continue;
            }
            let Some(process) = self.rng.choice(&listening).copied() else {
                return;
            };
            let post = &mut self.posts[n];
            post.is_in_flight = true;
            let (event_id, key) = (post.event_id.clone(), post.key.clone());
            let child = self.children.get_mut(&process).unwrap();
            child.next_request += 1;
            let request = child.next_request;
            child.posts.insert(request, event_id.clone());
            let event = ConnectorEvent {
                id: Some(event_id),
                name: "message".to_owned(),
                input: "x".to_owned(),
                instance_key: Some(key),
                properties: goondan_protocol::JsonObject::new(),
                auth: None,
                metadata: goondan_protocol::JsonObject::new(),
            };
            self.say(
                process,
                ToOrchestrator::Event(Box::new(event)),
                Some(request),
            );
        }
    }

    /// True if only time has to pass.
    pub(super) fn is_quiet(&self) -> bool {
        let pending: usize = self
            .core
            .fleet
            .view()
            .every_workspace(&self.core.calls)
            .iter()
            .map(|info| info.pending_events)
            .sum();
        pending == 0 && self.posts.is_empty() && self.oracle.open_requests().is_empty()
    }

    pub(super) fn running(&self) -> usize {
        self.oracle.running()
    }

    pub(super) fn stop(&mut self) {
        let stop = Stop {
            grace_period_ms: None,
        };
        self.ask(SimulatedRequest::Other, Call::Stop(stop));
    }
}

/// Error numbers of disk failures.
mod libc_errno {
    use nix::errno::Errno;

    pub(super) const EIO: i32 = Errno::EIO as i32;
    pub(super) const ENOSPC: i32 = Errno::ENOSPC as i32;
    pub(super) const EMFILE: i32 = Errno::EMFILE as i32;
}
