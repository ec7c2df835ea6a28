//! Running state: workspaces, their conversations, and the processes that work for them.
//!
//! Higher layers query this module and command it. It does not depend on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use goondan_config::{ApprovalPolicy, Lifecycle, ProjectConfig, Sources, TaskPolicy};
use goondan_protocol::agents::AgentAnswer;
use goondan_protocol::call::CallTarget;
use goondan_protocol::control::{
    ControlError, ErrorCode, FileWatchMode, ReplicationStall, WorkspaceProblem,
};
use goondan_protocol::ids::{ConnectionName, InstanceKey, InstanceRef, ResourceName, WorkspaceId};
use goondan_protocol::ipc::ChildRole;
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::task::TaskId;
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceContext;
use goondan_store::workspace::WorkspaceRecord;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use self::agent_replies::pending_replies::Requester;
use self::availability::{Availability, not_ready};
use self::connectors::Connector;
use self::conversation::Conversation;
use self::models::Models;
use self::parked_events::ParkedEvents;
use self::quotas::Trees;
use self::runs::TaskProcesses;
use self::starts::{AgentStarts, Starts};
use self::task_conversations::TaskConversations;
use self::tokens::TokenStore;
use self::traffic::Traffic;
use self::views::View;
use crate::bus::context::{Cx, DaemonShutdown};
use crate::bus::queue::Message;
use crate::limits::TICKS_OF_REST;
use crate::refusals::{no_workspace, stopping_error};
use crate::standing_approvals::StandingApprovals;
use crate::unknown_calls::UnknownCalls;
use crate::{ClockTime, Facts, LogEvent, ProcessId, RequestToken};

pub(crate) mod agent_replies;
pub(crate) mod agent_requests;
pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod authority;
pub(crate) mod availability;
pub(crate) mod back_off;
pub(crate) mod breaker;
pub(crate) mod bundle_queue;
pub(crate) mod bundles;
pub(crate) mod cancellation;
pub(crate) mod capacity;
pub(crate) mod changes;
pub(crate) mod chat_decisions;
pub(crate) mod collectors;
pub(crate) mod connection_state;
pub(crate) mod connectors;
pub(crate) mod conversation;
pub(crate) mod conversation_run;
pub(crate) mod deletion;
pub(crate) mod egress;
pub(crate) mod event_queue;
mod event_reads;
pub(crate) mod fleet_metrics;
pub(crate) mod freeze;
pub(crate) mod health;
pub(crate) mod inbox;
mod indeterminate_calls;
#[cfg(test)]
mod inspection;
mod join_sets;
mod joins;
pub(crate) mod legacy_keys;
pub(crate) mod lifecycle;
pub(crate) mod model_failures;
pub(crate) mod models;
pub(crate) mod overlay;
pub(crate) mod parked_events;
pub(crate) mod process_table;
pub(crate) mod processes;
mod queue_control;
pub(crate) mod quotas;
pub(crate) mod replies;
pub(crate) mod reply_waiter;
pub(crate) mod runs;
pub(crate) mod runtime_events;
pub(crate) mod sandboxes;
pub(crate) mod scheduled_inputs;
pub(crate) mod self_restart;
pub(crate) mod slot;
pub(crate) mod start_faults;
mod starts;
pub(crate) mod task_conversations;
pub(crate) mod tokens;
mod traffic;
pub(crate) mod turn;
pub(crate) mod turns;
pub(crate) mod views;
pub(crate) mod waiters;
pub(crate) mod watchers;
pub(crate) mod workspaces;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ProcessOwner {
    Agent(InstanceRef),
    Connector(WorkspaceId, ConnectionName),
    Model(WorkspaceId, ResourceName),
    Task(WorkspaceId, TaskId),
}

impl ProcessOwner {
    pub(crate) fn role(&self) -> ChildRole {
        match self {
            Self::Agent(_) => ChildRole::Agent,
            Self::Connector(..) => ChildRole::Connector,
            Self::Model(..) => ChildRole::Model,
            Self::Task(..) => ChildRole::Task,
        }
    }

    pub(crate) fn workspace_id(&self) -> &WorkspaceId {
        match self {
            Self::Agent(instance) => &instance.workspace_id,
            Self::Connector(workspace_id, _)
            | Self::Model(workspace_id, _)
            | Self::Task(workspace_id, _) => workspace_id,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) record: WorkspaceRecord,
    /// The running configuration; `None` until one was valid, or after it was withdrawn.
    pub(crate) bundle: Option<ProjectConfig>,
    /// Start time of the configuration.
    pub(crate) since: Option<Timestamp>,
    /// True if the last known good configuration runs, because the project's own is invalid.
    pub(crate) is_last_known_good: bool,
    pub(crate) problem: Option<WorkspaceProblem>,
    /// Start of the period without confirmations by its log.
    pub(crate) unacknowledged: Option<ReplicationStall>,
    pub(crate) watching: FileWatchMode,
    /// Sources of the last read configuration.
    pub(crate) sources: Arc<Sources>,
    /// True if copies of the sources may be stored: they contain no literal secret.
    pub(crate) may_be_kept: bool,
    conversations: BTreeMap<InstanceKey, Conversation>,
    connectors: BTreeMap<ConnectionName, Connector>,
    pub(crate) models: Models,
    /// Runs of tasks in progress.
    pub(crate) runs: TaskProcesses,
    /// The conversations that work for tasks.
    pub(crate) task_conversations: TaskConversations,
    pub(crate) parked: ParkedEvents,
    /// Counts of its events and calls.
    traffic: Traffic,
    /// Limits on the growth of its agents' work.
    trees: Trees,
    /// Tool calls with an unknown outcome.
    unknown_calls: UnknownCalls,
    /// Calls that are approved without asking, because a person decided so.
    standing: StandingApprovals,
    /// Names of all secrets in its configuration, whether or not they exist.
    pub(crate) secrets: BTreeSet<String>,
    /// The secrets that were denied to it since the daemon started and not allowed again.
    pub(crate) denied: BTreeSet<String>,
    /// Problems with the bundles of conversations, as far as known.
    pub(crate) bundle_problems: BTreeMap<InstanceKey, String>,
    /// The tokens of authorization servers that are good now.
    pub(crate) tokens: TokenStore,
    /// State of closing; `None` while the workspace is open.
    pub(crate) closing: Option<WorkspaceShutdown>,
}

impl Workspace {
    /// A workspace that runs nothing yet.
    pub(crate) fn new(record: WorkspaceRecord, sources: Arc<Sources>, now: Timestamp) -> Self {
        Self {
            record,
            bundle: None,
            since: None,
            is_last_known_good: false,
            problem: None,
            unacknowledged: None,
            watching: FileWatchMode::Off,
            sources,
            may_be_kept: false,
            conversations: BTreeMap::new(),
            connectors: BTreeMap::new(),
            models: Models::default(),
            runs: TaskProcesses::default(),
            task_conversations: TaskConversations::default(),
            parked: ParkedEvents::default(),
            traffic: Traffic::new(now),
            trees: Trees::default(),
            unknown_calls: UnknownCalls::default(),
            standing: StandingApprovals::default(),
            secrets: BTreeSet::new(),
            denied: BTreeSet::new(),
            bundle_problems: BTreeMap::new(),
            tokens: TokenStore::default(),
            closing: None,
        }
    }
}

impl Workspace {
    /// Retention of its agents and conversations.
    pub(crate) fn lifecycle(&self) -> Lifecycle {
        let bundle = self.bundle.as_ref();
        bundle.map(|bundle| bundle.lifecycle).unwrap_or_default()
    }

    /// Retention and time limits of its tasks.
    pub(crate) fn task_policy(&self) -> TaskPolicy {
        let bundle = self.bundle.as_ref();
        // While the configuration is unreadable, nothing is removed.
        let none = TaskPolicy {
            keep_ms: None,
            drill_ms: None,
            ..TaskPolicy::default()
        };
        bundle.map_or(none, |bundle| bundle.tasks)
    }

    /// Time limit of its waiting tool calls. While the configuration is unreadable, they wait.
    pub(crate) fn approval_policy(&self) -> ApprovalPolicy {
        let bundle = self.bundle.as_ref();
        bundle.map(|bundle| bundle.approvals).unwrap_or_default()
    }

    /// True if the conversation is being deleted.
    pub(crate) fn is_deleting(&self, key: &InstanceKey) -> bool {
        let entry = self.conversations.get(key);
        entry.is_some_and(Conversation::is_deleting)
    }

    /// True if the conversation has pending events or a turn.
    pub(crate) fn is_in_use(&self, key: &InstanceKey) -> bool {
        let entry = self.conversations.get(key);
        entry.is_some_and(|entry| entry.pending() > 0 || entry.turn().is_some())
    }
}

/// A workspace on its way out.
#[derive(Debug, Default)]
pub(crate) struct WorkspaceShutdown {
    pub(crate) requests: Vec<RequestToken>,
    /// Time of the latest request.
    since_ms: u64,
    /// The node that will run it afterwards; it stays registered for that.
    to: Option<String>,
    /// True if only the write of its record is left.
    is_writing: bool,
}

/// Owners whose timers are due.
pub(crate) struct DueTimers {
    pub(crate) owners: Vec<ProcessOwner>,
    /// True if idle ones are included.
    pub(crate) is_for_all: bool,
}

/// Running state: workspaces, their conversations, and the processes that work for them.
pub(crate) struct Fleet {
    workspaces: BTreeMap<WorkspaceId, Workspace>,
    ticks: u64,
    cx: Cx,
    starts: AgentStarts,
    /// True if the end of the daemon was reported.
    is_end_reported: bool,
}

impl Fleet {
    /// One without workspaces.
    pub(crate) fn new(facts: Facts, next_uuid: impl FnMut() -> Uuid + Send + 'static) -> Self {
        Self {
            workspaces: BTreeMap::new(),
            ticks: 0,
            cx: Cx::new(facts, next_uuid),
            starts: AgentStarts::default(),
            is_end_reported: false,
        }
    }

    /// Context of the current step.
    pub(crate) fn cx(&mut self) -> &mut Cx {
        &mut self.cx
    }

    /// Owners whose timers are due.
    pub(crate) fn tick(&mut self) -> DueTimers {
        let mut owners: Vec<ProcessOwner> = Vec::new();
        self.ticks = self.ticks.wrapping_add(1);
        let is_for_all = self.ticks.is_multiple_of(TICKS_OF_REST);
        for (id, workspace) in &self.workspaces {
            for (key, entry) in &workspace.conversations {
                if !is_for_all && entry.is_at_rest() {
                    continue;
                }
                let (workspace_id, instance_key) = (id.clone(), key.clone());
                owners.push(ProcessOwner::Agent(InstanceRef {
                    workspace_id,
                    instance_key,
                }));
            }
            for name in workspace.connectors.keys() {
                owners.push(ProcessOwner::Connector(id.clone(), name.clone()));
            }
            for name in workspace.models.names() {
                owners.push(ProcessOwner::Model(id.clone(), name.clone()));
            }
            for (task, _) in workspace.runs.iter() {
                owners.push(ProcessOwner::Task(id.clone(), task.clone()));
            }
        }
        if is_for_all {
            let now_ms = self.cx.now().mono_ms;
            self.each_workspace(|workspace, _| workspace.trees.forget(now_ms));
        }
        DueTimers { owners, is_for_all }
    }

    /// Closes the workspaces that have nothing left to wait for; `is_busy` is true if a higher
    /// layer still waits. Returns true once, when everything has ended.
    pub(crate) fn has_just_ended(&mut self, is_busy: impl Fn(&WorkspaceId) -> bool) -> bool {
        let stopping = self.cx.stopping();
        if stopping.is_none() && self.workspaces.values().all(|w| w.closing.is_none()) {
            return false;
        }
        let held = match stopping {
            // A second request to stop does not wait; the next daemon finishes the turns in
            // progress.
            Some(DaemonShutdown {
                grace_period_ms: Some(0),
                ..
            }) => Vec::new(),
            _ => {
                let holding = self.workspaces.iter().filter(|(_, it)| it.is_holding());
                holding.map(|(id, _)| id.clone()).collect()
            }
        };
        let is_busy = |id: &WorkspaceId| is_busy(id) || held.contains(id);
        self.finish_closed_workspaces(is_busy);
        let is_over = self.cx.processes().is_empty()
            && !self.workspaces.keys().any(is_busy)
            && self.cx.jobs().is_empty()
            && self.workspaces.values().all(|w| w.closing.is_none());
        stopping.is_some() && is_over && !std::mem::replace(&mut self.is_end_reported, true)
    }

    /// Stops everything: no new work, turns in progress finish, then the daemon ends.
    pub(crate) fn stop(&mut self, grace_period_ms: Option<u64>) {
        if !self.is_stopping() {
            self.log(LogEvent::info("the daemon is stopping"));
        }
        self.cx.stop(grace_period_ms);
        self.is_end_reported = false;
        self.each_workspace(|workspace, cx| {
            workspace.cancel_waiters_of_later_turns(cx, &stopping_error());
            workspace.drain(cx, grace_period_ms, "the daemon is stopping");
        });
    }

    /// A second request to stop does not wait.
    pub(crate) fn force_stop(&mut self) {
        self.log(LogEvent::warn("the daemon is stopping immediately"));
        self.stop(Some(0));
        let processes: Vec<ProcessId> = self.cx.processes().ids().collect();
        for process in processes {
            if let Some((workspace, cx)) = self.workspace_of(process) {
                workspace.kill(cx, process, true);
            }
        }
    }

    pub(crate) fn workspaces(&self) -> &BTreeMap<WorkspaceId, Workspace> {
        &self.workspaces
    }

    pub(crate) fn workspace_mut(&mut self, id: &WorkspaceId) -> Option<&mut Workspace> {
        self.workspaces.get_mut(id)
    }

    /// Owner of a process; `None` if the process is gone.
    pub(crate) fn owner_of(&self, process: ProcessId) -> Option<&ProcessOwner> {
        self.cx.processes().owner_of(process)
    }

    /// The starts of agents.
    pub(crate) fn starts(&mut self) -> Starts<'_> {
        self.starts.with(&mut self.workspaces, &mut self.cx)
    }

    /// Sends a message to another machine. It is delivered after the input.
    pub(crate) fn post(&mut self, message: Message) {
        self.cx.send(message);
    }

    /// Sends an event of a workspace to the log, the audit log and the watchers. The log line is
    /// part of `trace`.
    pub(crate) fn announce(
        &mut self,
        id: &WorkspaceId,
        event: LifecycleEvent,
        trace: Option<TraceContext>,
    ) {
        match self.workspaces.get(id) {
            Some(workspace) => workspace.announce(&mut self.cx, event, trace),
            None => self.cx.announce(id, event, None, trace),
        }
    }

    /// Records a change of a conversation in the audit log.
    pub(crate) fn audit(&mut self, at: &InstanceRef, what: &str, details: Value) {
        let workspace = self.workspaces.get(&at.workspace_id);
        let agent = workspace.and_then(|it| it.agent_name(&at.instance_key));
        self.cx.audit(at, agent, what, details);
    }

    /// Writes a line to the log. A line about an instance names its agent (`LOG-3`).
    pub(crate) fn log(&mut self, mut event: LogEvent) {
        let at = event.instance.as_ref();
        match at.and_then(|at| self.workspaces.get(&at.workspace_id)) {
            Some(workspace) => workspace.log(&mut self.cx, event),
            None => {
                event.instance = None;
                self.cx.log(event);
            }
        }
    }

    pub(crate) fn now(&self) -> ClockTime {
        self.cx.now()
    }

    /// The running configuration of a workspace, if any.
    pub(crate) fn bundle(&self, id: &WorkspaceId) -> Option<&ProjectConfig> {
        self.workspaces.get(id)?.bundle.as_ref()
    }

    /// An active conversation.
    pub(crate) fn conversation(&self, at: &InstanceRef) -> Option<&Conversation> {
        let workspace = self.workspaces.get(&at.workspace_id)?;
        workspace.conversations.get(&at.instance_key)
    }

    /// Sends the answer of a request to the agent.
    pub(crate) fn answer_agent(&mut self, requester: &Requester, answer: AgentAnswer) {
        if let Some((entry, cx)) = self.conversation_and_cx(&requester.at) {
            entry.answer(cx, requester, answer);
        }
    }

    /// Reason the users of a workspace can no longer be asked; `None` if they can.
    pub(crate) fn why_nobody_is_asked(&self, id: &WorkspaceId) -> Option<&'static str> {
        let workspace = self.workspaces.get(id);
        if self.is_stopping() {
            Some("the daemon is stopping")
        } else if workspace.is_none_or(|it| it.is_ending(&self.cx)) {
            Some("the workspace is being stopped")
        } else {
            None
        }
    }

    pub(crate) fn workspace(&self, id: &WorkspaceId) -> Result<&Workspace, ControlError> {
        self.workspaces.get(id).ok_or_else(|| no_workspace(id))
    }

    /// A workspace, with the context for its methods.
    pub(crate) fn workspace_and_cx(
        &mut self,
        id: &WorkspaceId,
    ) -> Option<(&mut Workspace, &mut Cx)> {
        Some((self.workspaces.get_mut(id)?, &mut self.cx))
    }

    /// Passes a client's request to a workspace. An error is the response to the client.
    pub(crate) fn serve(
        &mut self,
        token: RequestToken,
        id: &WorkspaceId,
        serve: impl FnOnce(&mut Workspace, &mut Cx) -> Result<(), ControlError>,
    ) {
        let served = match self.workspaces.get_mut(id) {
            Some(workspace) => serve(workspace, &mut self.cx),
            None => Err(no_workspace(id)),
        };
        if let Err(error) = served {
            self.cx.respond_error(token, error);
        }
    }

    /// Calls `act` for each workspace.
    pub(crate) fn each_workspace(&mut self, mut act: impl FnMut(&mut Workspace, &mut Cx)) {
        for workspace in self.workspaces.values_mut() {
            act(workspace, &mut self.cx);
        }
    }

    /// Answers a client's request.
    pub(crate) fn answer<T: Serialize>(
        &mut self,
        token: RequestToken,
        answer: Result<T, ControlError>,
    ) {
        match answer {
            Ok(value) => self.cx.respond(token, &value),
            Err(error) => self.cx.respond_error(token, error),
        }
    }

    /// A view of the current state for clients.
    pub(crate) fn view(&self) -> View<'_> {
        View {
            workspaces: &self.workspaces,
            cx: &self.cx,
            starts: &self.starts,
        }
    }

    /// Availability of the process for a call.
    pub(crate) fn availability(&self, id: &WorkspaceId, target: &CallTarget) -> Availability {
        match self.workspaces.get(id) {
            Some(workspace) => workspace.availability(&self.cx, target),
            None => {
                let why = "it was removed from the configuration";
                Availability::Not(not_ready(target, why))
            }
        }
    }

    /// True if another process may be started.
    pub(crate) fn has_place_for_process(&self) -> bool {
        !self.cx.is_paused() && self.cx.processes().has_place()
    }

    /// The number of a task's run that has a process.
    pub(crate) fn run_of(&self, id: &WorkspaceId, task: &TaskId) -> Option<u64> {
        self.workspaces.get(id)?.runs.run_of(task)
    }

    /// Facts about the daemon's environment.
    pub(crate) fn facts(&self) -> &Facts {
        self.cx.facts()
    }

    /// A conversation, with the context for its methods.
    pub(crate) fn conversation_and_cx(
        &mut self,
        at: &InstanceRef,
    ) -> Option<(&mut Conversation, &mut Cx)> {
        let workspace = self.workspaces.get_mut(&at.workspace_id)?;
        let conversation = workspace.conversations.get_mut(&at.instance_key)?;
        Some((conversation, &mut self.cx))
    }

    /// A connection, with the context for its methods.
    pub(crate) fn connector_and_cx(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
    ) -> Option<(&mut Connector, &mut Cx)> {
        let workspace = self.workspaces.get_mut(id)?;
        Some((workspace.connectors.get_mut(name)?, &mut self.cx))
    }

    /// The runs of a workspace's tasks, with the context for their methods.
    pub(crate) fn runs_and_cx(
        &mut self,
        id: &WorkspaceId,
    ) -> Option<(&mut TaskProcesses, &mut Cx)> {
        Some((&mut self.workspaces.get_mut(id)?.runs, &mut self.cx))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.cx.stopping().is_some()
    }

    pub(super) fn respond<T: Serialize>(&mut self, token: RequestToken, value: &T) {
        self.cx.respond(token, value);
    }

    pub(super) fn respond_error(&mut self, token: RequestToken, error: ControlError) {
        self.cx.respond_error(token, error);
    }
}

/// The running configuration of a workspace, or the reason why there is none.
pub(crate) fn bundle_of(workspace: &Workspace) -> Result<&ProjectConfig, ControlError> {
    workspace.bundle.as_ref().ok_or_else(|| {
        let problem = workspace.problem.as_ref();
        let why = problem.map_or("its configuration was never valid", |p| &p.message);
        ControlError::new(ErrorCode::InvalidConfiguration, why)
            .suggest("fix `goondan.yaml`, then run `gdn run`")
    })
}
