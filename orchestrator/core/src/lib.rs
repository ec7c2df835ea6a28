//! The decisions of the orchestrator: a state machine without I/O.
//!
//! [`Core::handle`] takes one thing that happened ([`Input`]) and the time, and returns what is to be
//! done about it ([`Effect`]s, in order). It reads no clock, no file and no randomness: ids come from a
//! source it is given. So every run can be repeated, and thousands of them simulated.
//!
//! # Who decides what
//!
//! * `router`: which instance an event belongs to.
//! * `former_keys`: which conversations from before are a connection's own.
//! * `slot` and `back_off`: when a process may start, and when it is to be killed.
//! * `room`: who gives way when descriptors, processes or memory run short.
//! * `mailbox`: events on their way in. `turns`: what becomes of them.
//! * `parking`: events that crash whoever works on them.
//! * `asking`: what agents ask of each other. `answers`: how they hear of what came of it.
//! * `authority`: what a child may ask for. `observing`: what its reports are made to say.
//! * `ceilings`: what the work of agents may grow to.
//! * `instance`: what is known of an agent instance. `agents`: its process. `connectors`: connector
//!   processes of connections. `models`: those of models.
//! * `calls`: what agents want done outside, and who does it. `accounts`: what that took.
//! * `questions`: what waits for a person's answer, under a call.
//! * `collectors`: traces on their way to collectors.
//! * `exchange`: what inputs and effects carry. `listing`: lists of instances, and what they are for.
//! * `refusals`: why something is not done, in words.
//! * `jobs`: what follows when the store has done something.
//! * `processes`: what all children have in common.
//! * `changes`: what an edit changes. `reloading`: reading configurations again.
//! * `requests`: what clients ask for. `deletion`: what becomes of that request.
//! * `queries`: looks back at what happened. `archives`: conversations to be taken elsewhere.
//! * `verification`: whether files are as they were written.
//! * `retention`: conversations that nobody uses any more.
//! * `workspaces`: opening, changing, restarting and closing workspaces.
//!
//! # Invariants
//!
//! * At most one process works for an instance, and at most one turn is in progress in it.
//! * An event is answered "accepted" only after the store has reported it durable.
//! * An agent is sent a turn only after it has the whole conversation and the store has begun the turn.
//! * Every client that waits is answered: with the outcome, or with the reason there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use goondan_config::{Bundle, Sources};
use goondan_protocol::call::CallId;
use goondan_protocol::control::{ControlError, ErrorCode, Watching, WorkspaceProblem};
use goondan_protocol::ids::{ConnectionName, InstanceKey, InstanceRef, ResourceName, WorkspaceId};
use goondan_protocol::ipc::ChildRole;
use goondan_protocol::time::Timestamp;
use goondan_protocol::version::Version;
use goondan_store::root::Layout;
use goondan_store::workspace::WorkspaceRecord;
use uuid::Uuid;

use limits::TICKS_OF_REST;

mod agents;
mod answers;
mod archives;
mod asking;
mod authority;
mod availability;
mod back_off;
mod calling;
mod calls;
mod ceilings;
mod changes;
mod collectors;
mod connection_state;
mod connectors;
mod deletion;
mod effect;
mod exchange;
mod former_keys;
mod health;
mod input;
mod instance;
mod jobs;
pub mod limits;
mod listing;
mod mailbox;
mod models;
mod observing;
mod parking;
mod processes;
mod queries;
mod refusals;
mod reloading;
mod requests;
mod restarting;
mod retention;
mod room;
mod router;
mod secrets;
#[cfg(test)]
mod simulation;
mod slot;
mod starts;
mod turns;
mod verification;
mod views;
mod workspaces;

pub use calls::accounts::Accounts;
pub use effect::{Effect, LogEvent, Read, Severity, Spawn};
pub use exchange::{
    Now, Peer, ProcessId, RequestToken, SecretWork, SecretsDone, Share, StateDone, StateWork,
    Supply,
};
pub use input::{Fallback, Input, LoadPurpose, Loaded, LoadedWorkspace, Settings};
pub use listing::{ListPurpose, ListedInstances};
pub use parking::parked_among;
pub use refusals::control_error;

use calls::Calls;
use ceilings::Trees;
use connectors::Connector;
use deletion::Sweep;
use instance::Instance;
use jobs::Jobs;
use models::Model;
use parking::EventListing;
use reloading::Reloading;
use retention::Retention;
use room::Room;
use starts::Starts;
use verification::Verifying;

/// Whose process a process is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Owner {
    Agent(InstanceRef),
    Connector(WorkspaceId, ConnectionName),
    Model(WorkspaceId, ResourceName),
}

impl Owner {
    fn role(&self) -> ChildRole {
        match self {
            Self::Agent(_) => ChildRole::Agent,
            Self::Connector(..) => ChildRole::Connector,
            Self::Model(..) => ChildRole::Model,
        }
    }

    fn workspace_id(&self) -> &WorkspaceId {
        match self {
            Self::Agent(instance) => &instance.workspace_id,
            Self::Connector(workspace_id, _) | Self::Model(workspace_id, _) => workspace_id,
        }
    }
}

/// One registered workspace.
#[derive(Debug)]
struct Workspace {
    record: WorkspaceRecord,
    /// What runs; none while its configuration has never been valid, or since it was withdrawn.
    bundle: Option<Bundle>,
    /// Since when it runs.
    since: Option<Timestamp>,
    /// Whether that is the last known good one, since the project's own is not valid.
    is_last_known_good: bool,
    problem: Option<WorkspaceProblem>,
    /// How changes of its files are noticed.
    watching: Watching,
    /// What it was read from last.
    sources: Arc<Sources>,
    instances: BTreeMap<InstanceKey, Instance>,
    connectors: BTreeMap<ConnectionName, Connector>,
    models: BTreeMap<ResourceName, Model>,
    retention: Retention,
    /// How many events of which instances are parked.
    parked: BTreeMap<InstanceKey, u64>,
    /// The secrets its configuration names, whether they are there or not.
    secrets: BTreeSet<String>,
    /// The secrets that were denied to it since the daemon started and not allowed again.
    denied: BTreeSet<String>,
    /// How its closing stands; none while it is open.
    closing: Option<Closing>,
}

impl Workspace {
    /// One of which nothing runs yet.
    fn new(record: WorkspaceRecord, sources: Arc<Sources>) -> Self {
        Self {
            record,
            bundle: None,
            since: None,
            is_last_known_good: false,
            problem: None,
            watching: Watching::Off,
            sources,
            instances: BTreeMap::new(),
            connectors: BTreeMap::new(),
            models: BTreeMap::new(),
            retention: Retention::default(),
            parked: BTreeMap::new(),
            secrets: BTreeSet::new(),
            denied: BTreeSet::new(),
            closing: None,
        }
    }
}

/// A workspace on its way out.
#[derive(Debug, Default)]
struct Closing {
    requests: Vec<RequestToken>,
    /// Whether all has ended but the writing of its record.
    is_writing: bool,
}

/// What the orchestrator is told about itself at its start.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Where things are below the System Root.
    pub layout: Layout,
    /// Its process id.
    pub pid: u32,
    /// When it started.
    pub started_at: Timestamp,
    /// Where log files are written; none if the log goes to stdout alone.
    pub log_dir: Option<std::path::PathBuf>,
    /// The control group in which each child has one of its own.
    pub cgroup: Option<std::path::PathBuf>,
    /// Whether an operator lets others of the same user look into memory.
    pub is_memory_open: bool,
}

/// How the daemon is ending.
#[derive(Debug, Clone, Copy)]
struct Stopping {
    grace_period_ms: Option<u64>,
    is_announced: bool,
}

/// What runs: workspaces, their conversations, and the processes that work for them.
struct Fleet {
    facts: Facts,
    workspaces: BTreeMap<WorkspaceId, Workspace>,
    owners: BTreeMap<ProcessId, Owner>,
    ticks: u64,
    jobs: Jobs,
    trees: Trees,
    starts: Starts,
    room: Room,
    stopping: Option<Stopping>,
    next_process: u64,
    next_call: u64,
    next_uuid: Box<dyn FnMut() -> Uuid + Send>,
    now: Now,
    effects: Vec<Effect>,
}

/// The state of the orchestrator. It takes what happened to those whom it concerns, and what one of them
/// says to another.
pub struct Core {
    fleet: Fleet,
    calls: Calls,
    stop_requests: Vec<RequestToken>,
    sweeps: BTreeMap<RequestToken, Sweep>,
    event_listings: BTreeMap<RequestToken, EventListing>,
    verifications: BTreeMap<RequestToken, Verifying>,
    reloads: BTreeMap<RequestToken, Reloading>,
}

impl Fleet {
    fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Writes a line to the log. One about an instance says whose it is (`LOG-3`).
    fn log(&mut self, mut event: LogEvent) {
        if let Some(at) = event.instance.take()
            && let Some(entry) = self.instance_mut(&at)
        {
            event = event.with("agentName", entry.agent.as_str());
        }
        self.push(Effect::Log(event));
    }

    fn uuid(&mut self) -> Uuid {
        (self.next_uuid)()
    }

    /// A name for a call to a connector that no other has.
    fn next_call_id(&mut self) -> CallId {
        self.next_call += 1;
        CallId(self.next_call)
    }

    fn workspace(&self, id: &WorkspaceId) -> Result<&Workspace, ControlError> {
        self.workspaces.get(id).ok_or_else(|| no_workspace(id))
    }

    fn instance_mut(&mut self, at: &InstanceRef) -> Option<&mut Instance> {
        self.workspaces
            .get_mut(&at.workspace_id)?
            .instances
            .get_mut(&at.instance_key)
    }

    fn connector_mut(&mut self, id: &WorkspaceId, name: &ConnectionName) -> Option<&mut Connector> {
        self.workspaces.get_mut(id)?.connectors.get_mut(name)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    fn version(&self) -> Version {
        Version::current()
    }
}

impl Core {
    /// A core without workspaces. `next_uuid` makes fresh ids, in the order they are asked for.
    pub fn new(facts: Facts, next_uuid: impl FnMut() -> Uuid + Send + 'static) -> Self {
        let wall = facts.started_at;
        Self {
            fleet: Fleet {
                facts,
                workspaces: BTreeMap::new(),
                owners: BTreeMap::new(),
                ticks: 0,
                jobs: Jobs::default(),
                trees: Trees::default(),
                starts: Starts::default(),
                room: Room::default(),
                stopping: None,
                next_process: 0,
                next_call: 0,
                next_uuid: Box::new(next_uuid),
                now: Now { mono_ms: 0, wall },
                effects: Vec::new(),
            },
            calls: Calls::default(),
            stop_requests: Vec::new(),
            sweeps: BTreeMap::new(),
            event_listings: BTreeMap::new(),
            verifications: BTreeMap::new(),
            reloads: BTreeMap::new(),
        }
    }

    /// Takes one thing that happened and returns what is to be done, in order.
    pub fn handle(&mut self, now: Now, input: Input) -> Vec<Effect> {
        self.fleet.now = now;
        match input {
            Input::Request { token, peer, call } => self.on_request(token, peer, *call),
            Input::ClientGone { tokens } => self.fleet.on_client_gone(&tokens),
            Input::Loaded(loaded) => self.on_loaded(*loaded),
            Input::Listed {
                workspace_id,
                purpose,
                result,
            } => self.on_listed(&workspace_id, purpose, result),
            Input::WorkspaceWritten {
                workspace_id,
                result,
            } => self.on_workspace_written(&workspace_id, &result),
            Input::ConnectionState {
                workspace_id,
                connection,
                result,
            } => self.fleet.on_state_done(&workspace_id, &connection, result),
            Input::Secrets { token, result } => self.on_secrets(token, result),
            Input::Spawned { process, pid } => self.fleet.on_spawned(process, pid),
            Input::Message {
                process,
                message,
                request_id,
                trace,
            } => {
                self.on_message(process, *message, request_id, trace);
            }
            Input::Broken { process, problem } => self.fleet.on_broken(process, &problem),
            Input::Exited { process, how } => self.on_exited(process, &how),
            Input::NoRoom { process, how } => self.fleet.on_no_room(process, &how),
            Input::Supply(supply) => self.fleet.on_supply(supply),
            Input::Stored(completion) => self.on_stored(completion),
            Input::Tick => self.on_tick(),
            Input::Reload => self.fleet.reload_all(),
            Input::FilesChanged { workspace_id } => self.fleet.on_files_changed(&workspace_id),
            Input::Watching { workspace_id, how } => self.fleet.on_watching(&workspace_id, how),
            Input::Stop { grace_period_ms } => self.stop(grace_period_ms, None),
            Input::ForceStop => self.force_stop(),
        }
        self.calls.withdraw_questions(&mut self.fleet);
        self.finish_what_is_ending();
        std::mem::take(&mut self.fleet.effects)
    }

    /// Compares desired with actual everywhere (`SUP-5`).
    fn on_tick(&mut self) {
        self.calls.retry_charges(&mut self.fleet);
        let mut owners: Vec<Owner> = Vec::new();
        self.fleet.ticks = self.fleet.ticks.wrapping_add(1);
        let is_for_all = self.fleet.ticks.is_multiple_of(TICKS_OF_REST);
        for (id, workspace) in &self.fleet.workspaces {
            for (key, entry) in &workspace.instances {
                if !is_for_all && entry.is_at_rest() {
                    continue;
                }
                let (workspace_id, instance_key) = (id.clone(), key.clone());
                owners.push(Owner::Agent(InstanceRef {
                    workspace_id,
                    instance_key,
                }));
            }
            for name in workspace.connectors.keys() {
                owners.push(Owner::Connector(id.clone(), name.clone()));
            }
            for name in workspace.models.keys() {
                owners.push(Owner::Model(id.clone(), name.clone()));
            }
        }
        for owner in owners {
            self.on_time(&owner);
        }
        self.calls.on_question_time(&mut self.fleet);
        self.calls.on_call_time(&mut self.fleet);
        if is_for_all {
            self.fleet.trees.forget(self.fleet.now.mono_ms);
            self.calls.forget_replies(&self.fleet);
        }
        self.fleet.tell_uncollected();
        self.fleet.look_for_expired();
    }

    /// Ends the workspaces and the daemon that are ending and have nothing left to wait for.
    fn finish_what_is_ending(&mut self) {
        if self.fleet.stopping.is_none()
            && self.fleet.workspaces.values().all(|w| w.closing.is_none())
        {
            return;
        }
        self.fleet.finish_closed_workspaces();
        if let Some(stopping) = &mut self.fleet.stopping
            && !stopping.is_announced
            && self.fleet.owners.is_empty()
            && self.fleet.jobs.is_empty()
            && self.fleet.workspaces.values().all(|w| w.closing.is_none())
        {
            stopping.is_announced = true;
            for token in std::mem::take(&mut self.stop_requests) {
                self.fleet
                    .respond(token, &goondan_protocol::control::Done {});
            }
            self.fleet.push(Effect::Exit);
        }
    }

    /// Stops everything: no new work, turns in progress finish, then the daemon ends.
    fn stop(&mut self, grace_period_ms: Option<u64>, token: Option<RequestToken>) {
        self.stop_requests.extend(token);
        if self.fleet.stopping.is_none() {
            self.fleet.log(LogEvent::info("the daemon is stopping"));
        }
        self.fleet.stopping = Some(Stopping {
            grace_period_ms,
            is_announced: false,
        });
        let ids: Vec<WorkspaceId> = self.fleet.workspaces.keys().cloned().collect();
        for id in ids {
            self.fleet.cancel_waiters_of(&id, &stopping_error());
            self.fleet
                .drain_workspace(&id, grace_period_ms, "the daemon is stopping");
        }
    }

    /// A second request to stop does not wait.
    fn force_stop(&mut self) {
        self.fleet
            .log(LogEvent::warn("the daemon is stopping at once"));
        self.stop(Some(0), None);
        let processes: Vec<ProcessId> = self.fleet.owners.keys().copied().collect();
        for process in processes {
            self.fleet.kill(process, true);
        }
    }
}

/// What a workspace runs, or why it runs nothing.
fn bundle_of(workspace: &Workspace) -> Result<&Bundle, ControlError> {
    workspace.bundle.as_ref().ok_or_else(|| {
        let problem = workspace.problem.as_ref();
        let why = problem.map_or("its configuration was never valid", |p| &p.message);
        ControlError::new(ErrorCode::InvalidConfiguration, why)
            .suggest("mend `goondan.yaml`, then `gdn run`")
    })
}

fn no_workspace(id: &WorkspaceId) -> ControlError {
    ControlError::new(
        ErrorCode::WorkspaceNotFound,
        format!("no workspace `{id}` is running"),
    )
    .suggest("start it with `gdn run`; `gdn workspace list` shows those that run")
}

fn stopping_error() -> ControlError {
    ControlError::new(ErrorCode::Stopping, "the daemon is stopping")
        .suggest("an accepted event is safe and is answered after `gdn run`; ask for the answer with the same `--event-id`")
}
