//! Applies a loaded configuration to the running workspace.

use crate::fleet::Workspace;
use crate::fleet::changes::AppliedConfiguration;
use crate::fleet::workspaces::{being_stopped, problem_of};
use crate::refusals::{no_workspace, stopping_error};
use crate::{Core, LoadPurpose, LoadedWorkspace, LogEvent, RequestToken, WorkspaceLoadResult};
use goondan_config::Sources;
use goondan_protocol::control::{ControlError, EmptyResult, ErrorCode, Restart, RestartResult};
use goondan_protocol::ids::{AgentName, InstanceKey, InstanceRef, WorkspaceId};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_store::instance::Metadata;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Core {
    pub(crate) fn on_loaded(&mut self, loaded: WorkspaceLoadResult) {
        let WorkspaceLoadResult {
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
        let known = id.as_ref().and_then(|id| self.fleet.workspaces().get(id));
        if let Some(id) = &id
            && known.is_some_and(|workspace| workspace.closing.is_some())
        {
            let error = being_stopped(id);
            return self.tell_load_failed(&purpose, Some(id), &error);
        }
        self.take_up_loaded(&purpose, id.as_ref(), result, &sources);
        if let Some(id) = id {
            self.note_secrets(&id, sources.secrets());
            self.watch(&id, sources);
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
        let is_new = !self.fleet.workspaces().contains_key(&id);
        if is_new {
            self.calls.open_accounts(&id, found.accounts);
        }
        self.fleet.register(found.record, found.parked, sources);
        if is_new && let Some(workspace) = self.fleet.workspace_mut(&id) {
            workspace.take_up_unknown_calls(found.unknown_calls);
            workspace.take_up_standing(found.standing);
        }
        self.schedules
            .load(&mut self.fleet, &id, is_new, found.schedules);
        let mut applied = AppliedConfiguration::default();
        match found.bundle {
            Ok(bundle) => {
                let fallback = found.fallback.as_ref();
                let mut outdated = Vec::new();
                if let Some((workspace, cx)) = self.fleet.workspace_and_cx(&id) {
                    (applied, outdated) = workspace.run(cx, bundle, fallback, is_new);
                }
                for name in outdated {
                    self.on_model_time(&id, &name);
                }
                if fallback.is_none()
                    && let Some((workspace, cx)) = self.fleet.workspace_and_cx(&id)
                {
                    workspace.keep(cx, found.may_be_kept, sources);
                }
            }
            Err(error) => self.on_load_failed(&LoadPurpose::Start, Some(&id), &error),
        }
        if is_new {
            let instances_with_work = found.with_work.len();
            let opened = LifecycleEvent::WorkspaceOpened {
                instances_with_work,
            };
            self.fleet.announce(&id, opened, None);
            self.tasks.on_opened(&mut self.fleet, &id);
        }
        self.oauth.on_taken_up(&mut self.fleet, &id);
        for instance in found.with_work {
            let at = InstanceRef {
                workspace_id: id.clone(),
                instance_key: instance.instance_key,
            };
            if let Some((workspace, cx)) = self.fleet.workspace_and_cx(&id) {
                workspace.take_up(cx, &at, instance.agent_name.as_ref());
            }
        }
        self.answer_loaded(purpose, &id, applied, found.to_begin_anew);
    }

    fn answer_loaded(
        &mut self,
        purpose: &LoadPurpose,
        id: &WorkspaceId,
        applied: AppliedConfiguration,
        to_begin_anew: Vec<Metadata>,
    ) {
        match purpose {
            LoadPurpose::Start | LoadPurpose::Watch | LoadPurpose::Reload(None) => {}
            LoadPurpose::Reload(Some(token)) => self.on_reloaded(*token, id, Ok(applied)),
            LoadPurpose::Open { token, .. } => {
                if let Some(info) = self.fleet.view().workspace_info(&self.calls, id) {
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
        let event = LogEvent::error("failed to load workspace");
        let event = match id {
            Some(id) => event.with("workspaceId", id.as_str()),
            None => event,
        };
        self.fleet.log(event.with("error", error.message.clone()));
        if let Some(workspace) = id.and_then(|id| self.fleet.workspace_mut(id)) {
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

    /// Restarts the requested processes after the turns in progress (`SUP-8`). A fresh restart
    /// deletes the conversations immediately; `on_disk` lists all of them.
    fn restart(&mut self, token: RequestToken, request: &Restart, on_disk: Vec<Metadata>) {
        let id = &request.workspace_id;
        let Some(workspace) = self.fleet.workspaces().get(id) else {
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
                format!("agent `{agent}` does not exist"),
            );
            return self.fleet.respond_error(token, error);
        }
        let mut owners: BTreeMap<InstanceKey, AgentName> = BTreeMap::new();
        if request.fresh {
            owners.extend(on_disk.into_iter().map(|m| (m.instance_key, m.agent_name)));
        }
        owners.extend(
            self.fleet
                .workspaces()
                .get(id)
                .map(Workspace::agents)
                .into_iter()
                .flatten(),
        );
        let (only_key, only_agent) = (request.instance_key.as_ref(), request.agent.as_ref());
        owners.retain(|key, agent| {
            only_key.is_none_or(|only| only == key) && only_agent.is_none_or(|only| only == agent)
        });
        let mut processes = 0;
        if only_key.is_none()
            && only_agent.is_none()
            && let Some((workspace, cx)) = self.fleet.workspace_and_cx(id)
        {
            processes += workspace.restart_connectors(cx);
        }
        let mut chosen: Vec<(InstanceRef, AgentName)> = Vec::new();
        for (instance_key, agent) in owners {
            let workspace_id = id.clone();
            let at = InstanceRef {
                workspace_id,
                instance_key,
            };
            let entry = self.fleet.conversation(&at);
            processes += usize::from(entry.is_some_and(|entry| entry.process().is_some()));
            chosen.push((at, agent));
        }
        if request.fresh {
            return self.begin_anew(token, chosen, processes);
        }
        for (at, _) in &chosen {
            if let Some((workspace, cx)) = self.fleet.workspace_and_cx(id) {
                workspace.restart_agent(cx, at);
            }
        }
        let removed = Vec::new();
        self.fleet
            .respond(token, &RestartResult { processes, removed });
    }

    /// Drops a closed workspace, so the next daemon start does not reopen it.
    pub(crate) fn on_workspace_written(
        &mut self,
        id: &WorkspaceId,
        result: &Result<(), ControlError>,
    ) {
        let stopped = LifecycleEvent::WorkspaceStopped {
            error: result.as_ref().err().map(|error| error.message.clone()),
        };
        self.fleet.announce(id, stopped, None);
        let Some(workspace) = self.fleet.forget_workspace(id) else {
            return;
        };
        for token in self.fleet.cx().audience_mut().close(id) {
            self.fleet.respond(token, &EmptyResult {});
        }
        self.calls.forget_calls_of(id);
        self.oauth.forget(id);
        self.chat_proposals.forget(id);
        self.tasks.forget(&mut self.fleet, id);
        for token in workspace.closing.into_iter().flat_map(|c| c.requests) {
            match result {
                Ok(()) => self.fleet.respond(token, &EmptyResult {}),
                Err(error) => self.fleet.respond_error(token, error.clone()),
            }
        }
    }
}
