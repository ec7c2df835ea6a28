//! Opening, changing, restarting and closing workspaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use goondan_config::{ProjectConfig, Sources};
use goondan_protocol::control::{
    ControlError, ErrorCode, FileWatchMode, OpenWorkspace, ReplicationStall, WorkspaceProblem,
};
use goondan_protocol::ids::{
    AgentName, ConnectionName, InstanceKey, InstanceRef, ResourceName, WorkspaceId,
};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_store::workspace::WorkspaceRecord;
use goondan_store::writer::operation::Close;
use serde_json::json;

use super::changes::AppliedConfiguration;
use super::connectors::Connector;
use super::conversation::Conversation;
use super::models::Model;
use super::slot::Slot;
use super::{Fleet, Workspace, changes};
use crate::jobs::LogFailure;
use crate::limits::PROVIDER_GRACE_MIN_MS;
use crate::refusals::{closed_error, no_workspace};
use crate::{
    CoreEffect, Fallback, LoadPurpose, LoadedWorkspace, LogEvent, RequestToken, WorkspaceSettings,
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
    /// Registers a workspace, or takes what is on record of one that is.
    pub(crate) fn register(
        &mut self,
        record: WorkspaceRecord,
        parked: BTreeMap<InstanceKey, u64>,
        sources: &Arc<Sources>,
    ) {
        let id = record.workspace_id.clone();
        let (_, watch_epoch) = self.cx.uuid().as_u64_pair();
        self.cx.audience_mut().open(&id, watch_epoch);
        let workspace = self.workspaces.entry(id);
        let workspace = workspace.or_insert_with(|| Workspace {
            parked,
            ..Workspace::new(record.clone(), sources.clone())
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

    /// Removes a closed workspace.
    pub(crate) fn forget_workspace(&mut self, id: &WorkspaceId) -> Option<Workspace> {
        self.workspaces.remove(id)
    }

    /// The conversations of a workspace that have something to do, and whose they are.
    pub(crate) fn agents_of(&self, id: &WorkspaceId) -> Vec<(InstanceKey, AgentName)> {
        let workspace = self.workspaces.get(id).into_iter();
        let running = workspace.flat_map(|workspace| &workspace.conversations);
        let agents = running.map(|(key, entry)| (key.clone(), entry.agent().clone()));
        agents.collect()
    }

    /// True if a process works for a conversation.
    pub(crate) fn has_process(&self, at: &InstanceRef) -> bool {
        let workspace = self.workspaces.get(&at.workspace_id);
        let entry = workspace.and_then(|workspace| workspace.conversations.get(&at.instance_key));
        entry.is_some_and(|entry| entry.process().is_some())
    }

    /// Runs a valid configuration. Returns its changes, and the models whose processes may need
    /// changes.
    pub(crate) fn run(
        &mut self,
        id: &WorkspaceId,
        bundle: ProjectConfig,
        fallback: Option<&Fallback>,
        is_new: bool,
    ) -> (AppliedConfiguration, Vec<ResourceName>) {
        let now = self.cx.now().wall;
        let Some(workspace) = self.workspaces.get_mut(id) else {
            return (AppliedConfiguration::default(), Vec::new());
        };
        let digest = bundle.digest.clone();
        let had_problem = workspace.problem.take().is_some();
        workspace.is_last_known_good = fallback.is_some();
        let runs_already = workspace.bundle.as_ref().map(|bundle| &bundle.digest);
        if runs_already != Some(&digest) {
            workspace.since = Some(now);
        }
        let (applied, models) = self.apply(id, bundle);
        self.log_applied(id, &applied, &digest, is_new, had_problem);
        if let Some(fallback) = fallback {
            self.on_fallback(id, fallback, &digest);
        }
        (applied, models)
    }

    /// Replaces the running configuration by a valid one. Outdated processes are restarted; turns
    /// in progress finish with the old configuration. Returns the changes, and the models whose
    /// processes may need changes.
    fn apply(
        &mut self,
        id: &WorkspaceId,
        bundle: ProjectConfig,
    ) -> (AppliedConfiguration, Vec<ResourceName>) {
        let Some(workspace) = self.workspaces.get_mut(id) else {
            return (AppliedConfiguration::default(), Vec::new());
        };
        let changes = changes::changes(workspace.bundle.as_ref(), &bundle);
        for (name, connector) in &mut workspace.connectors {
            connector.wanted = bundle.connections.get(name).cloned();
            if let Some(running) = &mut connector.running {
                running.compare(&bundle);
            }
        }
        for (name, definition) in &bundle.connections {
            workspace
                .connectors
                .entry(name.clone())
                .or_insert_with(|| Connector::new(definition.clone()));
        }
        for (name, model) in &mut workspace.models {
            model.wanted = bundle.models.get(name).cloned();
        }
        for (name, definition) in &bundle.models {
            workspace
                .models
                .entry(name.clone())
                .or_insert_with(|| Model::new(definition.clone()));
        }
        for instance in workspace.conversations.values_mut() {
            instance.on_configuration(&bundle);
        }
        let connectors: Vec<ConnectionName> = workspace.connectors.keys().cloned().collect();
        let models: Vec<ResourceName> = workspace.models.keys().cloned().collect();
        workspace.bundle = Some(bundle);
        self.disarm(id);
        let mut processes = 0;
        for at in self.instances_of(id) {
            if self.is_agent_outdated(&at) {
                processes += 1;
                self.advance(&at);
            }
        }
        for name in connectors {
            processes += usize::from(self.is_connector_outdated(id, &name));
            self.pump_connector(id, &name);
        }
        let outdated = |name: &&ResourceName| self.is_model_outdated(id, name);
        processes += models.iter().filter(outdated).count();
        (AppliedConfiguration { changes, processes }, models)
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

    /// The project's own configuration is invalid, so the last known good one runs.
    pub(crate) fn on_fallback(&mut self, id: &WorkspaceId, fallback: &Fallback, digest: &str) {
        let Fallback { error, since } = fallback;
        if let Some(workspace) = self.workspaces.get_mut(id) {
            workspace.problem = Some(problem_of(error));
            workspace.since = Some(*since);
        }
        let event = LifecycleEvent::ConfigurationFellBack {
            config_digest: digest.to_owned(),
            config_since: *since,
            error: error.message.clone(),
        };
        self.announce(id, event, None);
    }

    /// Stores the sources of the running configuration as the last known good one.
    pub(crate) fn keep(&mut self, id: &WorkspaceId, may_be_kept: bool, sources: &Arc<Sources>) {
        let Some(digest) = self.bundle(id).map(|bundle| bundle.digest.clone()) else {
            return;
        };
        if let Some(workspace) = self.workspaces.get_mut(id) {
            workspace.may_be_kept = may_be_kept;
        }
        if may_be_kept {
            self.cx.emit(CoreEffect::KeepConfiguration {
                workspace_id: id.clone(),
                digest,
                since: self.cx.now().wall,
                sources: sources.clone(),
            });
        } else {
            let event = LogEvent::warn("configuration not stored as last known good");
            let reason = "it contains a literal secret; use `valueFrom`";
            let event = event.with("workspaceId", id.as_str());
            self.log(event.with("reason", reason));
        }
    }

    pub(crate) fn log_applied(
        &mut self,
        id: &WorkspaceId,
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
        self.announce(id, event, None);
    }

    /// Stops running a workspace until a valid configuration is read: its processes end after the
    /// turns and calls in progress, within their grace period; events wait.
    pub(crate) fn withdraw(&mut self, id: &WorkspaceId, reason: &str) {
        let Some(workspace) = self.workspaces.get_mut(id) else {
            return;
        };
        if workspace.bundle.is_none() {
            return;
        }
        let models: Vec<ResourceName> = workspace.models.keys().cloned().collect();
        for model in workspace.models.values_mut() {
            model.wanted = None;
        }
        for connector in workspace.connectors.values_mut() {
            connector.wanted = None;
        }
        // A turn in progress must not use the withdrawn connections and models.
        for name in self.connections_of(id) {
            self.drain_connector(id, &name, reason);
        }
        self.drain_workspace(id, None, reason);
        for name in models {
            self.drain_model(id, &name, reason);
        }
        if let Some(workspace) = self.workspaces.get_mut(id) {
            workspace.bundle = None;
            workspace.since = None;
            workspace.is_last_known_good = false;
        }
    }

    pub(crate) fn restart_agent(&mut self, at: &InstanceRef) {
        if let Some(entry) = self.conversation_mut(at) {
            entry.forgive_crashes();
        }
        self.audit(at, "restarted", json!({}));
        self.drain_agent(at, None, "a restart was requested");
        self.advance(at);
    }

    /// Restarts every connector of a workspace, those of models too, and returns how many ran.
    pub(crate) fn restart_connectors(&mut self, id: &WorkspaceId) -> usize {
        let mut running = 0;
        let workspace = self.workspaces.get_mut(id);
        let mut names: Vec<ConnectionName> = Vec::new();
        for (name, connector) in workspace.into_iter().flat_map(|w| &mut w.connectors) {
            connector.slot.forgive();
            running += usize::from(connector.slot.up().is_some());
            names.push(name.clone());
        }
        let mut models: Vec<ResourceName> = Vec::new();
        let workspace = self.workspaces.get_mut(id);
        for (name, model) in workspace.into_iter().flat_map(|w| &mut w.models) {
            model.slot.forgive();
            running += usize::from(model.slot.up().is_some());
            models.push(name.clone());
        }
        for name in &names {
            self.drain_connector(id, name, "a restart was requested");
            self.pump_connector(id, name);
        }
        for name in &models {
            self.drain_model(id, name, "a restart was requested");
        }
        running
    }

    /// Moves a workspace to another node, once nothing of it runs here.
    pub(crate) fn move_workspace(
        &mut self,
        token: Option<RequestToken>,
        id: &WorkspaceId,
        to: String,
    ) {
        if !self.workspaces.contains_key(id) {
            let workspace_id = id.clone();
            return self.cx.emit(CoreEffect::HandOver {
                workspace_id,
                to,
                token,
            });
        }
        self.begin_closing(token, id);
        let workspace = self.workspaces.get_mut(id);
        if let Some(closing) = workspace.and_then(|workspace| workspace.closing.as_mut()) {
            closing.to = Some(to);
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
        if self.workspaces.contains_key(id) {
            self.begin_closing(Some(token), id);
        } else {
            self.cx.respond_error(token, no_workspace(id));
        }
    }

    fn begin_closing(&mut self, token: Option<RequestToken>, id: &WorkspaceId) {
        let Some(workspace) = self.workspaces.get_mut(id) else {
            return;
        };
        let closing = workspace.closing.get_or_insert_default();
        closing.since_ms = self.cx.now().mono_ms;
        closing.requests.extend(token);
        if std::mem::take(&mut workspace.watching) != FileWatchMode::Off || workspace.record.watch {
            let (workspace_id, sources) = (id.clone(), None);
            self.cx.emit(CoreEffect::Watch {
                workspace_id,
                sources,
            });
        }
        self.cancel_waiters_of(id, &closed_error(id));
        self.drain_workspace(id, None, "the workspace is stopped");
    }

    pub(crate) fn instances_of(&self, id: &WorkspaceId) -> Vec<InstanceRef> {
        let workspace = self.workspaces.get(id);
        workspace
            .into_iter()
            .flat_map(|workspace| workspace.conversations.keys())
            .map(|key| InstanceRef {
                workspace_id: id.clone(),
                instance_key: key.clone(),
            })
            .collect()
    }

    /// Answers every client that waits for a turn of the workspace that will not begin.
    pub(super) fn cancel_waiters_of(&mut self, id: &WorkspaceId, error: &ControlError) {
        for at in self.instances_of(id) {
            self.cancel_waiters_of_later_turns(&at, error);
        }
    }

    /// Asks every agent and task of a workspace to finish and end. Its connections take nothing new from now on;
    /// they and the models end when no turn is left that could need them.
    pub(super) fn drain_workspace(&mut self, id: &WorkspaceId, grace: Option<u64>, reason: &str) {
        self.pump_connectors(id);
        for at in self.instances_of(id) {
            self.drain_agent(&at, grace, reason);
        }
        self.drain_runs(id, grace, reason);
        self.pump_connectors(id);
    }

    fn pump_connectors(&mut self, id: &WorkspaceId) {
        for name in self.connections_of(id) {
            self.pump_connector(id, &name);
        }
    }

    fn connections_of(&self, id: &WorkspaceId) -> Vec<ConnectionName> {
        let workspace = self.workspaces.get(id).into_iter();
        let names = workspace.flat_map(|workspace| workspace.connectors.keys());
        names.cloned().collect()
    }

    /// True if the daemon or this workspace is stopping.
    pub(super) fn is_ending(&self, id: &WorkspaceId) -> bool {
        let workspace = self.workspaces.get(id);
        self.is_stopping() || workspace.is_none_or(|workspace| workspace.closing.is_some())
    }

    /// True if no agent and no task is left whose work could need a connection or a model. One that is being killed
    /// waits for nothing.
    pub(super) fn is_past_work(&self, id: &WorkspaceId) -> bool {
        let Some(workspace) = self.workspaces.get(id) else {
            return true;
        };
        let mut agents = workspace.conversations.values().map(Conversation::slot);
        let mut tasks = workspace.runs.values().map(|run| &run.slot);
        let works = |slot: &Slot| slot.up().is_some() && !slot.is_dying();
        !agents.any(works) && !tasks.any(works)
    }

    /// After the last working process of a closing workspace has ended, stops the processes that
    /// only served it.
    pub(super) fn on_worker_gone(&mut self, id: &WorkspaceId) {
        if self.is_ending(id) && self.is_past_work(id) {
            self.pump_connectors(id);
        }
    }

    /// Remaining grace period of a connection or a model of a workspace, in milliseconds. One that
    /// ends last gets the rest of the grace period after the turns, and at least some seconds.
    pub(super) fn grace_left_ms(&self, id: &WorkspaceId) -> u64 {
        let grace_period_ms = self.grace_period_ms(id);
        let closing = self.workspaces.get(id).and_then(|w| w.closing.as_ref());
        let stopping = self.stopping.as_ref().map(|stopping| stopping.since_ms);
        match stopping.or(closing.map(|closing| closing.since_ms)) {
            None => grace_period_ms,
            Some(since_ms) => since_ms
                .saturating_add(grace_period_ms)
                .saturating_sub(self.cx.now().mono_ms)
                .max(grace_period_ms.min(PROVIDER_GRACE_MIN_MS)),
        }
    }

    /// Records workspaces as closed when their processes are gone and the store has released their
    /// instances: the next opening reads them from disk.
    pub(super) fn finish_closed_workspaces(&mut self, is_busy: impl Fn(&WorkspaceId) -> bool) {
        let closing = self.workspaces.iter().filter(|(id, workspace)| {
            let is_closing = workspace.closing.as_ref().is_some_and(|c| !c.is_writing);
            is_closing
                && !is_busy(id)
                && self
                    .owners
                    .values()
                    .all(|owner| owner.workspace_id() != *id)
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
}
