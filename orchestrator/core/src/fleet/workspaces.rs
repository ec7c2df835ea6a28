//! Opening, changing, restarting and closing workspaces.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use goondan_config::{ProjectConfig, Sources};
use goondan_protocol::JsonObject;
use goondan_protocol::call::CallTarget;
use goondan_protocol::control::{
    ControlError, ErrorCode, FileWatchMode, OpenWorkspace, ReplicationStall, WorkspaceProblem,
};
use goondan_protocol::definition::{HostedModel, ModelProvider};
use goondan_protocol::export::{ExportedEvent, ExportedModel};
use goondan_protocol::ids::{
    AgentName, ConnectionName, InstanceKey, InstanceRef, ResourceName, TurnId, WorkspaceId,
};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::limits::DEFAULT_GRACE_PERIOD_MS;
use goondan_protocol::observe::RuntimeEvent;
use goondan_protocol::trace::TraceContext;
use goondan_store::StoreError;
use goondan_store::workspace::WorkspaceRecord;
use goondan_store::writer::operation::{Close, Observe};

use super::changes::AppliedConfiguration;
use super::collectors::code_of;
use super::connectors::Connector;
use super::conversation::Conversation;
use super::conversation::process_messages::store_failure;
use super::models::Model;
use super::parked_events::ParkedEvents;
use super::slot::Slot;
use super::turn::ActiveTurn;
use super::{Fleet, ProcessOwner, Workspace, changes};
use crate::bus::context::Cx;
use crate::jobs::LogFailure;
use crate::limits::PROVIDER_GRACE_MIN_MS;
use crate::refusals::{closed_error, deleted_error, stopping_error};
use crate::{
    CoreEffect, Fallback, LoadPurpose, LoadedWorkspace, LogEvent, ProcessId, RequestToken,
    WorkspaceSettings,
};

pub(crate) fn problem_of(error: &ControlError) -> WorkspaceProblem {
    let suggestion = error.suggestion.clone();
    WorkspaceProblem {
        message: error.message.clone(),
        suggestion: suggestion.unwrap_or_else(|| "`gdn validate`".into()),
    }
}

pub(crate) fn being_stopped(id: &WorkspaceId) -> ControlError {
    let message = format!("workspace `{id}` is being stopped");
    ControlError::new(ErrorCode::WorkspaceConflict, message).suggest("try again in a moment")
}

/// A configuration that was read before a secret it names was denied is not taken up.
fn check_denied(workspace: &Workspace, names: &BTreeSet<String>) -> Result<(), ControlError> {
    match workspace.denied.intersection(names).next() {
        None => Ok(()),
        Some(name) => {
            let text = format!("the workspace may no longer use the secret `{name}`");
            let error = ControlError::new(ErrorCode::SecretNotAllowed, text);
            Err(error.suggest(format!("allow it again: `gdn secret allow {name}`")))
        }
    }
}

impl Fleet {
    /// Registers a workspace, or reads the record of a registered one.
    pub(crate) fn register(
        &mut self,
        record: WorkspaceRecord,
        parked: BTreeMap<InstanceKey, u64>,
        sources: &Arc<Sources>,
    ) {
        let id = record.workspace_id.clone();
        let (_, watch_epoch) = self.cx.uuid().as_u64_pair();
        self.cx.audience_mut().open(&id, watch_epoch);
        let now = self.cx.now().wall;
        let workspace = self.workspaces.entry(id);
        let workspace = workspace.or_insert_with(|| Workspace {
            parked: ParkedEvents::new(parked),
            ..Workspace::new(record.clone(), sources.clone(), now)
        });
        workspace.record = record;
        workspace.sources = sources.clone();
    }

    /// Records the workspaces without acknowledgments, and reports changes to users.
    pub(crate) fn on_unacknowledged(&mut self, silent: &BTreeMap<WorkspaceId, ReplicationStall>) {
        let mut events = Vec::new();
        for (id, workspace) in &mut self.workspaces {
            let now = silent.get(id);
            match (&workspace.unacknowledged, now) {
                (None, Some(now)) => events.push(
                    LogEvent::error(
                        "nothing is acknowledged: the workspace's log does not confirm writes",
                    )
                    .with("workspaceId", id.as_str())
                    .with("reason", now.reason.clone()),
                ),
                (Some(_), None) => events.push(
                    LogEvent::info("workspace's log confirms writes again")
                        .with("workspaceId", id.as_str()),
                ),
                (None, None) | (Some(_), Some(_)) => {}
            }
            workspace.unacknowledged = now.cloned();
        }
        for event in events {
            self.log(event);
        }
    }

    /// Checks that a loaded configuration may replace the running one.
    pub(crate) fn check_loaded(
        &self,
        purpose: &LoadPurpose,
        found: &LoadedWorkspace,
        sources: &Sources,
    ) -> Result<(), ControlError> {
        match &found.bundle {
            // An invalid edit changes nothing that runs.
            Err(error) if *purpose != LoadPurpose::Start => Err(error.clone()),
            Err(_) => Ok(()),
            Ok(_) => {
                let workspace = self.workspaces.get(&found.record.workspace_id);
                let secrets = sources.secrets();
                workspace.map_or(Ok(()), |workspace| check_denied(workspace, secrets))
            }
        }
    }

    /// Reads a project's workspace for a client, unless that workspace is on its way out: reading
    /// would register it again.
    pub(crate) fn open_workspace(&mut self, token: RequestToken, open: OpenWorkspace) {
        let OpenWorkspace {
            project_root,
            watch,
            env_files,
            swarm,
        } = open;
        let mut workspaces = self.workspaces.iter();
        let closing = workspaces.find(|(_, workspace)| {
            workspace.closing.is_some() && workspace.record.project_root == project_root
        });
        let settings = WorkspaceSettings {
            watch,
            env_files,
            swarm,
        };
        match closing.map(|(id, _)| being_stopped(id)) {
            Some(error) => self.cx.respond_error(token, error),
            None => self.cx.emit(CoreEffect::LoadWorkspace {
                purpose: LoadPurpose::Open { token, settings },
                workspace_id: None,
                project_root,
            }),
        }
    }

    /// Moves a workspace to another node, once its processes here have ended.
    pub(crate) fn move_workspace(
        &mut self,
        token: Option<RequestToken>,
        id: &WorkspaceId,
        to: String,
    ) {
        match self.workspace_and_cx(id) {
            Some((workspace, cx)) => workspace.begin_closing(cx, token, Some(to)),
            None => self.cx.emit(CoreEffect::HandOver {
                workspace_id: id.clone(),
                to,
                token,
            }),
        }
    }

    /// Has another node run a workspace that this one cannot load; false if it runs here, or ends already.
    pub(crate) fn hand_on(&mut self, id: &WorkspaceId, to: String) -> bool {
        let workspace = self.workspaces.get(id);
        let is_of_use = |it: &Workspace| it.bundle.is_some() || it.closing.is_some();
        if self.is_stopping() || workspace.is_some_and(is_of_use) {
            return false;
        }
        self.move_workspace(None, id, to);
        true
    }

    /// Stops a workspace's processes; `finish_closed_workspaces` does the rest when they are gone.
    pub(crate) fn close_workspace(&mut self, token: RequestToken, id: &WorkspaceId) {
        self.serve(token, id, |workspace, cx| {
            workspace.begin_closing(cx, Some(token), None);
            Ok(())
        });
    }

    /// Records workspaces as closed when their processes are gone and the store has released their
    /// instances: the next opening reads them from disk.
    pub(super) fn finish_closed_workspaces(&mut self, is_busy: impl Fn(&WorkspaceId) -> bool) {
        let closing = self.workspaces.iter().filter(|(id, workspace)| {
            let is_closing = workspace.closing.as_ref().is_some_and(|c| !c.is_writing);
            is_closing
                && !is_busy(id)
                && !self.cx.processes().is_any_of(id)
                && !self.cx.jobs().any(|instance| instance.workspace_id == **id)
        });
        let ended: Vec<WorkspaceId> = closing.map(|(id, _)| id.clone()).collect();
        for id in ended {
            let Some(workspace) = self.workspaces.get_mut(&id) else {
                continue;
            };
            let held = std::mem::take(&mut workspace.conversations);
            if held.is_empty() {
                let Some(closing) = &mut workspace.closing else {
                    continue;
                };
                closing.is_writing = true;
                let ended = match closing.to.clone() {
                    Some(to) => CoreEffect::HandOver {
                        workspace_id: id.clone(),
                        to,
                        token: None,
                    },
                    None => {
                        workspace.record.registered = false;
                        CoreEffect::WriteWorkspace(Box::new(workspace.record.clone()))
                    }
                };
                self.cx.emit(ended);
            }
            for instance_key in held.into_keys() {
                let workspace_id = id.clone();
                let instance = InstanceRef {
                    workspace_id,
                    instance_key,
                };
                let then = LogFailure(instance.clone());
                self.cx.store(Close { instance }, then);
            }
        }
    }

    /// Removes a closed workspace.
    pub(crate) fn forget_workspace(&mut self, id: &WorkspaceId) -> Option<Workspace> {
        self.workspaces.remove(id)
    }
}

/// Configuration.
impl Workspace {
    /// Runs a valid configuration. Returns its changes, and the models whose processes may need
    /// changes.
    pub(crate) fn run(
        &mut self,
        cx: &mut Cx,
        bundle: ProjectConfig,
        fallback: Option<&Fallback>,
        is_new: bool,
    ) -> (AppliedConfiguration, Vec<ResourceName>) {
        let digest = bundle.digest.clone();
        let had_problem = self.problem.take().is_some();
        self.is_last_known_good = fallback.is_some();
        let runs_already = self.bundle.as_ref().map(|bundle| &bundle.digest);
        if runs_already != Some(&digest) {
            self.since = Some(cx.now().wall);
        }
        let (applied, models) = self.apply(cx, bundle);
        self.log_applied(cx, &applied, &digest, is_new, had_problem);
        if let Some(fallback) = fallback {
            self.on_fallback(cx, fallback, &digest);
        }
        (applied, models)
    }

    /// Replaces the running configuration by a valid one. Outdated processes are restarted; turns
    /// in progress finish with the old configuration. Returns the changes, and the models whose
    /// processes may need changes.
    fn apply(
        &mut self,
        cx: &mut Cx,
        bundle: ProjectConfig,
    ) -> (AppliedConfiguration, Vec<ResourceName>) {
        let changes = changes::changes(self.bundle.as_ref(), &bundle);
        self.on_configuration(bundle);
        let models: Vec<ResourceName> = self.models.names().cloned().collect();
        let outdated = self.conversations.keys();
        let outdated = outdated.filter(|key| self.is_agent_outdated(key));
        let outdated: Vec<InstanceRef> = outdated.map(|it| self.conversation_ref(it)).collect();
        let mut processes = outdated.len();
        for at in outdated {
            self.advance(cx, &at);
        }
        processes += self.replace_connectors(cx);
        let outdated = self.models.iter();
        let outdated = outdated.filter(|(_, model)| model.is_outdated(&self.tokens));
        processes += outdated.count();
        (AppliedConfiguration { changes, processes }, models)
    }

    /// The project's own configuration is invalid, so the last known good one runs.
    fn on_fallback(&mut self, cx: &mut Cx, fallback: &Fallback, digest: &str) {
        let Fallback { error, since } = fallback;
        self.problem = Some(problem_of(error));
        self.since = Some(*since);
        let event = LifecycleEvent::ConfigurationFellBack {
            config_digest: digest.to_owned(),
            config_since: *since,
            error: error.message.clone(),
        };
        self.announce(cx, event, None);
    }

    /// Stores the sources of the running configuration as the last known good one.
    pub(crate) fn keep(&mut self, cx: &mut Cx, may_be_kept: bool, sources: &Arc<Sources>) {
        let Some(digest) = self.bundle.as_ref().map(|bundle| bundle.digest.clone()) else {
            return;
        };
        self.may_be_kept = may_be_kept;
        let workspace_id = self.record.workspace_id.clone();
        if may_be_kept {
            cx.emit(CoreEffect::KeepConfiguration {
                workspace_id,
                digest,
                since: cx.now().wall,
                sources: sources.clone(),
            });
        } else {
            let event = LogEvent::warn("configuration not stored as last known good");
            let reason = "it contains a literal secret; use `valueFrom`";
            let event = event.with("workspaceId", workspace_id.as_str());
            cx.log(event.with("reason", reason));
        }
    }

    fn log_applied(
        &self,
        cx: &mut Cx,
        applied: &AppliedConfiguration,
        digest: &str,
        is_new: bool,
        had_problem: bool,
    ) {
        if is_new || (applied.changes.is_empty() && !had_problem) {
            return;
        }
        let changes = applied.changes.iter();
        let changes: Vec<String> = changes
            .map(|change| format!("{} {}", change.resource, change.change.as_str()))
            .collect();
        let config_digest = digest.to_owned();
        let event = if changes.is_empty() {
            LifecycleEvent::ConfigurationRestored { config_digest }
        } else {
            LifecycleEvent::ConfigurationChanged {
                config_digest,
                changes,
                restarting: applied.processes,
            }
        };
        self.announce(cx, event, None);
    }

    /// Stops its processes; [`Fleet::finish_closed_workspaces`] does the rest when they are gone.
    /// `to` is the node that runs it afterwards, if one does.
    fn begin_closing(&mut self, cx: &mut Cx, token: Option<RequestToken>, to: Option<String>) {
        let closing = self.closing.get_or_insert_default();
        closing.since_ms = cx.now().mono_ms;
        closing.requests.extend(token);
        if to.is_some() {
            closing.to = to;
        }
        let workspace_id = self.record.workspace_id.clone();
        let error = closed_error(&workspace_id);
        if std::mem::take(&mut self.watching) != FileWatchMode::Off || self.record.watch {
            cx.emit(CoreEffect::Watch {
                workspace_id,
                sources: None,
            });
        }
        self.cancel_waiters_of_later_turns(cx, &error);
        self.drain(cx, None, "the workspace is stopped");
    }

    /// Sends one of its events to the log, the audit log and the watchers. The log line is part of
    /// `trace`.
    pub(crate) fn announce(&self, cx: &mut Cx, event: LifecycleEvent, trace: Option<TraceContext>) {
        self.announce_with(cx, event, trace, JsonObject::new());
    }

    /// As [`Self::announce`], with fields that only the log line has.
    pub(super) fn announce_with(
        &self,
        cx: &mut Cx,
        event: LifecycleEvent,
        trace: Option<TraceContext>,
        logged: JsonObject,
    ) {
        let key = event.instance_key();
        let agent = key.and_then(|key| self.agent_name(key));
        cx.announce_with(&self.record.workspace_id, event, agent, trace, logged);
    }

    /// Writes a line to the log. A line about an instance names its agent (`LOG-3`).
    pub(crate) fn log(&self, cx: &mut Cx, mut event: LogEvent) {
        let at = event.instance.take();
        let agent = at.and_then(|at| self.agent_name(&at.instance_key));
        cx.log(match agent {
            Some(agent) => event.with("agentName", agent.as_str()),
            None => event,
        });
    }

    /// Applies a valid configuration. Outdated processes are not replaced yet.
    fn on_configuration(&mut self, bundle: ProjectConfig) {
        for connector in self.connectors.values_mut() {
            connector.on_configuration(Some(&bundle));
        }
        for (name, definition) in &bundle.connections {
            let connector = self.connectors.entry(name.clone());
            connector
                .or_insert_with(|| Connector::new(&self.record.workspace_id, definition.clone()));
        }
        self.models.on_configuration(&bundle);
        for entry in self.conversations.values_mut() {
            entry.on_configuration(&bundle);
            entry.overlay_mut().disarm();
        }
        self.bundle = Some(bundle);
    }

    /// Replaces the outdated processes of connections, and returns their number.
    fn replace_connectors(&mut self, cx: &mut Cx) -> usize {
        let mut outdated = 0;
        let names: Vec<ConnectionName> = self.connectors.keys().cloned().collect();
        for name in names {
            let connector = self.connectors.get(&name);
            let is_outdated =
                connector.is_some_and(|it| it.is_outdated(self.bundle.as_ref(), &self.tokens));
            outdated += usize::from(is_outdated);
            self.advance_connector(cx, &name);
        }
        outdated
    }

    /// Stops running until a valid configuration is read: its processes end after the turns and
    /// calls in progress, within their grace period; events wait.
    pub(crate) fn withdraw(&mut self, cx: &mut Cx, reason: &str) {
        if self.bundle.is_none() {
            return;
        }
        let models: Vec<ResourceName> = self.models.names().cloned().collect();
        self.models.withdraw();
        let grace_ms = self.grace_left_ms(cx);
        for connector in self.connectors.values_mut() {
            connector.on_configuration(None);
        }
        // A turn in progress must not use the withdrawn connections and models.
        for connector in self.connectors.values_mut() {
            connector.drain(cx, grace_ms, reason);
        }
        self.drain(cx, None, reason);
        for name in models {
            self.drain_model(cx, &name, reason);
        }
        self.bundle = None;
        self.since = None;
        self.is_last_known_good = false;
    }
}

/// Processes.
impl Workspace {
    pub(crate) fn slot_mut(&mut self, owner: &ProcessOwner) -> Option<&mut Slot> {
        match owner {
            ProcessOwner::Agent(at) => {
                let entry = self.conversations.get_mut(&at.instance_key);
                entry.map(Conversation::slot_mut)
            }
            ProcessOwner::Connector(_, name) => {
                self.connectors.get_mut(name).map(Connector::slot_mut)
            }
            ProcessOwner::Model(_, name) => self.models.slot_mut(name),
            ProcessOwner::Task(_, task) => self.runs.slot_mut(task),
        }
    }

    /// Restarts every process of a connection or a model. Returns the number that ran.
    pub(crate) fn restart_connectors(&mut self, cx: &mut Cx) -> usize {
        let ran = self.connectors.values_mut().map(Connector::forgive);
        let running = ran.filter(|ran| *ran).count() + self.models.forgive();
        let names: Vec<ConnectionName> = self.connectors.keys().cloned().collect();
        for name in names {
            let grace_ms = self.grace_left_ms(cx);
            if let Some(connector) = self.connectors.get_mut(&name) {
                connector.drain(cx, grace_ms, "a restart was requested");
            }
            self.advance_connector(cx, &name);
        }
        let models: Vec<ResourceName> = self.models.names().cloned().collect();
        for name in models {
            self.drain_model(cx, &name, "a restart was requested");
        }
        running
    }

    /// Asks every agent and task to finish and end. Its connections take nothing new from now on;
    /// they and the models end when no turn is left that could need them.
    pub(super) fn drain(&mut self, cx: &mut Cx, grace: Option<u64>, reason: &str) {
        self.advance_connectors(cx);
        let agents_ms = grace.unwrap_or_else(|| self.grace_period_ms(cx));
        for (key, entry) in &mut self.conversations {
            let at = InstanceRef {
                workspace_id: self.record.workspace_id.clone(),
                instance_key: key.clone(),
            };
            entry.drain(cx, &at, agents_ms, reason);
        }
        self.runs
            .drain_all(cx, &self.record.workspace_id, grace, reason);
        self.advance_connectors(cx);
    }

    /// True if the daemon or this workspace is stopping.
    pub(crate) fn is_ending(&self, cx: &Cx) -> bool {
        cx.stopping().is_some() || self.closing.is_some()
    }

    /// True if no remaining agent or task can need a connection or a model. A process that is being
    /// killed does not count.
    pub(super) fn is_past_work(&self) -> bool {
        let mut agents = self.conversations.values().map(Conversation::slot);
        let mut tasks = self.runs.iter().map(|(_, run)| run.slot());
        let works = |slot: &Slot| slot.up().is_some() && !slot.is_dying();
        !agents.any(works) && !tasks.any(works)
    }

    /// True if it is stopping and no agent is left to make calls. A reply that could not be
    /// recorded may still be kept for an agent that will not start.
    pub(super) fn is_past_calls(&self, cx: &Cx) -> bool {
        self.is_ending(cx) && self.is_past_work()
    }

    /// After the last working process of a closing workspace has ended, stops the processes that
    /// only served it.
    pub(super) fn on_worker_gone(&mut self, cx: &mut Cx) {
        if self.is_past_calls(cx) {
            self.advance_connectors(cx);
        }
    }

    pub(super) fn grace_period_ms(&self, cx: &Cx) -> u64 {
        let chosen = cx.stopping().and_then(|stopping| stopping.grace_period_ms);
        let bundle = self.bundle.as_ref();
        chosen.unwrap_or_else(|| bundle.map_or(DEFAULT_GRACE_PERIOD_MS, |b| b.grace_period_ms))
    }

    /// Remaining grace period of a connection or a model, in milliseconds. One that ends last gets
    /// the rest of the grace period after the turns, and at least some seconds.
    pub(super) fn grace_left_ms(&self, cx: &Cx) -> u64 {
        let grace_period_ms = self.grace_period_ms(cx);
        let closing = self.closing.as_ref();
        let stopping = cx.stopping().map(|stopping| stopping.since_ms);
        match stopping.or(closing.map(|closing| closing.since_ms)) {
            None => grace_period_ms,
            Some(since_ms) => since_ms
                .saturating_add(grace_period_ms)
                .saturating_sub(cx.now().mono_ms)
                .max(grace_period_ms.min(PROVIDER_GRACE_MIN_MS)),
        }
    }

    /// True if a process for this target runs, in the configuration or removed from it.
    pub(crate) fn runs_provider(&self, target: &CallTarget) -> bool {
        let slot = match target {
            CallTarget::Model { name } => self.models.get(name).map(Model::slot),
            CallTarget::Connection { name } => self.connectors.get(name).map(Connector::slot),
        };
        slot.is_some_and(|slot| slot.up().is_some())
    }
}

/// Conversations.
impl Workspace {
    /// The reference to one of its conversations.
    pub(super) fn conversation_ref(&self, key: &InstanceKey) -> InstanceRef {
        InstanceRef {
            workspace_id: self.record.workspace_id.clone(),
            instance_key: key.clone(),
        }
    }

    pub(super) fn conversation_refs(&self) -> Vec<InstanceRef> {
        let keys = self.conversations.keys();
        keys.map(|key| self.conversation_ref(key)).collect()
    }

    /// The turn in progress of a conversation.
    pub(crate) fn turn_of(&self, key: &InstanceKey) -> Option<&ActiveTurn> {
        self.conversations.get(key)?.turn()
    }

    /// The agent of an active conversation.
    pub(crate) fn agent_name(&self, key: &InstanceKey) -> Option<&AgentName> {
        Some(self.conversations.get(key)?.agent())
    }

    /// The conversations in a turn.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = InstanceRef> {
        let running = self.conversations.iter();
        let running = running.filter(|(_, entry)| entry.turn().is_some());
        running.map(|(key, _)| self.conversation_ref(key))
    }

    /// Removes waiters whose clients are gone.
    pub(crate) fn forget_waiters(&mut self, gone: &HashSet<RequestToken>) {
        for entry in self.conversations.values_mut() {
            entry.waiters_mut().forget_clients(gone);
        }
    }

    /// True if an operation holds a conversation.
    pub(super) fn is_holding(&self) -> bool {
        self.conversations.values().any(Conversation::is_frozen)
    }

    /// Active conversations with their agents.
    pub(crate) fn agents(&self) -> Vec<(InstanceKey, AgentName)> {
        let running = self.conversations.iter();
        let agents = running.map(|(key, entry)| (key.clone(), entry.agent().clone()));
        agents.collect()
    }

    /// True if the running process was started with another configuration.
    pub(super) fn is_agent_outdated(&self, key: &InstanceKey) -> bool {
        let entry = self.conversations.get(key);
        entry.is_some_and(|entry| entry.is_outdated(self.bundle.as_ref()))
    }

    /// True if any agent still runs with another configuration.
    pub(super) fn is_any_agent_outdated(&self) -> bool {
        let bundle = self.bundle.as_ref();
        let mut entries = self.conversations.values();
        entries.any(|entry| entry.is_outdated(bundle))
    }

    /// True if any turn in progress began with another configuration.
    pub(super) fn is_any_turn_of_before(&self) -> bool {
        let digest = self.bundle.as_ref().map(|bundle| &bundle.digest);
        let mut running = self.conversations.values();
        running.any(|entry| {
            let mut turns = entry.turn_contexts();
            entry.process().is_some() && turns.any(|turn| turn.config_digest.as_ref() != digest)
        })
    }

    /// Reason that no further turn of a conversation begins; `None` if one can begin.
    pub(crate) fn why_nothing_begins(&self, cx: &Cx, key: &InstanceKey) -> Option<ControlError> {
        if cx.stopping().is_some() {
            return Some(stopping_error());
        }
        if self.closing.is_some() {
            return Some(closed_error(&self.record.workspace_id));
        }
        let entry = self.conversations.get(key)?;
        entry.is_deleting().then(|| deleted_error(key))
    }

    /// Handles a failure of the store for a conversation. A deleted conversation has no process to
    /// end.
    pub(crate) fn on_store_failure(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        process: Option<ProcessId>,
        error: &StoreError,
    ) {
        match self.conversations.get_mut(&at.instance_key) {
            Some(entry) => entry.on_store_failure(cx, at, process, error),
            None => cx.log(store_failure(error).about(at, None)),
        }
    }

    /// Removes an idle conversation without a process.
    pub(crate) fn forget_if_done(&mut self, cx: &mut Cx, key: &InstanceKey) {
        let entry = self.conversations.get(key);
        let is_done = entry.is_some_and(|entry| entry.is_forgettable(cx.now().mono_ms));
        let instance = self.conversation_ref(key);
        if is_done && !cx.jobs().any(|it| *it == instance) {
            self.conversations.remove(key);
            let then = LogFailure(instance.clone());
            cx.store(Close { instance }, then);
        }
    }

    /// Records an event of a turn and reports it to the watchers.
    pub(crate) fn record_observation(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        event: &RuntimeEvent,
    ) {
        self.tell_collectors(cx, event);
        // Written once: as a line of the history, and for the clients that follow.
        let Ok(written) = serde_json::value::to_raw_value(event) else {
            return;
        };
        let line = [written.get().as_bytes(), b"\n"].concat();
        let op = Observe {
            instance: at.clone(),
            line,
        };
        cx.store(op, LogFailure(at.clone()));
        let tokens = self.clients_of_turn(cx, at, &event.turn_id);
        for token in tokens {
            cx.emit(CoreEffect::Progress {
                token,
                event: written.clone(),
            });
        }
    }

    /// The clients that wait for a turn in progress, and the followers of its conversation.
    pub(crate) fn clients_of_turn(
        &self,
        cx: &Cx,
        at: &InstanceRef,
        turn_id: &TurnId,
    ) -> Vec<RequestToken> {
        let Some(entry) = self.conversations.get(&at.instance_key) else {
            return Vec::new();
        };
        let turn = entry.turn();
        let Some(turn) = turn.filter(|turn| turn.turn_id == *turn_id) else {
            return Vec::new();
        };
        let mut clients = entry.waiters().clients_of(&turn.context.event_id);
        clients.extend(cx.audience().followers_of(at));
        clients
    }
}

/// Exports of traces.
impl Workspace {
    /// Queues an event of a turn for export.
    pub(super) fn tell_collectors(&mut self, cx: &mut Cx, event: &RuntimeEvent) {
        if !self.connectors.values().any(Connector::is_exporter) {
            return;
        }
        let exported = ExportedEvent {
            event: RuntimeEvent {
                detail: code_of(event),
                ..event.clone()
            },
            model: self.exported_model(&event.instance_key),
        };
        let exporters = self.connectors.values_mut();
        for connector in exporters.filter(|connector| connector.is_exporter()) {
            connector.export(cx, exported.clone());
        }
    }

    /// The model of a conversation's agent, as exported.
    fn exported_model(&self, key: &InstanceKey) -> Option<ExportedModel> {
        let model = &self.conversations.get(key)?.definition()?.model;
        let hosted = self.bundle.as_ref()?.models.get(&model.name);
        let provider = match (&model.provider, hosted) {
            (ModelProvider::Scripted { .. }, _) => "scripted",
            (ModelProvider::Connector { .. }, Some(hosted)) => hosted.provider_name(),
            (ModelProvider::Connector { .. }, None) => "openai",
        };
        let server = hosted.and_then(HostedModel::server);
        Some(ExportedModel {
            name: model.model.clone(),
            provider: provider.to_owned(),
            server_address: server.as_ref().map(|(host, _)| host.clone()),
            server_port: server.map(|(_, port)| port),
        })
    }

    /// Reports the events lost since the last report.
    pub(crate) fn report_lost_exports(&mut self, cx: &mut Cx) {
        for connector in self.connectors.values_mut() {
            connector.report_losses(cx);
        }
    }
}
