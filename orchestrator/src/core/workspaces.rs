//! Opening, changing, restarting and closing workspaces.

use std::collections::BTreeMap;
use std::path::PathBuf;

use goondan_config::Bundle;
use goondan_protocol::control::{
    ControlError, Done, ErrorCode, Restart, Restarted, WorkspaceProblem,
};
use goondan_protocol::ids::{
    AgentName, ConnectionName, InstanceKey, InstanceRef, ResourceName, WorkspaceId,
};
use goondan_store::instance::Metadata;
use goondan_store::writer::Op;
use serde_json::json;

use super::connectors::Connector;
use super::jobs::Purpose;
use super::mailbox::closed_error;
use super::models::Model;
use super::retention::Retention;
use super::{
    Core, Effect, LoadPurpose, Loaded, LogEvent, RequestToken, Workspace, no_workspace,
    stopping_error,
};

fn being_stopped(id: &WorkspaceId) -> ControlError {
    let message = format!("workspace `{id}` is being stopped");
    ControlError::new(ErrorCode::WorkspaceConflict, message).suggest("try again in a moment")
}

impl Core {
    /// Reads a project's workspace for a client, unless that workspace is on its way out: reading
    /// would register it again.
    pub(super) fn open_workspace(&mut self, token: RequestToken, project_root: PathBuf) {
        let mut workspaces = self.workspaces.iter();
        let closing = workspaces.find(|(_, workspace)| {
            workspace.closing.is_some() && workspace.record.project_root == project_root
        });
        match closing.map(|(id, _)| being_stopped(id)) {
            Some(error) => self.respond_error(token, error),
            None => self.push(Effect::LoadWorkspace {
                purpose: LoadPurpose::Open(token),
                workspace_id: None,
                project_root,
            }),
        }
    }

    pub(super) fn on_loaded(&mut self, loaded: Loaded) {
        let Loaded {
            purpose,
            workspace_id,
            result,
        } = loaded;
        if self.is_stopping() {
            if let LoadPurpose::Open(token) | LoadPurpose::Restart { token, .. } = purpose {
                self.respond_error(token, stopping_error());
            }
            return;
        }
        let found = match result {
            Ok(found) => found,
            Err(error) => return self.on_load_failed(&purpose, workspace_id.as_ref(), &error),
        };
        let id = found.record.workspace_id.clone();
        let known = self.workspaces.get(&id);
        if known.is_some_and(|workspace| workspace.closing.is_some()) {
            if let LoadPurpose::Open(token) | LoadPurpose::Restart { token, .. } = purpose {
                self.respond_error(token, being_stopped(&id));
            }
            return;
        }
        if let Err(error) = &found.bundle
            && !matches!(purpose, LoadPurpose::Start)
        {
            // An invalid edit changes nothing that runs.
            return self.on_load_failed(&purpose, Some(&id), error);
        }
        let is_new = !self.workspaces.contains_key(&id);
        let workspace = self
            .workspaces
            .entry(id.clone())
            .or_insert_with(|| Workspace {
                record: found.record.clone(),
                bundle: None,
                problem: None,
                instances: BTreeMap::new(),
                connectors: BTreeMap::new(),
                models: BTreeMap::new(),
                retention: Retention::default(),
                closing: None,
            });
        workspace.record = found.record;
        match found.bundle {
            Ok(bundle) => self.apply(&id, bundle),
            Err(error) => self.on_load_failed(&LoadPurpose::Start, Some(&id), &error),
        }
        if is_new {
            let event = LogEvent::info("workspace opened").with("workspaceId", id.as_str());
            self.log(event.with("instancesWithWork", found.with_work.len()));
        }
        for instance in found.with_work {
            let at = InstanceRef {
                workspace_id: id.clone(),
                instance_key: instance.instance_key,
            };
            self.take_up(&at, instance.agent_name.as_ref());
        }
        match purpose {
            LoadPurpose::Start => {}
            LoadPurpose::Open(token) => {
                if let Some(info) = self.workspace_info(&id) {
                    self.respond(token, &info);
                }
            }
            LoadPurpose::Restart { token, request } => {
                self.restart(token, &request, found.to_begin_anew);
            }
        }
    }

    /// Reads every workspace's configuration again.
    pub(super) fn reload(&mut self) {
        let all: Vec<_> = self
            .workspaces
            .iter()
            .map(|(id, workspace)| (id.clone(), workspace.record.project_root.clone()))
            .collect();
        for (id, project_root) in all {
            let (purpose, workspace_id) = (LoadPurpose::Start, Some(id));
            self.push(Effect::LoadWorkspace {
                purpose,
                workspace_id,
                project_root,
            });
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
        self.log(event.with("error", error.message.clone()));
        if let Some(id) = id {
            self.set_problem(id, error);
        }
        if let LoadPurpose::Open(token) | LoadPurpose::Restart { token, .. } = purpose {
            self.respond_error(*token, error.clone());
        }
    }

    fn set_problem(&mut self, id: &WorkspaceId, error: &ControlError) {
        if let Some(workspace) = self.workspaces.get_mut(id) {
            let suggestion = error
                .suggestion
                .clone()
                .unwrap_or_else(|| "`gdn validate`".into());
            let message = error.message.clone();
            workspace.problem = Some(WorkspaceProblem {
                message,
                suggestion,
            });
        }
    }

    /// Makes a valid configuration the one that runs. What changed is restarted; turns in progress
    /// finish on what they began with.
    fn apply(&mut self, id: &WorkspaceId, bundle: Bundle) {
        let Some(workspace) = self.workspaces.get_mut(id) else {
            return;
        };
        workspace.problem = None;
        let mut changed_agents: Vec<InstanceRef> = Vec::new();
        for (key, instance) in &workspace.instances {
            if instance.definition.is_some()
                && instance.definition.as_ref() != bundle.agents.get(&instance.agent)
            {
                let (workspace_id, instance_key) = (id.clone(), key.clone());
                changed_agents.push(InstanceRef {
                    workspace_id,
                    instance_key,
                });
            }
        }
        for (name, connector) in &mut workspace.connectors {
            connector.wanted = bundle.connections.get(name).cloned();
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
        let changed_models: Vec<ResourceName> = workspace
            .models
            .iter()
            .filter(|(_, m)| m.slot.up().is_some() && m.wanted.is_some() && m.running != m.wanted)
            .map(|(name, _)| name.clone())
            .collect();
        let names: Vec<ConnectionName> = workspace.connectors.keys().cloned().collect();
        let changed_connectors: Vec<ConnectionName> = workspace
            .connectors
            .iter()
            .filter(|(_, c)| c.slot.up().is_some() && c.running != c.wanted)
            .map(|(name, _)| name.clone())
            .collect();
        workspace.bundle = Some(bundle);
        for at in changed_agents {
            self.drain_agent(&at, None, "its configuration changed");
        }
        for name in changed_connectors {
            self.drain_connector(id, &name, None, "its configuration changed");
        }
        for name in changed_models {
            self.drain_model(id, &name, "its configuration changed");
        }
        for name in names {
            self.pump_connector(id, &name);
        }
    }

    /// Restarts what a client asks for, after the turns in progress (`SUP-8`). Conversations that
    /// are to begin anew are deleted at once; `on_disk` are all that there are.
    fn restart(&mut self, token: RequestToken, request: &Restart, on_disk: Vec<Metadata>) {
        let id = &request.workspace_id;
        let Some(workspace) = self.workspaces.get_mut(id) else {
            return self.respond_error(token, no_workspace(id));
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
            return self.respond_error(token, error);
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
            processes += self.restart_connectors(id);
        }
        let mut chosen: Vec<(InstanceRef, AgentName)> = Vec::new();
        for (instance_key, agent) in owners {
            let workspace_id = id.clone();
            let at = InstanceRef {
                workspace_id,
                instance_key,
            };
            let entry = self.instance_mut(&at);
            processes += usize::from(entry.is_some_and(|entry| entry.slot.up().is_some()));
            chosen.push((at, agent));
        }
        if request.fresh {
            return self.begin_anew(token, chosen, processes);
        }
        for (at, _) in &chosen {
            self.restart_agent(at);
        }
        let removed = Vec::new();
        self.respond(token, &Restarted { processes, removed });
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
                self.store(Op::Close(instance.clone()), Purpose::Close { instance });
            }
        }
    }

    /// Forgets a closed workspace: the next start of the daemon does not bring it back.
    pub(super) fn on_workspace_written(
        &mut self,
        id: &WorkspaceId,
        result: &Result<(), ControlError>,
    ) {
        let Some(workspace) = self.workspaces.remove(id) else {
            return;
        };
        let event = match result {
            Ok(()) => LogEvent::info("workspace stopped"),
            Err(error) => {
                let event = LogEvent::error("workspace stopped, but its record was not written");
                event.with("error", error.message.clone())
            }
        };
        self.log(event.with("workspaceId", id.as_str()));
        self.forget_calls_of(id);
        for token in workspace.closing.into_iter().flat_map(|c| c.requests) {
            match result {
                Ok(()) => self.respond(token, &Done {}),
                Err(error) => self.respond_error(token, error.clone()),
            }
        }
    }
}
