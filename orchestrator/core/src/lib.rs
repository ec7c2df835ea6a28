//! The decisions of the orchestrator: a state machine without I/O.
//!
//! [`Core::handle`] takes an [`CoreInput`] and the time, and returns [`CoreEffect`]s, in order. It
//! uses no clock, file or randomness: ids come from a given source. Every run can therefore be
//! repeated, and tests simulate thousands of runs.
//!
//! # Modules
//!
//! * `fleet`: running state. It does not depend on the others.
//! * `calls`: outgoing calls of agents, their costs, and the questions to people that they wait
//!   for.
//! * `requests`: requests of clients.
//! * `oauth`: tokens of authorization servers.
//! * `schedules`: inputs that agents schedule for their own conversations.
//! * `tasks`: next steps of tasks, and the order in which they become durable.
//! * `decisions`: decisions of people in chats, of all kinds. `chat_proposals`: those about proposals
//!   without a task.
//! * `routing`: inputs that concern several of these. `bus`: messages between them.
//! * `router`: maps events to instances.
//! * `jobs`: continuations of jobs of the store.
//! * `exchange`: data in inputs and effects. `instance_list`: lists of instances, and their purposes.
//! * `refusals`: texts of refusals.
//!
//! Each module owns its fields. `docs/architecture.md` describes the submodules.
//!
//! # Invariants
//!
//! * At most one process works for an instance, and at most one turn is in progress in it.
//! * An event is acknowledged as accepted only after the store has reported it durable.
//! * An agent receives a turn only after it has the whole conversation and the store has begun the
//!   turn.
//! * Every waiting client is answered, with the outcome or an error.

use goondan_protocol::control::{EmptyResult, RestoredFrom};
use goondan_protocol::time::Timestamp;
use goondan_store::root::Layout;
use uuid::Uuid;

mod bus;
mod calls;
mod chat_proposals;
mod decisions;
mod effect;
mod exchange;
mod fleet;
mod groups;
mod input;
mod instance_list;
mod jobs;
pub mod limits;
mod oauth;
mod refusals;
mod requests;
mod router;
mod routing;
mod schedules;
#[cfg(test)]
mod simulation;
mod standing_approvals;
mod tasks;
mod unknown_calls;

pub use calls::accounts::Accounts;
pub use effect::{CoreEffect, LogEvent, ReadRequest, Severity, Spawn};
pub use exchange::joint::{FreezeId, JointMetadata, JointResult, JointWork, RollbackFailure};
pub use exchange::oauth::{OAuthResult, OAuthWork};
pub use exchange::tasks::{
    Clear, DiskMeasurement, EndOfLogPolicy, LoadedTask, LogPosition, LogText,
    NewCheckpointMetadata, RemovalCaller, SecretsRead, TaskCreationFailure, TaskRef, TaskResult,
    TaskWork, UnreadableSecrets,
};
pub use exchange::{
    ApplyByAgent, BundleAction, BundleCall, BundleChange, BundleResult, BundleStanding, BundleWork,
    ClientOrigin, ClockTime, ConfigOutcome, DeliverBranch, MetricsReader, NoteDelivery, Peer,
    PrepareForTask, ProcessId, ProposalWork, ProposalsResult, ProposeForTask, QueueRepository,
    QueueStep, QueueWork, QueuedSandbox, RequestToken, ResourceLevel, ResourceUsage, ReviewByAgent,
    ReviewingAgent, SecretWork, SecretsResult, StateResult, StateWork, VerifySandboxes,
};
pub use fleet::parked_events::parked_among;
pub use fleet::watchers::WatchNotification;
pub use groups::{CHILD_GROUP_PREFIX, PROGRAM_GROUP, child_group, program_group};
pub use input::{
    CoreInput, Fallback, LoadPurpose, LoadedWorkspace, WorkspaceLoadResult, WorkspaceSettings,
};
pub use instance_list::{InstanceListing, ListPurpose};
pub use refusals::control_error;
pub use requests::persons::check_person;
pub use requests::verification::finding_told;
pub use standing_approvals::StandingApprovals;
pub use unknown_calls::UnknownCalls;

use calls::Calls;
use chat_proposals::ChatProposals;
use fleet::{Fleet, Workspace};
use oauth::OAuth;
use requests::Requests;
use schedules::Schedules;
use tasks::Tasks;

/// Facts about the orchestrator's environment, fixed at its start.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Paths below the System Root.
    pub layout: Layout,
    pub pid: u32,
    pub started_at: Timestamp,
    /// Directory of log files; `None` if the log goes only to stdout.
    pub log_dir: Option<std::path::PathBuf>,
    /// The control group in which each child has one of its own.
    pub cgroup: Option<std::path::PathBuf>,
    /// The file of the daemon's program, all links followed.
    pub program: Option<std::path::PathBuf>,
    /// True if the operator lets other processes of the same user read the daemon's memory.
    pub is_memory_open: bool,
    /// Origin of the state root, if it was restored from a backup and no person has resumed it.
    pub restored: Option<RestoredFrom>,
    /// Name of this node in the cluster; `None` without other nodes (`REP-1`).
    pub node: Option<String>,
}

/// State of the orchestrator. Dispatches inputs to the modules, and messages between them.
pub struct Core {
    fleet: Fleet,
    calls: Calls,
    requests: Requests,
    tasks: Tasks,
    schedules: Schedules,
    oauth: OAuth,
    chat_proposals: ChatProposals,
}

impl Core {
    /// A core without workspaces. `next_uuid` makes fresh ids, in the order they are asked for.
    pub fn new(facts: Facts, next_uuid: impl FnMut() -> Uuid + Send + 'static) -> Self {
        Self {
            fleet: Fleet::new(facts, next_uuid),
            calls: Calls::default(),
            requests: Requests::default(),
            tasks: Tasks::default(),
            schedules: Schedules::default(),
            oauth: OAuth::default(),
            chat_proposals: ChatProposals::default(),
        }
    }

    /// Handles an input and returns the effects, in order.
    pub fn handle(&mut self, now: ClockTime, input: CoreInput) -> Vec<CoreEffect> {
        self.fleet.cx().begin(now);
        match input {
            CoreInput::Request { token, peer, call } => self.on_request(token, peer, *call),
            CoreInput::ClientGone { tokens } => self.on_client_gone(&tokens),
            CoreInput::Loaded(loaded) => self.on_loaded(*loaded),
            CoreInput::Listed {
                workspace_id,
                purpose,
                result,
            } => self.on_listed(&workspace_id, purpose, result),
            CoreInput::WorkspaceWritten {
                workspace_id,
                result,
            } => self.on_workspace_written(&workspace_id, &result),
            CoreInput::HandOn { workspace_id, to } => {
                if self.fleet.hand_on(&workspace_id, to) {
                    self.tasks.on_close(&mut self.fleet, &workspace_id);
                }
            }
            CoreInput::Unacknowledged(workspaces) => self.fleet.on_unacknowledged(&workspaces),
            CoreInput::ConnectionState {
                workspace_id,
                connection,
                result,
            } => {
                let connector = self.fleet.connector_and_cx(&workspace_id, &connection);
                if let Some((connector, cx)) = connector {
                    connector.on_state_done(cx, result);
                }
            }
            CoreInput::Secrets { token, result } => self.on_secrets(token, result),
            CoreInput::Proposals {
                workspace_id,
                is_asked,
                done,
            } => self.on_proposals(&workspace_id, is_asked, done),
            CoreInput::Bundle(done) => {
                match self.fleet.workspace_and_cx(&done.instance.workspace_id) {
                    Some((workspace, cx)) => workspace.on_bundle(cx, *done),
                    None => self.fleet.cx().abandon_bundle_work(*done),
                }
            }
            CoreInput::Joint(done) => self.on_joint(*done),
            CoreInput::Tasks(done) => self.tasks.on_done(&mut self.fleet, *done),
            CoreInput::OAuth(done) => self.oauth.on_done(&mut self.fleet, done),
            CoreInput::Spawned { process, pid } => self.fleet.on_spawned(process, pid),
            CoreInput::Message {
                process,
                message,
                request_id,
                trace,
            } => {
                self.on_message(process, *message, request_id, trace);
            }
            CoreInput::Broken { process, problem } => self.fleet.on_broken(process, &problem),
            CoreInput::Exited { process, how } => self.on_exited(process, &how),
            CoreInput::NoRoom { process, how } => self.on_no_room(process, &how),
            CoreInput::Supply(supply) => self.fleet.starts().on_supply(supply),
            CoreInput::Stored(completion) => self.on_stored(completion),
            CoreInput::Tick => self.on_tick(),
            CoreInput::Reload => self.reload_all(),
            CoreInput::FilesChanged { workspace_id } => self.on_files_changed(&workspace_id),
            CoreInput::Watching { workspace_id, how } => self.on_watching(&workspace_id, how),
            CoreInput::Stop { grace_period_ms } => self.stop(grace_period_ms),
            CoreInput::ForceStop => {
                self.fleet.force_stop();
                self.tasks.on_stop(&mut self.fleet);
            }
        }
        self.settle();
        self.fleet.cx().take_effects()
    }

    /// Stops everything: no new work, turns in progress finish, then the daemon ends.
    pub(crate) fn stop(&mut self, grace_period_ms: Option<u64>) {
        self.fleet.stop(grace_period_ms);
        self.tasks.on_stop(&mut self.fleet);
    }

    /// Compares desired with actual everywhere (`SUP-5`).
    fn on_tick(&mut self) {
        self.calls.retry_charges(&mut self.fleet);
        let tick = self.fleet.tick();
        for owner in tick.owners {
            self.on_time(&owner);
        }
        let is_paused = self.fleet.cx().is_paused();
        if !is_paused {
            self.fleet.each_workspace(Workspace::deny_late_approvals);
        }
        self.calls.on_question_time(&mut self.fleet);
        self.calls.on_call_time(&mut self.fleet);
        if tick.is_for_all {
            self.calls.forget_replies(&self.fleet);
        }
        self.look_at_budgets();
        self.tasks.on_time(&mut self.fleet);
        self.fleet.each_workspace(Workspace::report_lost_exports);
        if is_paused {
            return;
        }
        self.fleet.each_workspace(Workspace::end_late_joins);
        self.schedules.on_time(&mut self.fleet);
        self.oauth.on_time(&mut self.fleet);
        self.look_for_expired();
    }

    /// Ends the workspaces and the daemon that are ending and have nothing left to wait for.
    fn finish_what_is_ending(&mut self) {
        let is_writing = self.oauth.is_writing();
        if self
            .fleet
            .has_just_ended(|id| is_writing || self.tasks.is_busy(id))
        {
            for token in self.requests.take_stops() {
                self.fleet.respond(token, &EmptyResult {});
            }
            self.fleet.cx().emit(CoreEffect::Exit);
        }
    }

    /// True if the daemon is stopping.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.fleet.is_stopping()
    }

    /// True if agents wait to be started.
    #[must_use]
    pub fn has_waiting_starts(&self) -> bool {
        self.fleet.view().waiting_starts() > 0
    }
}
