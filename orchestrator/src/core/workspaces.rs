//! Opening, changing, restarting and closing workspaces.

use goondan_config::Bundle;
use goondan_protocol::control::{
    ControlError, Done, ErrorCode, Restart, Restarted, WorkspaceProblem,
};
use goondan_protocol::ids::{ConnectionName, InstanceKey, InstanceRef, WorkspaceId};
use goondan_store::writer::Op;
use serde_json::json;

use super::connectors::Connector;
use super::jobs::Purpose;
use super::{
    Core, Effect, LoadPurpose, Loaded, LogEvent, RequestToken, Workspace, no_workspace,
    stopping_error,
};

impl Core {
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
            Err(error) => return self.on_load_failed(purpose, workspace_id.as_ref(), error),
        };
        let id = found.record.workspace_id.clone();
        let is_closing = self
            .workspaces
            .get(&id)
            .is_some_and(|w| w.closing.is_some());
        if is_closing {
            if let LoadPurpose::Open(token) | LoadPurpose::Restart { token, .. } = purpose {
                let error = ControlError::new(
                    ErrorCode::WorkspaceConflict,
                    format!("workspace `{id}` is being stopped"),
                );
                self.respond_error(token, error.suggest("try again in a moment"));
            }
            return;
        }
        if let Err(error) = &found.bundle
            && !matches!(purpose, LoadPurpose::Start)
        {
            // An invalid edit changes nothing that runs.
            let error = error.clone();
            return self.on_load_failed(purpose, Some(&id), error);
        }
        let is_new = !self.workspaces.contains_key(&id);
        let workspace = self
            .workspaces
            .entry(id.clone())
            .or_insert_with(|| Workspace {
                record: found.record.clone(),
                bundle: None,
                problem: None,
                instances: std::collections::HashMap::new(),
                connectors: std::collections::BTreeMap::new(),
                closing: None,
            });
        workspace.record = found.record;
        match found.bundle {
            Ok(bundle) => self.apply(&id, bundle),
            Err(error) => self.set_problem(&id, &error),
        }
        if is_new {
            let event = LogEvent::info("workspace opened").with("workspaceId", id.as_str());
            self.log(event.with("instancesWithWork", found.with_work.len()));
            for metadata in found.with_work {
                let at = InstanceRef {
                    workspace_id: id.clone(),
                    instance_key: metadata.instance_key,
                };
                self.instance_entry(&at, &metadata.agent_name);
                self.store(Op::Open(at.clone()), Purpose::Open { instance: at });
            }
        }
        match purpose {
            LoadPurpose::Start => {}
            LoadPurpose::Open(token) => {
                if let Some(info) = self.workspace_info(&id) {
                    self.respond(token, &info);
                }
            }
            LoadPurpose::Restart { token, request } => self.restart(token, &request),
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
        purpose: LoadPurpose,
        id: Option<&WorkspaceId>,
        error: ControlError,
    ) {
        let event = LogEvent::error("a workspace could not be loaded");
        let event = match id {
            Some(id) => event.with("workspaceId", id.as_str()),
            None => event,
        };
        self.log(event.with("error", error.message.clone()));
        if let Some(id) = id {
            self.set_problem(id, &error);
        }
        if let LoadPurpose::Open(token) | LoadPurpose::Restart { token, .. } = purpose {
            self.respond_error(token, error);
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
        for name in names {
            self.pump_connector(id, &name);
        }
    }

    /// Restarts what a client asks for, after the turns in progress (`SUP-8`).
    fn restart(&mut self, token: RequestToken, request: &Restart) {
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
        let is_chosen = |key: &InstanceKey, agent: &goondan_protocol::ids::AgentName| {
            request
                .instance_key
                .as_ref()
                .is_none_or(|wanted| wanted == key)
                && request.agent.as_ref().is_none_or(|wanted| wanted == agent)
        };
        let mut chosen: Vec<InstanceRef> = Vec::new();
        for (key, instance) in &mut workspace.instances {
            if is_chosen(key, &instance.agent) {
                instance.slot.forgive();
                let (workspace_id, instance_key) = (id.clone(), key.clone());
                chosen.push(InstanceRef {
                    workspace_id,
                    instance_key,
                });
            }
        }
        let all = request.agent.is_none() && request.instance_key.is_none();
        let mut connectors: Vec<ConnectionName> = Vec::new();
        if all {
            for (name, connector) in &mut workspace.connectors {
                connector.slot.forgive();
                connectors.push(name.clone());
            }
        }
        let mut processes = 0;
        for at in &chosen {
            let is_up = self
                .instance_mut(at)
                .is_some_and(|entry| entry.slot.up().is_some());
            processes += usize::from(is_up);
            self.audit(at, "restarted", json!({}));
            self.drain_agent(at, None, "a restart was asked for");
            self.pump(at);
        }
        for name in &connectors {
            let is_up = self
                .connector_mut(id, name)
                .is_some_and(|c| c.slot.up().is_some());
            processes += usize::from(is_up);
            self.drain_connector(id, name, None, "a restart was asked for");
            self.pump_connector(id, name);
        }
        self.respond(
            token,
            &Restarted {
                processes,
                removed: Vec::new(),
            },
        );
    }

    /// Stops a workspace's processes; `finish_closed_workspaces` does the rest when they are gone.
    pub(super) fn close_workspace(&mut self, token: RequestToken, id: &WorkspaceId) {
        let Some(workspace) = self.workspaces.get_mut(id) else {
            return self.respond_error(token, no_workspace(id));
        };
        workspace.closing.get_or_insert_default().push(token);
        let closed = ControlError::new(
            ErrorCode::Cancelled,
            format!("workspace `{id}` was stopped"),
        )
        .suggest("the event is safe; `gdn run` goes on with it");
        let waiting: Vec<InstanceRef> = self.instances_of(id);
        for at in &waiting {
            self.cancel_waiters(at, &closed);
        }
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

    pub(super) fn cancel_all_waiting(&mut self, error: &ControlError) {
        let ids: Vec<WorkspaceId> = self.workspaces.keys().cloned().collect();
        for at in ids
            .iter()
            .flat_map(|id| self.instances_of(id))
            .collect::<Vec<_>>()
        {
            self.cancel_waiters(&at, error);
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

    /// Forgets workspaces that were closed and whose processes are gone.
    pub(super) fn finish_closed_workspaces(&mut self) {
        let closed: Vec<WorkspaceId> = self
            .workspaces
            .iter()
            .filter(|(id, workspace)| {
                workspace.closing.is_some()
                    && self
                        .owners
                        .values()
                        .all(|owner| owner.workspace_id() != *id)
                    && !self.jobs.any(|instance| instance.workspace_id == **id)
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in closed {
            for at in self.instances_of(&id) {
                self.store(Op::Close(at.clone()), Purpose::Close { instance: at });
            }
            let Some(mut workspace) = self.workspaces.remove(&id) else {
                continue;
            };
            workspace.record.registered = false;
            self.push(Effect::WriteWorkspace(Box::new(workspace.record)));
            self.log(LogEvent::info("workspace stopped").with("workspaceId", id.as_str()));
            for token in workspace.closing.into_iter().flatten() {
                self.respond(token, &Done {});
            }
        }
    }
}
