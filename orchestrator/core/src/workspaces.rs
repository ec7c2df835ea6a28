//! Opening, changing, restarting and closing workspaces.

use std::collections::BTreeMap;
use std::sync::Arc;

use goondan_config::{Bundle, Sources};
use goondan_protocol::control::{
    ControlError, Done, ErrorCode, OpenWorkspace, Restart, Restarted, Watching, WorkspaceProblem,
};
use goondan_protocol::ids::{
    AgentName, ConnectionName, InstanceKey, InstanceRef, ResourceName, WorkspaceId,
};
use goondan_store::instance::Metadata;
use goondan_store::writer::operation::Close;
use serde_json::json;

use super::connectors::Connector;
use super::jobs::LogFailure;
use super::models::Model;
use super::refusals::closed_error;
use super::reloading::Applied;
use super::{
    Core, Effect, Fallback, Fleet, LoadPurpose, Loaded, LoadedWorkspace, LogEvent, RequestToken,
    Settings, Workspace, changes, no_workspace, stopping_error,
};

fn problem_of(error: &ControlError) -> WorkspaceProblem {
    let suggestion = error.suggestion.clone();
    WorkspaceProblem {
        message: error.message.clone(),
        suggestion: suggestion.unwrap_or_else(|| "`gdn validate`".into()),
    }
}

fn being_stopped(id: &WorkspaceId) -> ControlError {
    let message = format!("workspace `{id}` is being stopped");
    ControlError::new(ErrorCode::WorkspaceConflict, message).suggest("try again in a moment")
}

impl Fleet {
    /// Whether what was read may take the place of what runs.
    fn check_loaded(
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
                workspace.map_or(Ok(()), |workspace| Self::check_denied(workspace, secrets))
            }
        }
    }

    /// Reads a project's workspace for a client, unless that workspace is on its way out: reading
    /// would register it again.
    pub(super) fn open_workspace(&mut self, token: RequestToken, open: OpenWorkspace) {
        let OpenWorkspace {
            project_root,
            watch,
            env_files,
        } = open;
        let mut workspaces = self.workspaces.iter();
        let closing = workspaces.find(|(_, workspace)| {
            workspace.closing.is_some() && workspace.record.project_root == project_root
        });
        let settings = Settings { watch, env_files };
        match closing.map(|(id, _)| being_stopped(id)) {
            Some(error) => self.respond_error(token, error),
            None => self.push(Effect::LoadWorkspace {
                purpose: LoadPurpose::Open { token, settings },
                workspace_id: None,
                project_root,
            }),
        }
    }

    /// The project's own configuration cannot run; the last known good one does.
    fn on_fallback(&mut self, id: &WorkspaceId, fallback: &Fallback, digest: &str) {
        let Fallback { error, since } = fallback;
        if let Some(workspace) = self.workspaces.get_mut(id) {
            workspace.problem = Some(problem_of(error));
            workspace.since = Some(*since);
        }
        let event = LogEvent::error("the last known good configuration runs");
        let event = event.with("workspaceId", id.as_str());
        let event = event.with("configDigest", digest);
        let event = event.with("configSince", since.to_string());
        self.log(event.with("error", error.message.clone()));
    }

    /// Has the files of the configuration that runs kept, to fall back to.
    fn keep(
        &mut self,
        id: &WorkspaceId,
        digest: String,
        may_be_kept: bool,
        sources: &Arc<Sources>,
    ) {
        if may_be_kept {
            self.push(Effect::KeepConfiguration {
                workspace_id: id.clone(),
                digest,
                since: self.now.wall,
                sources: sources.clone(),
            });
        } else {
            let event = LogEvent::warn("the configuration is not kept as the last known good one");
            let reason = "a secret is written out in it; take it from elsewhere: `valueFrom`";
            let event = event.with("workspaceId", id.as_str());
            self.log(event.with("reason", reason));
        }
    }

    fn log_applied(
        &mut self,
        id: &WorkspaceId,
        applied: &Applied,
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
        let event = if changes.is_empty() {
            LogEvent::info("the configuration is valid again, and as it was")
        } else {
            LogEvent::info("configuration changed")
        };
        self.log(
            event
                .with("workspaceId", id.as_str())
                .with("configDigest", digest)
                .with("changes", changes)
                .with("restarting", applied.processes),
        );
    }

    /// Runs nothing of a workspace any more until a valid configuration is read: its processes end, after
    /// the turns and calls in progress and within their grace period; events wait.
    pub(super) fn withdraw(&mut self, id: &WorkspaceId, reason: &str) {
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

    fn restart_agent(&mut self, at: &InstanceRef) {
        if let Some(entry) = self.instance_mut(at) {
            entry.slot.forgive();
        }
        self.audit(at, "restarted", json!({}));
        self.drain_agent(at, None, "a restart was asked for");
        self.pump(at);
    }

    /// Restarts every connector of a workspace, those of models too, and returns how many ran.
    fn restart_connectors(&mut self, id: &WorkspaceId) -> usize {
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
            self.drain_connector(id, name, None, "a restart was asked for");
            self.pump_connector(id, name);
        }
        for name in &models {
            self.drain_model(id, name, "a restart was asked for");
        }
        running
    }

    /// Stops a workspace's processes; `finish_closed_workspaces` does the rest when they are gone.
    pub(super) fn close_workspace(&mut self, token: RequestToken, id: &WorkspaceId) {
        let Some(workspace) = self.workspaces.get_mut(id) else {
            return self.respond_error(token, no_workspace(id));
        };
        let closing = workspace.closing.get_or_insert_default();
        closing.requests.push(token);
        if std::mem::take(&mut workspace.watching) != Watching::Off || workspace.record.watch {
            let (workspace_id, sources) = (id.clone(), None);
            self.push(Effect::Watch {
                workspace_id,
                sources,
            });
        }
        self.cancel_waiters_of(id, &closed_error(id));
        self.drain_workspace(id, None, "the workspace is stopped");
    }

    fn instances_of(&self, id: &WorkspaceId) -> Vec<InstanceRef> {
        let workspace = self.workspaces.get(id);
        workspace
            .into_iter()
            .flat_map(|workspace| workspace.instances.keys())
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

    /// Asks every process of a workspace to finish and end.
    pub(super) fn drain_workspace(&mut self, id: &WorkspaceId, grace: Option<u64>, reason: &str) {
        let Some(workspace) = self.workspaces.get(id) else {
            return;
        };
        let names: Vec<ConnectionName> = workspace.connectors.keys().cloned().collect();
        // Connectors first: they are where new work comes from.
        for name in names {
            self.drain_connector(id, &name, grace, reason);
        }
        for at in self.instances_of(id) {
            self.drain_agent(&at, grace, reason);
        }
    }

    /// Records workspaces as closed whose processes are gone, after the store has let go of their
    /// instances: whoever opens one next reads what is on disk.
    pub(super) fn finish_closed_workspaces(&mut self) {
        let closing = self.workspaces.iter().filter(|(id, workspace)| {
            let is_closing = workspace.closing.as_ref().is_some_and(|c| !c.is_writing);
            is_closing
                && self
                    .owners
                    .values()
                    .all(|owner| owner.workspace_id() != *id)
                && !self.jobs.any(|instance| instance.workspace_id == **id)
        });
        let ended: Vec<WorkspaceId> = closing.map(|(id, _)| id.clone()).collect();
        for id in ended {
            let Some(workspace) = self.workspaces.get_mut(&id) else {
                continue;
            };
            let held = std::mem::take(&mut workspace.instances);
            if held.is_empty() {
                workspace.record.registered = false;
                let record = Box::new(workspace.record.clone());
                if let Some(closing) = &mut workspace.closing {
                    closing.is_writing = true;
                }
                self.push(Effect::WriteWorkspace(record));
            }
            for instance_key in held.into_keys() {
                let workspace_id = id.clone();
                let instance = InstanceRef {
                    workspace_id,
                    instance_key,
                };
                let then = LogFailure(instance.clone());
                self.store(Close { instance }, then);
            }
        }
    }
}

impl Core {
    pub(super) fn on_loaded(&mut self, loaded: Loaded) {
        let Loaded {
            purpose,
            workspace_id,
            sources,
            result,
        } = loaded;
        if self.fleet.is_stopping() {
            if let Some(token) = purpose.token() {
                self.fleet.respond_error(token, stopping_error());
            } else if let LoadPurpose::Reload(Some(token)) = purpose {
                self.give_up_reload(token);
            }
            return;
        }
        let id = match &result {
            Ok(found) => Some(found.record.workspace_id.clone()),
            Err(_) => workspace_id,
        };
        let known = id.as_ref().and_then(|id| self.fleet.workspaces.get(id));
        if let Some(id) = &id
            && known.is_some_and(|workspace| workspace.closing.is_some())
        {
            let error = being_stopped(id);
            return self.tell_load_failed(&purpose, Some(id), &error);
        }
        self.take_up_loaded(&purpose, id.as_ref(), result, &sources);
        if let Some(id) = id {
            self.fleet.note_secrets(&id, sources.secrets());
            self.fleet.watch(&id, sources);
        }
    }

    fn take_up_loaded(
        &mut self,
        purpose: &LoadPurpose,
        id: Option<&WorkspaceId>,
        result: Result<LoadedWorkspace, ControlError>,
        sources: &Arc<Sources>,
    ) {
        let found = match result {
            Ok(found) => found,
            Err(error) => return self.on_load_failed(purpose, id, &error),
        };
        let id = found.record.workspace_id.clone();
        if let Err(error) = self.fleet.check_loaded(purpose, &found, sources) {
            return self.on_load_failed(purpose, Some(&id), &error);
        }
        let is_new = !self.fleet.workspaces.contains_key(&id);
        if is_new {
            self.calls.open_accounts(&id, found.accounts);
        }
        let workspace = self
            .fleet
            .workspaces
            .entry(id.clone())
            .or_insert_with(|| Workspace {
                parked: found.parked,
                ..Workspace::new(found.record.clone(), sources.clone())
            });
        workspace.record = found.record;
        workspace.sources = sources.clone();
        let mut applied = Applied::default();
        match found.bundle {
            Ok(bundle) => {
                let digest = bundle.digest.clone();
                let had_problem = workspace.problem.take().is_some();
                workspace.is_last_known_good = found.fallback.is_some();
                let runs_already = workspace.bundle.as_ref().map(|bundle| &bundle.digest);
                if runs_already != Some(&digest) {
                    workspace.since = Some(self.fleet.now.wall);
                }
                applied = self.apply(&id, bundle);
                self.fleet
                    .log_applied(&id, &applied, &digest, is_new, had_problem);
                match &found.fallback {
                    Some(fallback) => self.fleet.on_fallback(&id, fallback, &digest),
                    None => self.fleet.keep(&id, digest, found.may_be_kept, sources),
                }
            }
            Err(error) => self.on_load_failed(&LoadPurpose::Start, Some(&id), &error),
        }
        if is_new {
            let event = LogEvent::info("workspace opened").with("workspaceId", id.as_str());
            self.fleet
                .log(event.with("instancesWithWork", found.with_work.len()));
        }
        for instance in found.with_work {
            let at = InstanceRef {
                workspace_id: id.clone(),
                instance_key: instance.instance_key,
            };
            self.fleet.take_up(&at, instance.agent_name.as_ref());
        }
        self.answer_loaded(purpose, &id, applied, found.to_begin_anew);
    }

    fn answer_loaded(
        &mut self,
        purpose: &LoadPurpose,
        id: &WorkspaceId,
        applied: Applied,
        to_begin_anew: Vec<Metadata>,
    ) {
        match purpose {
            LoadPurpose::Start | LoadPurpose::Watch | LoadPurpose::Reload(None) => {}
            LoadPurpose::Reload(Some(token)) => self.on_reloaded(*token, id, Ok(applied)),
            LoadPurpose::Open { token, .. } => {
                if let Some(info) = self.workspace_info(id) {
                    self.fleet.respond(*token, &info);
                }
            }
            LoadPurpose::Restart { token, request } => {
                self.restart(*token, request, to_begin_anew);
            }
        }
    }

    fn on_load_failed(
        &mut self,
        purpose: &LoadPurpose,
        id: Option<&WorkspaceId>,
        error: &ControlError,
    ) {
        let event = LogEvent::error("a workspace could not be loaded");
        let event = match id {
            Some(id) => event.with("workspaceId", id.as_str()),
            None => event,
        };
        self.fleet.log(event.with("error", error.message.clone()));
        if let Some(workspace) = id.and_then(|id| self.fleet.workspaces.get_mut(id)) {
            workspace.problem = Some(problem_of(error));
        }
        self.tell_load_failed(purpose, id, error);
    }

    fn tell_load_failed(
        &mut self,
        purpose: &LoadPurpose,
        id: Option<&WorkspaceId>,
        error: &ControlError,
    ) {
        if let Some(token) = purpose.token() {
            self.fleet.respond_error(token, error.clone());
        } else if let (LoadPurpose::Reload(Some(token)), Some(id)) = (purpose, id) {
            self.on_reloaded(*token, id, Err(problem_of(error)));
        }
    }

    /// Makes a valid configuration the one that runs. What it outdates is restarted; turns in progress
    /// finish on what they began with.
    fn apply(&mut self, id: &WorkspaceId, bundle: Bundle) -> Applied {
        let Some(workspace) = self.fleet.workspaces.get_mut(id) else {
            return Applied::default();
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
        for instance in workspace.instances.values_mut() {
            if let Some(running) = &mut instance.running {
                running.compare(&bundle);
            }
        }
        let connectors: Vec<ConnectionName> = workspace.connectors.keys().cloned().collect();
        let models: Vec<ResourceName> = workspace.models.keys().cloned().collect();
        workspace.bundle = Some(bundle);
        let mut processes = 0;
        for at in self.fleet.instances_of(id) {
            if self.fleet.is_agent_outdated(&at) {
                processes += 1;
                self.fleet.pump(&at);
            }
        }
        for name in connectors {
            processes += usize::from(self.fleet.is_connector_outdated(id, &name));
            self.fleet.pump_connector(id, &name);
        }
        for name in models {
            processes += usize::from(self.fleet.is_model_outdated(id, &name));
            self.model_time(id, &name);
        }
        Applied { changes, processes }
    }

    /// Restarts what a client asks for, after the turns in progress (`SUP-8`). Conversations that
    /// are to begin anew are deleted at once; `on_disk` are all that there are.
    fn restart(&mut self, token: RequestToken, request: &Restart, on_disk: Vec<Metadata>) {
        let id = &request.workspace_id;
        let Some(workspace) = self.fleet.workspaces.get_mut(id) else {
            return self.fleet.respond_error(token, no_workspace(id));
        };
        if let Some(agent) = &request.agent
            && workspace
                .bundle
                .as_ref()
                .is_none_or(|b| !b.agents.contains_key(agent))
        {
            let error = ControlError::new(
                ErrorCode::AgentNotFound,
                format!("there is no agent `{agent}`"),
            );
            return self.fleet.respond_error(token, error);
        }
        let mut owners: BTreeMap<InstanceKey, AgentName> = BTreeMap::new();
        if request.fresh {
            owners.extend(on_disk.into_iter().map(|m| (m.instance_key, m.agent_name)));
        }
        let running = workspace.instances.iter();
        owners.extend(running.map(|(key, entry)| (key.clone(), entry.agent.clone())));
        let (only_key, only_agent) = (request.instance_key.as_ref(), request.agent.as_ref());
        owners.retain(|key, agent| {
            only_key.is_none_or(|only| only == key) && only_agent.is_none_or(|only| only == agent)
        });
        let mut processes = 0;
        if only_key.is_none() && only_agent.is_none() {
            processes += self.fleet.restart_connectors(id);
        }
        let mut chosen: Vec<(InstanceRef, AgentName)> = Vec::new();
        for (instance_key, agent) in owners {
            let workspace_id = id.clone();
            let at = InstanceRef {
                workspace_id,
                instance_key,
            };
            let entry = self.fleet.instance_mut(&at);
            processes += usize::from(entry.is_some_and(|entry| entry.slot.up().is_some()));
            chosen.push((at, agent));
        }
        if request.fresh {
            return self.begin_anew(token, chosen, processes);
        }
        for (at, _) in &chosen {
            self.fleet.restart_agent(at);
        }
        let removed = Vec::new();
        self.fleet.respond(token, &Restarted { processes, removed });
    }

    /// Forgets a closed workspace: the next start of the daemon does not bring it back.
    pub(super) fn on_workspace_written(
        &mut self,
        id: &WorkspaceId,
        result: &Result<(), ControlError>,
    ) {
        let Some(workspace) = self.fleet.workspaces.remove(id) else {
            return;
        };
        let event = match result {
            Ok(()) => {
                self.fleet.audit_workspace(id, "stopped", json!({}));
                LogEvent::info("workspace stopped")
            }
            Err(error) => {
                let event = LogEvent::error("workspace stopped, but its record was not written");
                event.with("error", error.message.clone())
            }
        };
        self.fleet.log(event.with("workspaceId", id.as_str()));
        self.calls.forget_calls_of(id);
        for token in workspace.closing.into_iter().flat_map(|c| c.requests) {
            match result {
                Ok(()) => self.fleet.respond(token, &Done {}),
                Err(error) => self.fleet.respond_error(token, error.clone()),
            }
        }
    }
}
